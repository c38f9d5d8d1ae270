"""The embedded cluster: real processes on loopback."""
