"""Files that a failing disk or an attacker wrote: what is said of each, that nothing is executed or followed, and what it costs."""
