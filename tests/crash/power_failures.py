"""Every disk operation of a command, in order, and after each of them a power failure with every loss that may come of it.

`python -m tests.crash.power_failures` records `snapshot`, `publish`, `restore` and `gc` in the simulated machine: each system call that
changes the shared directory, of the coordinator and of all servers. For every prefix of that recording the power fails, and what was not
synced is lost in every allowed way: of the changes of names any number of the last ones, of each file's unsynced content nothing, a part or all.
What is then on the disk must show whole snapshots only, all those that were published before, and, once anybody was released, the new
one. Fresh servers are started and the next command is run: it must recover. Directories that are equal are judged once.

`--sample N` takes so many of the losses of each command, drawn by `--seed`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from ckptctl.planning import snapshot as steps
from tests.simulation import sandbox
from tests.simulation.cluster import RUN_DIR
from tests.simulation.disk import Disk, Node
from tests.simulation.kernel import ACTING, COORDINATOR
from tests.simulation.schedule import Schedule
from tests.simulation.stories import RUNS, collectable, saved_run

COMMANDS = ("snapshot", "publish", "restore", "gc")
DONE = {"snapshot": "published", "publish": "published", "restore": "restored", "gc": "collected"}
RELEASING = (steps.RESUME_RESOURCES, steps.RESUME_MODELS, steps.RESUME_AGENTS, steps.OPEN)
MOST_LOSSES = 64
"""Of one prefix; where there are more, so many of them are drawn."""
NEXT_INCARNATION = 9
GC_KEEPS = 1
Fate = str
FATES: tuple[Fate, ...] = ("lost", "torn", "kept")
Names = dict[int, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Kept:
    """One file or directory after the power failure; `data` is None for a directory."""

    path: str
    mode: int
    mtime_s: float
    data: bytes | None


Left = tuple[Kept, ...]
"""A whole disk, parents first."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A disk after a power failure, and what must be on it."""

    command: str
    prefix: int
    call: str
    left: Left
    before: Disk
    """What was there when the command began."""
    must_be_new: bool
    """Whether somebody was released before: then the new snapshot must be there."""


@dataclass
class Recording:
    """One command's operations and the scenes that follow from them."""

    command: str
    prefixes: int = 0
    losses: int = 0
    scenes: list[Scene] = field(default_factory=list)
    _known: set[bytes] = field(default_factory=set)

    def add(self, disk: Disk, call: str, before: Disk, drawn: random.Random, *, must_be_new: bool) -> None:
        """The power fails here."""
        self.prefixes += 1
        for left in after_losses(disk, drawn):
            self.losses += 1
            digest = digest_of(left, must_be_new=must_be_new)
            if digest not in self._known:
                self._known.add(digest)
                self.scenes.append(Scene(self.command, self.prefixes - 1, call, left, before, must_be_new))


# --- what may be lost ---


def after_losses(disk: Disk, drawn: random.Random) -> Iterator[Left]:
    """Every disk that a power failure may leave of this one; a drawn part where there are too many."""
    dirty = [node for node in disk.nodes.values() if node.is_dirty and not node.is_directory and not node.is_safe]
    ways = (len(disk._pending) + 1) * len(FATES) ** len(dirty)
    if ways <= MOST_LOSSES:
        chosen = itertools.product(range(len(disk._pending) + 1), itertools.product(FATES, repeat=len(dirty)))
    else:
        worst = [(0, ("lost",) * len(dirty)), (len(disk._pending), ("lost",) * len(dirty))]
        chosen = iter(
            worst
            + [
                (drawn.randint(0, len(disk._pending)), tuple(drawn.choice(FATES) for _ in dirty))
                for _ in range(MOST_LOSSES - len(worst))
            ]
        )
    for kept, fates in chosen:
        yield after_loss(disk, kept, dict(zip((node.number for node in dirty), fates, strict=True)))


def after_loss(disk: Disk, kept: int, fates: dict[int, Fate]) -> Left:
    """The disk when the first `kept` of its unsynced changes of names survive, and of each dirty file what its fate says."""
    names: Names = {folder: dict(entries) for folder, entries in disk._durable.items()}
    for change in disk._pending[:kept]:
        for folder, name, number in change.sets:
            if number is None:
                names[folder].pop(name, None)
            else:
                names[folder][name] = number
    return tuple(_walk(disk, names, 1, "", fates))


