"""What a PATH means: one snapshot, an anchor with its snapshots, a whole checkpoint directory, a data plane alone, or a pack.

Names decide where they can, content where they cannot (a renamed copy of a snapshot). No file is opened here but a pack.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote

from ckptctl.domain.evidence import TargetKind, TreeEntry
from ckptctl.domain.ids import (
    BOOTSTRAP_FOLDER,
    MAX_SNAPSHOT_NUMBER,
    SNAPSHOT_NAME,
    SNAPSHOTS_FOLDER,
    TMP_SNAPSHOT_NAME,
    TRASH_SNAPSHOT_NAME,
    snapshot_number,
    step_number,
)
from ckptctl.domain.pack import MAGICS, PACK_SUFFIXES
from ckptctl.domain.safe_text import safe
from ckptctl.errors import NothingThereError, StorageError, UsageError
from ckptctl.ports import PackReader, SnapshotReader
from ckptctl.rules.layout import KIND_WORDS

EXPECTED = (
    "give a snapshot (`snapshot_N`), an anchor (`step_N`, `bootstrap`), a checkpoint directory that holds anchors, "
    "a `data_plane` directory, or a packed snapshot (`.tar.zst`)"
)
DATA_PLANE_FOLDER = "data_plane"
HELD_BY_PARTS = (
    {"controller_state.pkl", "metadata.json"},
    {"manifest.json", DATA_PLANE_FOLDER},
    {SNAPSHOTS_FOLDER},
    {"training_info.json"},
)
"""What a data plane, a snapshot or an anchor holds, and a checkpoint directory does not."""
UNPUBLISHED = ("tmp_snapshot_", "trash_snapshot_")
"""How the names of what is no snapshot yet, or no more, begin."""
STRAYS_TOLD = 3


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to judge. `path` is absolute; `anchor` is the anchor's path where the target is or lies in one."""

    kind: TargetKind
    path: str
    anchor: str | None = None


def absolute(path: str) -> str:
    """A path as the store takes it: the one that the system would open, with the names that were given as far as they lead there.

    Raises:
        UsageError: it is empty: most often a variable of a script that is not set, never the working directory.
        NothingThereError: a `..` follows what is no directory, or it is relative and the working directory was deleted.
    """
    if not path:
        raise UsageError(
            "an empty path names nothing", hint="is a variable of the script not set? `.` is this directory"
        )
    try:
        return os.path.abspath(_as_the_system_goes(path))  # noqa: PTH100 - paths are str behind the ports
    except FileNotFoundError:
        raise NothingThereError(
            f"the working directory is gone, so `{safe(path)}` means nothing",
            hint="change into a directory that exists",
        ) from None


def _as_the_system_goes(path: str) -> str:
    """A path in which no `..` follows a symbolic link: there it means the folder above where the link leads, which no text shows.

    A link that the path ends with, or has behind its last `..`, stays one.
    """
    names = path.split("/")
    if ".." not in names:
        return path
    behind = len(names) - names[::-1].index("..")
    turn = "/".join(names[:behind])
    if not path.startswith("/"):
        os.getcwd()  # noqa: PTH109 - one that was deleted is the reason for all that follows
    _demand_way(path, turn)
    real = os.path.realpath(turn)
    if real == os.path.realpath(os.path.abspath(turn)):  # noqa: PTH100 - paths are str behind the ports
        return path
    return os.path.join(real, *names[behind:])  # noqa: PTH118 - paths are str behind the ports


def _demand_way(path: str, turn: str) -> None:
    """Every `..` of `turn`, the beginning of `path`, goes up from a directory that is there. Raises NothingThereError."""
    try:
        os.stat(turn)  # noqa: PTH116 - paths are str behind the ports
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "is no directory" if isinstance(error, NotADirectoryError) else "is not there"
        ways = ["/".join(turn.split("/")[:end]) for end, name in enumerate(turn.split("/")) if name == ".." and end]
        first = next((way for way in ways if way and not os.path.isdir(way)), turn)  # noqa: PTH112 - as above
        raise NothingThereError(
            f"no such path: `{safe(path)}`, since `{safe(first)}` {what}", hint="`..` leads up from a directory only"
        ) from None
    except OSError:
        return  # whoever uses the path says why it cannot


def input_file(reader: SnapshotReader, path: str, option: str, takes: str, hint: str) -> str:
    """The absolute path of a file that an option names, which may not be there.

    Raises:
        UsageError: it is there and no regular file: nothing else is opened, since it may never end.
    """
    where = absolute(path)
    kind = reader.kind_of(where)
    if kind == "directory":
        raise UsageError(f"`{safe(path)}` is a directory, and `{option}` takes {takes}", hint=hint)
    if kind not in {"file", None}:
        raise UsageError(
            f"`{safe(path)}` is {KIND_WORDS[kind]}, and `{option}` takes {takes}",
            hint="give a regular file, by its own name: what comes through a pipe has to be written to one first",
        )
    return where


