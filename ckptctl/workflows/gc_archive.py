"""Packs what `gc` is about to delete: which items, under which name, and when a pack counts as one.

A pack is written under a name that says it is none yet, synced, read back and compared with the directory, byte by byte, and
only then renamed. A pack that is there already and holds the same is kept; one that holds something else is never overwritten:
the next free number is taken. Root of a pack is the checkpoint directory: beside the snapshot lie the small files of its anchor
that a snapshot is compared with, as they are, and an empty `policy/` where the anchor has one; weights are not packed.

What is deleted, and whether at all, was decided before (`planning.gc`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import zip_longest

from ckptctl.domain.amounts import plural
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.evidence import PackFacts, Part, TreeEntry
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, CONTROL_FOLDER, SNAPSHOTS_FOLDER
from ckptctl.domain.memory_room import MORE_MEMORY
from ckptctl.domain.retention import GcItem, snapshot_path, trashed_snapshot
from ckptctl.domain.safe_text import safe
from ckptctl.errors import StorageError, UsageError
from ckptctl.formats.pack import PackMember, pack_bytes
from ckptctl.ports import PackReader, SnapshotReader, SnapshotStore
from ckptctl.workflows.load_anchor import CONFIG_FILE, MANIFEST_FILE, TRAINING_INFO_FILE
from ckptctl.workflows.targets import is_anchor_name
from ckptctl.workflows.world import World

_TEMPORARY = "tmp_ckptctl_pack_"
_FOLDER_MODE = 0o755
_PIECE_BYTES = 1 << 20
_MOST_COPIES = 1000
_POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Archive:
    """Where packs go. `inside`: its path relative to the checkpoint directory when it lies in it, else empty."""

    folder: str
    store: SnapshotStore
    open_packs: Callable[[], AbstractContextManager[PackReader]]
    """A reader of the packs in the archive as they are now."""
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Packing:
    """What happens to one item before it goes. `path`: its pack, None when nothing is packed; `problem`: why it must stay."""

    reason: str
    path: str | None = None
    is_there: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Source:
    """One name of a pack and the file or directory that it comes from (None: a directory without content)."""

    name: str
    entry: TreeEntry
    path: str | None = None


def require_archive(archive: Archive) -> None:
    """Refuse a place where packs would be lost or taken for something else.

    Raises:
        UsageError: there is no such directory, or it belongs to a checkpoint.
        StorageError: it cannot be listed.
    """
    told = safe(archive.folder)
    if archive.inside:
        first = archive.inside.partition("/")[0]
        if first in {".", CONTROL_FOLDER} or is_anchor_name(first):
            raise UsageError(
                f"`--archive {told}`: packs there would be taken for a part of the checkpoint, or be deleted with it",
                hint="give a directory of its own, best on another file system",
            )
    if archive.store.kind_of(archive.folder) not in {None, "directory"}:
        raise UsageError(f"`--archive {told}`: that is no directory", hint="give a directory of its own for packs")
    try:
        archive.store.list_tree(archive.folder, max_depth=1)
    except FileNotFoundError:
        raise UsageError(
            f"`--archive {told}`: there is no such directory",
            hint=f"is its file system mounted? else `mkdir -p {told}` first: it is not made by itself",
        ) from None


class Packer:
    """The packing of one `gc`."""

    def __init__(self, world: World, checkpoint_dir: str, archive: Archive) -> None:
        self._world = world
        self._checkpoint_dir = checkpoint_dir
        self._archive = archive
        mine = sha256_hex(checkpoint_dir.encode("utf-8", "surrogateescape"))[:16]
        self._prefix = f"{_TEMPORARY}{mine}_"
        self._promised: dict[str, list[_Source]] = {}
        """Of a dry run: the packs that its earlier items would have become by then."""

    @property
    def folder(self) -> str:
        """Where packs go."""
        return self._archive.folder

    def clean(self) -> None:
        """Take away what an interrupted packing of this checkpoint directory left; the caller holds its lock."""
        for entry in self._archive.store.list_tree(self._archive.folder, max_depth=1):
            if entry.path.startswith(self._prefix):
                self._archive.store.remove_tree(f"{self._archive.folder}/{entry.path}")

    def foresee(self, item: GcItem) -> Packing:
        """What `plan` will say once the items that were foreseen before are packed."""
        found, place = self.plan(item), _place_of(item)
        if found.path is not None and not found.is_there and place is not None:
            self._promised[found.path] = self._sources(item, *place)
        return found

    def plan(self, item: GcItem) -> Packing:
        """What `pack` would do, by looking only."""
        place = _place_of(item)
        if place is None:
            return Packing("not packed: it never was a whole snapshot")
        if self._world.store.kind_of(f"{self._checkpoint_dir}/{item.path}") == "symlink":
            return Packing("not packed: it is a link, and what it points to stays")
        try:
            sources = self._sources(item, *place)
            for number in range(1, _MOST_COPIES):
                count = "" if number == 1 else f".{number}"
                path = f"{self._archive.folder}/{place[0]}.{place[1]}{count}.tar.zst"
                promised = self._promised.get(path)
                if promised is None and self._archive.store.kind_of(path) is None:
                    return Packing(f"packed as `{path}` first", path)
                if self._is_alike(promised, sources) or self._holds(path, sources, snapshot_path(*place)):
                    return Packing(f"already packed as `{path}`", path, is_there=True)
        except FileNotFoundError:
            return Packing("not packed: somebody else deleted it")
        except StorageError as error:
            return Packing("it stays: it cannot be packed", problem=error.message)
        return Packing("it stays: it cannot be packed", problem=f"{_MOST_COPIES} other packs have its name")

    def pack(self, item: GcItem, packing: Packing) -> None:
        """Write one pack, prove it, give it its name.

        Raises:
            StorageError: it could not be written or does not hold what it should; nothing is left of it.
        """
        place = _place_of(item)
        assert place is not None, "planned"
        assert packing.path is not None, "planned"
        temporary = f"{self._archive.folder}/{self._prefix}{place[0]}.{place[1]}"
        store = self._archive.store
        try:
            sources = self._sources(item, *place)
            store.write_stream(temporary, pack_bytes(self._members(sources)))
        except DefectError as error:
            raise StorageError(operation="pack", path=item.path, detail=str(error)) from error
        except FileNotFoundError as error:
            raise StorageError(operation="pack", path=item.path, detail="it was deleted while it was packed") from error
        if not self._holds(temporary, sources, None):
            store.remove_tree(temporary)
            detail = (
                "what was read back is not what was packed: either the snapshot changed or the archive cannot keep data"
            )
            raise StorageError(operation="pack", path=item.path, detail=detail)
        store.rename(temporary, packing.path)

    def _sources(self, item: GcItem, anchor: str, name: str) -> list[_Source]:
        """Everything that belongs into the pack, sorted. Raises FileNotFoundError, StorageError."""
        store, folder = self._world.store, f"{self._checkpoint_dir}/{item.path}"
        root = snapshot_path(anchor, name)
        found = [_folder(path) for path in (anchor, f"{anchor}/{SNAPSHOTS_FOLDER}", root)]
        for entry in store.list_tree(folder):
            if entry.kind not in {"file", "directory"}:
                detail = f"`{entry.path}` is a {entry.kind}, which a pack does not carry"
                hint = "take it away, or collect without `--archive`"
                raise StorageError(operation="pack", path=item.path, detail=detail, hint=hint)
            path = f"{folder}/{entry.path}" if entry.kind == "file" else None
            found.append(_Source(f"{root}/{entry.path}", entry, path))
        found.extend(self._of_anchor(anchor))
        most = self._world.limits.pack_members
        if len(found) > most:
            detail = f"it holds {plural(len(found), 'name')}, more than the {most} that are read back from a pack"
            raise StorageError(operation="pack", path=item.path, detail=detail, hint="collect without `--archive`")
        return sorted(found, key=lambda source: source.name)

    def _of_anchor(self, anchor: str) -> Iterator[_Source]:
        """The anchor's small files that snapshots are compared with, where they are plain files."""
        first = MANIFEST_FILE if anchor == BOOTSTRAP_FOLDER else TRAINING_INFO_FILE
        try:
            entries = self._world.store.list_tree(f"{self._checkpoint_dir}/{anchor}", max_depth=1)
        except FileNotFoundError:
            return  # of a snapshot in the trash the anchor may be gone
        most = self._world.limits.json_document_bytes
        for entry in entries:
            if entry.path in {first, CONFIG_FILE} and entry.kind == "file" and entry.size_bytes <= most:
                path = f"{self._checkpoint_dir}/{anchor}/{entry.path}"
                yield _Source(f"{anchor}/{entry.path}", entry, path)
            elif entry.path == _POLICY and entry.kind == "directory":
                yield _folder(f"{anchor}/{_POLICY}")

    def _members(self, sources: list[_Source]) -> Iterator[PackMember]:
        done, total = 0, sum(source.entry.size_bytes for source in sources)
        for source in sources:
            entry = source.entry
            pieces = None if source.path is None else _pieces(self._world.store, source.path)
            yield PackMember(source.name, entry.mode, entry.size_bytes, pieces)
            done += entry.size_bytes
            self._world.progress.advance(done, total, "bytes")

    def _holds(self, path: str, sources: list[_Source], root: str | None) -> bool:
        """Whether a pack holds the sources, byte by byte, and nothing else (with `root`: nothing else below it)."""
        with self._archive.open_packs() as packs:
            if self._archive.store.kind_of(path) != "file" or self._is_no_pack(packs.pack_at(path)):
                return False
            there = {entry.path: entry for entry in packs.list_tree(path)}
            wanted = {source.name: source for source in sources}
            more = there.keys() - wanted.keys()
            if any(root is None or name.startswith(f"{root}/") for name in more):
                return False
            try:
                is_same = all(
                    self._is_same(source, there.get(source.name), packs, f"{path}/{source.name}") for source in sources
                )
            except StorageError:
                if packs.pack_at(path).value is None:
                    return False  # a frame of it is damaged
                raise
            return is_same and packs.pack_at(path, whole=True).value is not None

    def _is_alike(self, promised: list[_Source] | None, sources: list[_Source]) -> bool:
        """Whether a pack that would be there by then would hold the sources."""
        if promised is None or len(promised) != len(sources):
            return False
        store = self._world.store
        return all(
            one.name == other.name
            and (one.path is None) == (other.path is None)
            and self._is_same(one, other.entry, store, other.path)
            for one, other in zip(promised, sources, strict=True)
        )

    def _is_no_pack(self, found: Part[PackFacts]) -> bool:
        """Whether a file is no pack. Raises StorageError when there was no room in memory to tell."""
        if found.state == "unsupported" and self._world.room.refusals:
            raise StorageError(operation="read", path=found.path, detail=found.reason, hint=MORE_MEMORY)
        return found.value is None

    def _is_same(self, source: _Source, found: TreeEntry | None, reader: SnapshotReader, path: str | None) -> bool:
        wanted = source.entry
        if found is None or (found.kind, found.mode, found.size_bytes) != (wanted.kind, wanted.mode, wanted.size_bytes):
            return False
        if source.path is None or path is None:
            return source.path is None
        ours, theirs = _pieces(self._world.store, source.path), _pieces(reader, path)
        return all(one == other for one, other in zip_longest(ours, theirs))


def _place_of(item: GcItem) -> tuple[str, str] | None:
    """Anchor and name of the snapshot that an item is, or was before it came into the trash; None for what is none."""
    if item.kind == "snapshot":
        anchor, _, rest = item.path.partition("/")
        return anchor, rest.rpartition("/")[2]
    found = trashed_snapshot(item.path.rpartition("/")[2]) if item.kind == "trashed" else None
    return None if found is None else found[1:]


def _folder(name: str) -> _Source:
    return _Source(name, TreeEntry(name, "directory", mode=_FOLDER_MODE))


def _pieces(reader: SnapshotReader, path: str) -> Iterator[bytes]:
    with reader.open_source(path) as source:
        offset = 0
        while offset < source.size_bytes:
            piece = source.read_at(offset, _PIECE_BYTES)
            if not piece:
                return  # it is shorter than it was; whoever counts says so
            yield piece
            offset += len(piece)
