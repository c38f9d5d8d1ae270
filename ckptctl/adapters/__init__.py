"""Files, HTTP, clock, locks: where effects happen."""
