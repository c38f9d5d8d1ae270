"""The logs of a run directory: JSON Lines that survive every kill, because each line is written whole and only appended.

    results.jsonl     one line per sealed sibling and per finished group
    dispatches.jsonl  one line per dispatch
    restores.jsonl    one line per completed restore: what the restored snapshot held

They are for comparing runs (`equivalence`); nothing is ever recovered from them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptctl.adapters import durable
from ckptctl.errors import StorageError

RESULTS, DISPATCHES, RESTORES = "results.jsonl", "dispatches.jsonl", "restores.jsonl"


class RunLog:
    """One log, open for appending."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = durable.open_append(path)

    def append(self, line: Mapping[str, Any]) -> None:
        """Append one line. Not synced: only the process may die, not the machine."""
        data = json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        durable.append_line(self._descriptor, data, path=self._path, sync=False)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)


def read_log(path: str) -> tuple[dict[str, Any], ...]:
    """All whole lines of one log; none where it does not exist. Raises StorageError."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    try:
        return tuple(json.loads(line) for line in lines if line.strip())
    except ValueError as error:
        raise StorageError(operation="read", path=path, detail=f"a line is no JSON: {error}", cause=error) from error
