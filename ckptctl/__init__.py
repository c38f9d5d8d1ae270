"""ckptctl: coordinated, turn-level snapshots of asynchronous RL rollouts."""

__version__ = "0.1.0"
