"""Every byte counts: in a small published snapshot every single byte of every file is changed, one validation a byte.

`python -m tests.experiments.every_byte` changes them all, `--sample N` so many and `--minutes M` as many as it can, in an order that
`--seed` decides; it deletes and truncates every file, exchanges every two files of a kind and adds stray files, too. Each change must be found at level full: a survivor is a defect. The
same at level standard tells which bytes are left to level full. Nothing is stood in for: files on disk, the real reader, loader, rules
and report. Only what decoders made of bytes that did not change is remembered from one validation to the next.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.digest import blake3_hex
from ckptctl.domain.finding import TargetReport
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.tq_checkpoint import SSD_FORMAT
from ckptctl.formats.tq_writer import tensor_node
from ckptctl.workflows import load_anchor, load_gym, read_parts
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.artifacts import a_data_plane
from tests.builders import a_run_files, a_world, write_tree
from tests.published import publish_in
from tests.world import World

FOLDER = "step_3/rollout_snapshots"
OFFLOADED = ("token_ids_delta", "token_mask_delta", "generation_logprobs_delta")
"""Columns that the second storage unit keeps in blobs."""
FOUND = frozenset({"invalid", "incompatible"})


# --- the snapshot ---


def a_small_snapshot(root: Path) -> Path:
    """Published in `root` by ckptctl's own steps: two storage units, one with blobs, agents, model ledger, resources."""
    world = a_world()
    write_tree(root, a_run_files(world))
    staged = root / FOLDER / f"tmp_{world.name}"
    (root / FOLDER / world.name).rename(staged)
    _offload(staged, world, 1)
    publish_in(root, f"{FOLDER}/{staged.name}", f"{FOLDER}/{world.name}", "full")
    return root / FOLDER / world.name


def _offload(snapshot: Path, world: World, position: int) -> None:
    """Keep the token columns of one unit's staged rows in blobs, as TransferQueue does when it offloads to an SSD."""
    plane = a_data_plane(world)
    rows = plane.rows[position]
    unit = snapshot / "data_plane" / "simple_storage" / plane.unit(position).file_name
    blobs = unit.with_name(f"{unit.name}.blobs")
    blobs.mkdir()
    kept: dict[str, dict[int, Any]] = {}
    index: dict[str, dict[int, Any]] = {}
    number = 0
    for name, values in rows.items():
        for row, value in values.items():
            if name not in OFFLOADED:
                kept.setdefault(name, {})[row] = tensor_node(value)
                continue
            file_name = f"{number:032x}.bin"
            number += 1
            (blobs / file_name).write_bytes(value.data)
            facts = {"size_bytes": len(value.data), "codec": "tensor", "dtype": value.dtype, "shape": list(value.shape)}
            index.setdefault(name, {})[row] = {"filename": file_name, **facts}
            kept.setdefault(name, {})
    tree = {
        "storage_unit_id": plane.units[position].storage_unit_id,
        "storage_unit_size": 100,
        "field_data": kept,
        "active_keys": set(plane.active(position)),
        "format": SSD_FORMAT,
        "ssd_index": index,
    }
    unit.write_bytes(write_pickle(tree, 5))


def files_of(snapshot: Path) -> tuple[str, ...]:
    """Every file, by its path in the snapshot."""
    return tuple(sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()))


# --- one validation ---


_ORIGINAL = (read_parts._decoded, load_anchor.read_manifest, load_gym._read_members)


@contextmanager
def remembering() -> Iterator[None]:
    """Remember what was decoded from which bytes. Decoders are pure, so nobody can tell; a validation takes a third of the time."""
    decoded, read_manifest, read_members = _ORIGINAL
    parts: dict[Any, Any] = {}
    archives: dict[Any, Any] = {}

    def remember_part(path: str, source: Any, size_bytes: int, digest: str | None, decode: Any, probe: Any) -> Any:
        if "reader_of" in decode.__qualname__:  # an archive fills a mapping beside its result: see below
            return decoded(path, source, size_bytes, digest, decode, probe)
        key = (path, size_bytes, digest, blake3_hex(source.read_at(0, size_bytes)))
        if key not in parts:
            parts[key] = decoded(path, source, size_bytes, digest, decode, probe)
        return parts[key]

    def remember_manifest(path: str, data: bytes, limits: Any) -> Any:
        if (path, data) not in parts:
            parts[path, data] = read_manifest(path, data, limits)
        return parts[path, data]

    def remember_members(source: Any, limits: Any, path: str, members: dict[Any, Any], decode: Any) -> Any:
        key = (path, blake3_hex(source.read_at(0, source.size_bytes)), frozenset(members))
        if key not in archives:
            before = frozenset(members)
            found = read_members(source, limits, path, members, decode)
            archives[key] = (found, {name: part for name, part in members.items() if name not in before})
        found, added = archives[key]
        members.update(added)
        return found

    read_parts._decoded = remember_part
    load_anchor.read_manifest = remember_manifest  # type: ignore[assignment]
    load_gym._read_members = remember_members
    try:
        yield
    finally:
        read_parts._decoded, load_anchor.read_manifest, load_gym._read_members = _ORIGINAL


