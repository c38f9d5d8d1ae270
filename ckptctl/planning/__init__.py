"""Observed state and a goal to a plan (pure)."""
