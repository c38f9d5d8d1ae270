"""The whole system in one process on virtual time: one integer seed decides what happens, and when, and what goes wrong."""
