"""Bytes to domain values and back (pure)."""