def find_targets(reader: SnapshotReader, path: str) -> tuple[Target, ...]:
    """Everything that an absolute PATH asks to judge; the snapshots of an anchor come before the anchor itself.

    Raises:
        NothingThereError: there is nothing, or nothing that could be judged.
        UsageError: it is something else.
    """
    if is_pack(reader, path):
        return _packed(reader, path)
    kind = reader.kind_of(path)
    name = path.rpartition("/")[2]
    if kind is None:
        raise NothingThereError(f"no such path: `{safe(path)}`", hint=EXPECTED)
    if kind == "symlink" and snapshot_number(name) is None:
        return _linked(reader, path)
    if kind not in {"directory", "symlink"}:
        raise UsageError(f"`{safe(path)}` is no directory and no packed snapshot", hint=EXPECTED)
    if any(pattern.match(name) for pattern in (SNAPSHOT_NAME, TMP_SNAPSHOT_NAME, TRASH_SNAPSHOT_NAME)):
        return (snapshot_target(path),)
    entries = {entry.path: entry.kind for entry in reader.list_tree(path, max_depth=1)}
    if name == DATA_PLANE_FOLDER or {"controller_state.pkl", "metadata.json"} <= entries.keys():
        return (Target("data_plane", path),)
    if is_anchor_name(name) or SNAPSHOTS_FOLDER in entries or "training_info.json" in entries:
        return anchor_targets(reader, path)
    if name == SNAPSHOTS_FOLDER:
        return _demand(snapshots_in(reader, path), path, strays_among(reader.list_tree(path, max_depth=1)))
    if "manifest.json" in entries and DATA_PLANE_FOLDER in entries:
        return (snapshot_target(path),)
    return _whole(reader, path, entries)


def _linked(reader: SnapshotReader, path: str) -> tuple[Target, ...]:
    """What a symbolic link leads to, if that is a checkpoint directory; no part of one may be a link.

    Raises:
        UsageError: it is or leads to something else.
    """
    is_part = is_anchor_name(path.rpartition("/")[2]) or path.endswith(
        (f"/{DATA_PLANE_FOLDER}", f"/{SNAPSHOTS_FOLDER}")
    )
    if not is_part and reader.kind_of(f"{path}/.") == "directory":
        entries = {entry.path: entry.kind for entry in reader.list_tree(f"{path}/.", max_depth=1)}
        if not any(held <= entries.keys() for held in HELD_BY_PARTS):
            return _whole(reader, path, entries)
    raise UsageError(
        f"`{safe(path)}` is a symbolic link, and only one to a checkpoint directory is followed",
        hint="give the path that it points to",
    )


def _whole(reader: SnapshotReader, path: str, entries: Mapping[str, str]) -> tuple[Target, ...]:
    """The anchors of a checkpoint directory, which holds `entries`. Raises NothingThereError."""
    anchors = [f"{path}/{entry}" for entry in sorted(entries, key=_anchor_order) if _is_anchor(entry)]
    packs = tuple(entry for entry, kind in entries.items() if kind == "file" and entry.endswith(PACK_SUFFIXES))
    return _demand(tuple(target for anchor in anchors for target in anchor_targets(reader, anchor)), path, packs=packs)


def snapshot_target(path: str) -> Target:
    """A snapshot as a target, with the anchor that its place names."""
    folder, _, _ = path.rpartition("/")
    anchor, _, parent = folder.rpartition("/")
    is_in_anchor = parent == SNAPSHOTS_FOLDER and is_anchor_name(anchor.rpartition("/")[2])
    return Target("snapshot", path, anchor if is_in_anchor else None)


def anchor_targets(reader: SnapshotReader, path: str) -> tuple[Target, ...]:
    """The published snapshots of an anchor, then the anchor itself, which tells where they cannot be looked for.

    An anchor is what bears the name of one, whatever it is: a link in its place must not go unseen. Behind it nothing is read.
    """
    folder = f"{path}/{SNAPSHOTS_FOLDER}"
    snapshots: tuple[Target, ...] = ()
    with suppress(StorageError):
        if reader.kind_of(path) in {"directory", None} and reader.kind_of(folder) == "directory":
            snapshots = snapshots_in(reader, folder)
    return (*snapshots, Target("anchor", path, path))