@contextmanager
def forgetting() -> Iterator[None]:
    """Decode everything anew, inside `remembering`."""
    kept = read_parts._decoded, load_anchor.read_manifest, load_gym._read_members
    read_parts._decoded, load_anchor.read_manifest, load_gym._read_members = _ORIGINAL
    try:
        yield
    finally:
        read_parts._decoded, load_anchor.read_manifest, load_gym._read_members = kept


def judged(snapshot: Path, level: str) -> TargetReport:
    """The report on the snapshot as it lies there now."""
    return validate(LocalStore(), ValidateRequest(paths=(str(snapshot),), level=level)).targets[0]  # type: ignore[arg-type]


def is_found(report: TargetReport) -> bool:
    """Whether the change is an error; one that only makes the validation incomplete is not found."""
    return report.verdict in FOUND


# --- changes ---


@dataclass(frozen=True)
class Change:
    """One change of the snapshot: made, and taken back."""

    name: str
    path: str
    make: Callable[[], None]
    undo: Callable[[], None]


@dataclass
class Outcome:
    """What became of the changes of one kind at one level."""

    made: Counter[str] = field(default_factory=Counter)
    survived: dict[str, list[str]] = field(default_factory=dict)

    @property
    def survivors(self) -> list[str]:
        """Every change that was not found."""
        return [name for names in self.survived.values() for name in names]


def flips(snapshot: Path, places: Iterable[tuple[str, int]]) -> Iterator[Change]:
    """One bit of one byte each; which bit goes round with the place."""
    for path, offset in places:
        file = snapshot / path
        old = file.read_bytes()[offset]
        yield Change(
            f"{path} byte {offset}",
            path,
            lambda file=file, offset=offset, old=old: _put(file, offset, old ^ (1 << offset % 8)),
            lambda file=file, offset=offset, old=old: _put(file, offset, old),
        )


def _put(path: Path, offset: int, value: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, bytes((value,)), offset)
    finally:
        os.close(descriptor)


def places_of(snapshot: Path) -> list[tuple[str, int]]:
    """Every byte of every file."""
    return [(path, offset) for path in files_of(snapshot) for offset in range((snapshot / path).stat().st_size)]