def _walk(disk: Disk, names: Names, folder: int, path: str, fates: dict[int, Fate]) -> Iterator[Kept]:
    for name, number in sorted(names[folder].items()):
        node = disk.nodes[number]
        if node.is_directory:
            yield Kept(f"{path}/{name}", node.mode, node.mtime_s, None)
            yield from _walk(disk, names, number, f"{path}/{name}", fates)
        else:
            yield Kept(f"{path}/{name}", node.mode, node.mtime_s, _content(node, fates.get(number)))


def _content(node: Node, fate: Fate | None) -> bytes:
    if node.is_safe or fate == "kept":
        return bytes(node.data)
    if fate == "torn":
        return bytes(node.data[: (len(node.synced) + len(node.data)) // 2])
    return node.synced


def digest_of(left: Left, *, must_be_new: bool) -> bytes:
    """Equal disks are judged once; what only people look at does not count."""
    digest = hashlib.blake2b(bytes([must_be_new]))
    for item in left:
        if not item.path.startswith(RUN_DIR):
            digest.update(repr((item.path, item.data)).encode())
    return digest.digest()


def rebuilt(left: Left) -> Disk:
    """A disk with this content, all of it durable."""
    disk = Disk(safe=(RUN_DIR,))
    for item in left:
        node = disk.create(item.path, item.mtime_s, is_directory=item.data is None, mode=item.mode)
        if item.data is not None:
            disk.write(node, 0, item.data, item.mtime_s)
    return disk.copy()


# --- the recording ---


def record(command: str, drawn: random.Random) -> Recording:
    """Run a command in fair weather, and let the power fail before and after each of its disk operations."""
    begins = {"restore": lambda: saved_run(1), "gc": lambda: collectable(0)}
    disk = begins[command]() if command in begins else None
    schedule = Schedule(f"record {command}", run=RUNS[0], disk=disk.copy() if disk else None)
    recording = Recording(command)

    async def story() -> None:
        schedule.invariants.look(most_new=9)
        if command == "gc":
            schedule.invariants.kept = GC_KEEPS
        else:
            await schedule.start_cluster(incarnation=2 if disk else 1, restore_expected=command == "restore")
        if command in ("snapshot", "publish"):
            await asyncio.sleep(0.5)
            await schedule.command("snapshot", force=True)
            await asyncio.sleep(0.5)
        if command == "publish":
            with _dying_at(schedule, steps.VALIDATE):
                await schedule.command("snapshot", force=True)
        before = schedule.kernel.disk.copy()
        with _recording(schedule, recording, before, drawn):
            outcome = await schedule.command(command, **_wishes(command))
        assert (0, DONE[command]) == (outcome.status, outcome.told), outcome
        is_new = command in ("snapshot", "publish")
        recording.add(schedule.kernel.disk, "the end", before, drawn, must_be_new=is_new)

    schedule.run_story(story)
    assert not schedule.invariants.breaches, schedule.invariants.breaches
    return recording


def _wishes(command: str) -> dict[str, Any]:
    return {"snapshot": {"force": True}, "gc": {"keep": GC_KEEPS, "grace_s": 0.0}}.get(command, {})


@dataclass
class Watched:
    """Between the product and the machine: knows the step, and is asked before each system call."""

    schedule: Schedule
    before_call: Callable[[str, str, bool, str], None]
    step: str = "begin"

    def __enter__(self) -> Self:
        kernel, machine = self.schedule.kernel, self.schedule.machine
        self._enter, self._observe = kernel.enter, machine._observe

        def enter(call: str, path: str, *, is_write: bool = False) -> None:
            self.before_call(call, path, is_write, self.step)
            self._enter(call, path, is_write=is_write)

        def observe(step: str) -> None:
            self.step = step
            self._observe(step)

        kernel.enter, machine._observe = enter, observe  # type: ignore[method-assign]  # only this machine's
        return self

    def __exit__(self, *_: object) -> None:
        self.schedule.kernel.enter = self._enter  # type: ignore[method-assign]  # as above
        self.schedule.machine._observe = self._observe  # type: ignore[method-assign]  # as above


def _recording(schedule: Schedule, recording: Recording, before: Disk, drawn: random.Random) -> Watched:
    """Before each system call that changes something the power might fail."""

    def fail(call: str, path: str, is_write: bool, step: str) -> None:
        if is_write and ACTING.get() is not None and not path.startswith(RUN_DIR):
            is_new = recording.command in ("snapshot", "publish") and step in RELEASING
            recording.add(schedule.kernel.disk, f"{step} {call}", before, drawn, must_be_new=is_new)

    return Watched(schedule, fail)


def _dying_at(schedule: Schedule, wanted: str) -> Watched:
    """The coordinator dies as soon as it comes to a step."""

    def die(_: str, __: str, ___: bool, step: str) -> None:
        process = ACTING.get()
        if process is not None and process.party == COORDINATOR and step == wanted:
            schedule.kernel.kill(process)

    return Watched(schedule, die)


# --- the judgement ---


def judge(scene: Scene) -> list[str]:
    """What is wrong after the power failure, and after the next command in fair weather."""
    schedule = Schedule(f"judge {scene.command}", run=RUNS[0], disk=scene.before.copy())
    invariants = schedule.invariants

    async def story() -> None:
        invariants.look(most_new=9)
        known = len(invariants.visible())
        schedule.kernel.disk = rebuilt(scene.left)
        schedule.kernel.boots += 1
        schedule.machine.install_files()
        if scene.command == "gc":
            invariants.kept = GC_KEEPS
        invariants.look(most_new=1)
        invariants.check_snapshots()
        if scene.must_be_new and len(invariants.visible()) != known + 1:
            invariants.breach("the new snapshot is gone, though somebody was released")
        if scene.command == "gc":
            await _gc_again(schedule)
        else:
            await _recover(schedule, scene.command)
        invariants.check_snapshots()

    schedule.run_story(story)
    return invariants.breaches


async def _gc_again(schedule: Schedule) -> None:
    """One run moves into the trash, the next one deletes, a third finds nothing."""
    for _ in range(3):
        outcome = await schedule.command_at_last("gc", **_wishes("gc"))
        if outcome.status != 0:
            schedule.invariants.breach(f"in fair weather: {outcome}")
    if outcome.told != "nothing_to_do":
        schedule.invariants.breach(f"{outcome} at last, not nothing_to_do")


async def _recover(schedule: Schedule, command: str) -> None:
    """All servers are new. The same command, or a restore where there is something to restore; then a snapshot."""
    has_snapshot = bool(schedule.invariants.visible())
    cluster = await schedule.start_cluster(incarnation=NEXT_INCARNATION, restore_expected=has_snapshot)
    first = "publish" if command in ("snapshot", "publish") else "restore"
    for name in dict.fromkeys((first, *(("restore",) if has_snapshot else ()), "snapshot")):
        outcome = await schedule.command_at_last(name, **({"force": True} if name == "snapshot" else {}))
        if outcome.status != 0:
            schedule.invariants.breach(f"in fair weather, all servers new: {outcome}; hint: {outcome.hint}")
        if cluster.held() and name != "publish":
            schedule.invariants.breach(f"after {outcome} {cluster.held()} are held")


# --- the program ---


def run(command: str, seed: int, most: int | None, say: Callable[[str], None] = print) -> list[str]:
    """Record and judge one command; the breaches."""
    drawn = random.Random(f"{seed} {command}")
    recording = record(command, drawn)
    scenes = recording.scenes
    if most is not None and most < len(scenes):
        scenes = sorted(drawn.sample(scenes, most), key=lambda scene: scene.prefix)
    breaches = []
    for scene in scenes:
        found = judge(scene)
        breaches += [f"{command}, before operation {scene.prefix} ({scene.call}): {text}" for text in found]
    say(
        f"{command}: {recording.prefixes} prefixes x losses = {recording.losses} power failures, which leave "
        f"{len(recording.scenes)} different disks; {len(scenes)} judged, {len(breaches)} breaches"
    )
    return breaches


def main() -> int:
    """Parse, run, print; 1 when something does not recover."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="*", choices=(*COMMANDS, []), help="all of them by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, help="judge so many disks of each command")
    options = parser.parse_args()
    breaches: list[str] = []
    with sandbox.installed():
        for command in options.commands or COMMANDS:
            breaches += run(command, options.seed, options.sample, lambda line: print(line, flush=True))
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
