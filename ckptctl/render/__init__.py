"""Results to text or JSON; no decisions."""
