"""Values of the field: pure data, no decisions that need the world."""
