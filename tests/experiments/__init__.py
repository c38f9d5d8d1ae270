"""Programs that show a property of the whole over a small case: each is also a test, bounded by default."""