def snapshots_in(reader: SnapshotReader, folder: str) -> tuple[Target, ...]:
    """The published snapshots in a folder, by number; unpublished ones are reported with their anchor, not judged."""
    names = [
        (number, entry.path)
        for entry in reader.list_tree(folder, max_depth=1)
        if (number := snapshot_number(entry.path)) is not None and entry.kind in {"directory", "symlink"}
    ]
    return tuple(snapshot_target(f"{folder}/{name}") for _, name in sorted(names))


def strays_among(entries: Iterable[TreeEntry]) -> tuple[str, ...]:
    """Of the names beside snapshots the directories that are none, whatever they are called and hold: nothing looks at them."""
    return tuple(
        entry.path
        for entry in entries
        if entry.kind in {"directory", "symlink"}
        and snapshot_number(entry.path) is None
        and not entry.path.startswith(UNPUBLISHED)
    )


def is_anchor_name(name: str) -> bool:
    """Whether a directory of this name is an anchor, or one in the making."""
    bare = name.removeprefix("tmp_").removeprefix("old_")
    return name == BOOTSTRAP_FOLDER or step_number(bare) is not None


def is_pack(reader: SnapshotReader, path: str) -> bool:
    """Whether a path is a packed snapshot: a file that is named like one or begins like one. Raises StorageError."""
    if isinstance(reader, PackReader) and reader.is_open_pack(path):
        return True
    if reader.kind_of(path) != "file":
        return False
    if path.endswith(PACK_SUFFIXES):
        return True
    with reader.open_source(path) as source:
        return source.read_at(0, len(MAGICS[0])) in MAGICS


def _packed(reader: SnapshotReader, path: str) -> tuple[Target, ...]:
    """The snapshots in a pack, then the pack itself, which is judged by what reading them brought to light.

    Raises:
        NothingThereError: no snapshot is in it.
        UsageError: it is a bundle, or this reader does not look into packs.
    """
    if not isinstance(reader, PackReader):
        hint = "`ckptctl validate` reads it; for everything else unpack it: `tar --zstd -xf FILE`"
        raise UsageError(f"`{safe(path)}` is a packed snapshot, which this command does not read", hint=hint)
    part = reader.pack_at(path)
    if part.value is None:
        return (Target("pack", path),)
    if part.value.is_bundle:
        raise UsageError(
            f"`{safe(path)}` is a support bundle, not a packed snapshot: it holds metadata only, and nothing can be proved of it",
            hint="read it with `tar --zstd -xf FILE`; `report.json` in it is what `ckptctl validate` said of the snapshot",
        )
    entries = reader.list_tree(path)
    folders = [entry.path for entry in entries if entry.kind == "directory"]
    found = [folder for folder in folders if SNAPSHOT_NAME.match(folder.rpartition("/")[2])]
    if not found:
        names = {entry.path for entry in entries}
        marks = ("manifest.json", DATA_PLANE_FOLDER)
        found = [
            folder
            for folder in ("", *folders)
            if all((f"{folder}/{mark}" if folder else mark) in names for mark in marks)
        ]
    targets = tuple(snapshot_target(f"{path}/{folder}".rstrip("/")) for folder in found)
    if not targets:
        raise NothingThereError(f"no snapshot is packed in `{safe(path)}`", hint=EXPECTED)
    return (*targets, Target("pack", path))


def _is_anchor(name: str) -> bool:
    return name == BOOTSTRAP_FOLDER or step_number(name) is not None


def _anchor_order(name: str) -> tuple[int, str]:
    return step_number(name) or 0, name


def _demand(
    targets: tuple[Target, ...], path: str, strays: tuple[str, ...] = (), *, packs: tuple[str, ...] = ()
) -> tuple[Target, ...]:
    """The targets, if there are any; else what lies there instead. Raises NothingThereError."""
    if targets:
        return targets
    told, hint = "", EXPECTED
    if strays:
        named = ", ".join(f"`{safe(name)}`" for name in strays[:STRAYS_TOLD])
        told = f" ({named} there: no name of a snapshot, which is `snapshot_` and digits, up to {MAX_SNAPSHOT_NUMBER})"
    elif packs:
        there = "one packed snapshot lies" if len(packs) == 1 else f"{len(packs)} packed snapshots lie"
        suffix = next(suffix for suffix in PACK_SUFFIXES if packs[0].endswith(suffix))
        told = f"; {there} there, and a pack is judged when it is named"
        hint = f"name the packs: `ckptctl validate {quote(safe(path))}/*{suffix}`"
    raise NothingThereError(
        f"nothing to validate in `{safe(path)}`: it holds no anchor and no snapshot{told}", hint=hint
    )
