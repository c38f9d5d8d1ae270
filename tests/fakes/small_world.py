"""A world without servers and disk, for workflows that need only a part of it. Whatever is missing fails when it is asked for."""

from __future__ import annotations

from ckptctl.adapters.progress import NoProgress
from ckptctl.workflows.world import World
from tests.fakes.fixed_clock import FixedClock


class Absent:
    """A port that this test does not expect to be used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str):
        raise AssertionError(f"{self._name}.{method} was not expected")


class MemoryWriter:
    """Implements `ports.JournalWriter` in memory."""

    def __init__(self) -> None:
        self.records: list[dict] = []

    def append(self, record, *, sync: bool) -> None:
        self.records.append(dict(record))


def a_world(**ports) -> World:
    """A world with these ports and a clock that only sleeping moves."""
    names = ("store", "lock", "journal", "participants", "controller")
    filled = {name: ports.pop(name, Absent(name)) for name in names}
    notices: list[str] = []
    return World(
        clock=ports.pop("clock", FixedClock()),
        progress=NoProgress(),
        notice=ports.pop("notice", notices.append),
        share=lambda: 0.0,
        **filled,
        **ports,
    )
