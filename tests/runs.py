"""Checkpoint directories with several valid snapshots, on disk or as files, and worlds to run offline workflows in."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from ckptctl.adapters.journal import FileJournal
from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.locks import FileLock, this_process
from ckptctl.domain.finding import Level, TargetReport
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.builders import a_bootstrap_world, a_run_files, a_world, write_tree
from tests.fakes.small_world import a_world as a_small_world
from tests.world import World

GONE = {"pid": 2**22 + 1}
"""An owner whose process is not there any more."""


class ShiftedClock:
    """The real clock, wrong by so many seconds."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def now_s(self) -> float:
        return time.time() + self.ahead_s

    def monotonic_s(self) -> float:
        return time.monotonic()


@cache
def _content(anchor: str, number: int) -> World:
    name = f"snapshot_{number:06d}"
    if anchor == "bootstrap":
        return a_bootstrap_world(name=name)
    return a_world(name=name, checkpoint_id=f"rollout-step-3-snapshot-{number}-0f0e0d0c0b0a09080706050403020100")


@cache
def run_files(**anchors: int | tuple[int, ...]) -> dict[str, bytes]:
    """The files of a run: `run_files(step_3=3, bootstrap=1)` has snapshots 1 to 3 of `step_3` and one of `bootstrap`."""
    wanted = [
        (anchor, number)
        for anchor, numbers in anchors.items()
        for number in (range(1, numbers + 1) if isinstance(numbers, int) else numbers)
    ]
    return a_run_files(*(_content(anchor, number) for anchor, number in wanted))


def a_run(root: Path, **anchors: int) -> Path:
    """A checkpoint directory on disk."""
    return write_tree(root, run_files(**anchors))


def damage(root: Path, anchor: str, number: int) -> None:
    """Make one snapshot invalid."""
    path = root / anchor / "rollout_snapshots" / f"snapshot_{number:06d}" / "rollout_recovery.pt"
    path.write_bytes(path.read_bytes()[:-40])


def offline_world(root: Path, *, ahead_s: float = 0.0, notices: list[str] | None = None, **owner):
    """The world of a command that needs no server."""
    clock = ShiftedClock(ahead_s)
    return a_small_world(
        store=LocalStore(str(root)),
        lock=FileLock(str(root), owner=replace(this_process(), **owner)),
        journal=FileJournal(str(root), clock),
        clock=clock,
        notice=([] if notices is None else notices).append,
    )


def judge_snapshot(reader: SnapshotReader, path: str, level: Level, *, under_final_name: bool = True) -> TargetReport:
    """Validate one directory, by default under the name that it will have once it is published."""
    [report] = validate(reader, ValidateRequest((path,), level, under_final_name=under_final_name)).targets
    return report


def names(root: Path, anchor: str = "step_3") -> list[str]:
    """What lies beside the snapshots of an anchor."""
    return sorted(path.name for path in (root / anchor / "rollout_snapshots").iterdir())
