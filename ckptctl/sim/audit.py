"""The audit log of a server process: what really happened, written where a crash does not reach it.

One file per process (`audit-<server>-<incarnation>-<process>.jsonl`), appended right before the effect, so that
what cannot be written down does not happen. Nothing is ever recovered from it; it is for comparing what happened with
what a snapshot says.

    mutation   rollout, attempt, turn, route, kind, revision, request_id     every successful call that is not a read
    restored   checkpoint_id, sessions: [{rollout_id, attempt_index (N+1), revision, request_ids}]
    retired    rollout, attempt
"""

from __future__ import annotations

import json
import os
from typing import Any

from ckptctl.adapters import durable


class AuditLog:
    """One process' log, open for appending."""

    def __init__(self, run_dir: str, server: str, incarnation: int, process_id: str) -> None:
        durable.make_directory(run_dir)
        self.path = f"{run_dir}/audit-{server}-{incarnation}-{process_id}.jsonl"
        self._facts = {"server": server, "incarnation": incarnation, "process": process_id}
        self._descriptor = durable.open_append(self.path)

    def append(self, event: str, **facts: Any) -> None:
        """Append one event. Not synced: only the process may die, not the machine."""
        line = {**self._facts, "event": event, **facts}
        data = json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        durable.append_line(self._descriptor, data, path=self.path, sync=False)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)
