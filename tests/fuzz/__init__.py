"""Fuzzing of everything that reads bytes: seeded mutations of good samples, in the suite, in long runs, and under atheris."""
