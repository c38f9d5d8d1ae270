"""Bounds of what a journal may say, apart from its documents: who reads lines does not start with those."""

LAST_S = 253402300799
"""The last second of the year 9999 as Unix time; nothing takes longer either."""