def other_changes(snapshot: Path) -> Iterator[Change]:
    """Deletions, truncations, exchanges of two files of a kind, and files too many."""
    for path in files_of(snapshot):
        file = snapshot / path
        data = file.read_bytes()
        yield Change(f"{path} deleted", path, file.unlink, lambda file=file, data=data: _write(file, data))
        for size in sorted({0, len(data) // 2, len(data) - 1} - {len(data), -1}):
            yield Change(
                f"{path} cut to {size} bytes",
                path,
                lambda file=file, data=data, size=size: _write(file, data[:size]),
                lambda file=file, data=data: _write(file, data),
            )
        yield Change(
            f"{path} one byte longer",
            path,
            lambda file=file, data=data: _write(file, data + b"\n"),
            lambda file=file, data=data: _write(file, data),
        )
    for one, other in combinations(files_of(snapshot), 2):
        first, second = (snapshot / one).read_bytes(), (snapshot / other).read_bytes()
        if one.rpartition(".")[2] == other.rpartition(".")[2] and first != second:
            yield Change(
                f"{one} and {other} exchanged",
                one,
                lambda one=one, other=other, data=(first, second): _write_both(snapshot, one, other, data[::-1]),
                lambda one=one, other=other, data=(first, second): _write_both(snapshot, one, other, data),
            )
    folders = sorted({"", *(path.rpartition("/")[0] for path in files_of(snapshot))})
    for name in ("stray.json", ".hidden", "su_7_TQ_STORAGE_UNIT_77777777.pkl", f"{9:032x}.bin", "copy.tar"):
        for folder in folders:
            path = f"{folder}/{name}".lstrip("/")
            file = snapshot / path
            if not file.exists():
                yield Change(f"{path} added", path, lambda file=file: _write(file, b"{}"), file.unlink)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _write_both(snapshot: Path, one: str, other: str, data: tuple[bytes, ...]) -> None:
    for path, content in zip((one, other), data, strict=True):
        (snapshot / path).write_bytes(content)


# --- the experiment ---


def run(
    snapshot: Path, changes: Iterable[Change], levels: tuple[str, ...], until_s: float = float("inf")
) -> dict[str, Outcome]:
    """Make each change, validate at each level, take it back; `until_s`: monotonic time to stop at."""
    outcomes = {level: Outcome() for level in levels}
    for change in changes:
        if time.monotonic() > until_s:
            break
        change.make()
        try:
            for level, outcome in outcomes.items():
                outcome.made[change.path] += 1
                if not is_found(judged(snapshot, level)):
                    outcome.survived.setdefault(change.path, []).append(change.name)
        finally:
            change.undo()
    return outcomes


def sample(places: list[tuple[str, int]], count: int, seed: int) -> list[tuple[str, int]]:
    """So many places, the same ones for the same seed; of every file its first and last byte come first."""
    last = dict(places)
    ends = {(path, offset) for path, offset in places if offset in (0, last[path])}
    others = sorted(set(places) - ends)
    random.Random(seed).shuffle(others)
    return [*sorted(ends), *others[: max(0, count - len(ends))]]


def told(title: str, outcomes: dict[str, Outcome]) -> str:
    """The figures of one kind of change."""
    lines = []
    for level, outcome in outcomes.items():
        made, lost = sum(outcome.made.values()), len(outcome.survivors)
        lines.append(
            f"{title}, level {level}: {made - lost:,} of {made:,} found ({100 * (made - lost) / max(1, made):.2f} %)"
        )
        for path, names in sorted(outcome.survived.items(), key=lambda item: -len(item[1])):
            lines.append(f"  left by {level}: {len(names):,} of {outcome.made[path]:,} in {path}")
    return "\n".join(lines)


def main() -> int:
    """Run the experiment and print its figures. Status 1: something survived level full."""
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.every_byte", description=__doc__)
    parser.add_argument("--sample", type=int, help="change so many bytes (default: every byte)")
    parser.add_argument("--seed", type=int, default=1, help="in which order (default 1)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop changing bytes after so long")
    parser.add_argument("--part", default="1/1", help="I/N: every Nth place from the Ith on, to share the work")
    parser.add_argument("--level", action="append", choices=("standard", "full"), help="default: both")
    wanted = parser.parse_args()
    levels = tuple(wanted.level or ("full", "standard"))
    index, count = map(int, wanted.part.split("/"))
    with tempfile.TemporaryDirectory(prefix="ckptctl-every-byte-") as scratch, remembering():
        snapshot = a_small_snapshot(Path(scratch).resolve())
        places = places_of(snapshot)
        most = len(places) if wanted.sample is None else wanted.sample
        chosen = sample(places, most, wanted.seed)[index - 1 :: count]
        assert all(judged(snapshot, level).verdict == "valid" for level in levels), (
            "the snapshot is valid before anything changes"
        )
        print(
            f"{len(files_of(snapshot))} files, {len(places):,} bytes; {len(chosen):,} to be changed, one after the other"
        )
        began = time.perf_counter()
        until_s = time.monotonic() + 60 * wanted.minutes
        bytes_changed = run(snapshot, flips(snapshot, chosen), levels, until_s)
        print(told("changed bytes", bytes_changed), flush=True)
        others = run(snapshot, other_changes(snapshot), levels) if index == 1 else {}
        print(told("other changes", others))
        assert all(judged(snapshot, level).verdict == "valid" for level in levels), "every change was taken back"
        print(f"{time.perf_counter() - began:.0f} s")
    lost = [name for outcomes in (bytes_changed, others) for name in outcomes.get("full", Outcome()).survivors]
    for name in lost[:100]:
        print(f"survived level full: {name}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
