"""Programs that print ratios; nothing is asserted."""
