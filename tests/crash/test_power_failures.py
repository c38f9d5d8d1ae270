"""Power failures at every disk operation, as tests: a few disks by default, some of each command in the bounded long mode, all in the whole one."""

from __future__ import annotations

import multiprocessing
import os
import random

import pytest

from tests.crash.power_failures import COMMANDS, after_losses, rebuilt, run
from tests.simulation import sandbox
from tests.simulation.disk import Disk

MOST = 10 if os.environ.get("CKPTCTL_LONG_BOUNDED") else None
SEED = 20261130


def breaches(command: str, most: int | None) -> list[str]:
    """In a process of its own: the sandbox exchanges modules, and what other tests left here would be exchanged with them."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(sandboxed, (command, most))


def sandboxed(command: str, most: int | None) -> list[str]:
    """As `python -m tests.crash.power_failures` does."""
    with sandbox.installed():
        return run(command, SEED, most)


def files(disk: Disk) -> list[dict[str, bytes]]:
    """What may be left of a disk, each once."""
    found = []
    for left in after_losses(disk, random.Random(1)):
        content = {item.path: item.data for item in left}
        if content not in found:
            found.append(content)
    return found


def test_what_is_not_synced_may_be_lost_in_every_way() -> None:
    """A name survives without its content, a content in part, nothing at all; a rename after it never without it."""
    disk = Disk()
    node = disk.create("/a", 0.0, is_directory=False, mode=0o600)
    disk.write(node, 0, b"1234", 0.0)
    disk.rename("/a", "/b")

    left = files(disk)

    assert {(), ("/a",), ("/b",)} == {tuple(content) for content in left}
    assert {b"", b"12", b"1234"} == {content["/b"] for content in left if "/b" in content}
    disk.sync(node)
    assert {b"1234"} == {data for content in files(disk) for data in content.values()}
    disk.sync(disk.require("/"))
    assert [{"/b": b"1234"}] == files(disk)


def test_what_is_left_is_a_disk_of_its_own() -> None:
    """Folders, modes and times are those that survived, and all of it is durable."""
    disk = Disk()
    disk.create("/d", 0.0, is_directory=True, mode=0o755)
    disk.write(disk.create("/d/f", 7.0, is_directory=False, mode=0o600), 0, b"x", 7.0)
    [*_, last] = after_losses(disk, random.Random(1))
    again = rebuilt(last)

    assert {"d/f": b"x"} == again.durable_files("/")
    assert (0o600, 7.0) == (again.require("/d/f").mode, again.require("/d/f").mtime_s)


def test_a_few_power_failures() -> None:
    """Garbage collection, three of the disks that may be left of it: sound, and the next runs finish it."""
    assert [] == breaches("gc", 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_power_failure(command) -> None:
    """Before each operation and with each loss: whole snapshots only, nothing published is gone, and the next command recovers."""
    assert [] == breaches(command, MOST)
