"""Programs that the README shows, each run by a test."""
