"""Loads what is known of anchors: their small files, their snapshots by manifest, and what lies beside them.

Weights are never opened, nor is anything outside the checkpoint directory. A snapshot here is a SiblingSnapshot: its
manifest and no more, which is what upstream's selector looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from ckptctl.domain.checksums import FileDigest, PublicationFacts
from ckptctl.domain.evidence import AnchorEvidence, EntryKind, ManifestReading, Part, SiblingSnapshot, TreeEntry
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, SNAPSHOTS_FOLDER, snapshot_number, step_number
from ckptctl.domain.limits import Limits
from ckptctl.domain.memory_room import UNBOUNDED, MemoryRoom
from ckptctl.domain.schemas import OLD_MARKERS
from ckptctl.errors import StorageError
from ckptctl.formats.anchor_files import decode_bootstrap, decode_training_info
from ckptctl.formats.config_file import decode_yaml
from ckptctl.formats.snapshot_manifest import read_manifest
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.load_data_plane import missing
from ckptctl.workflows.load_publications import Identity, PublicationBook
from ckptctl.workflows.read_parts import PartReader, is_of_the_system
from ckptctl.workflows.targets import strays_among

MANIFEST_FILE, TRAINING_INFO_FILE, CONFIG_FILE = "manifest.json", "training_info.json", "config.yaml"
MEND = "fix its permissions, or the file system"
LEGACY_BUFFER, REPLAY_FILE = "replay_buffer.pt", "replay_buffer_metadata.pt"


@dataclass(slots=True)
class AnchorLoader:
    """Anchors of one validation, each listed and read once however many of its snapshots are judged."""

    reader: SnapshotReader
    limits: Limits
    room: MemoryRoom = UNBOUNDED
    verdicts: dict[str, bool | None] = field(default_factory=dict)
    """Path of a snapshot -> whether it was found valid (None: could not be told); filled by the workflow as it goes."""
    readings: dict[str, ManifestReading] = field(default_factory=dict)
    """Path of a snapshot -> its manifest, so that it is read once."""
    _digests: dict[str, FileDigest] = field(default_factory=dict)
    _books: dict[str, PublicationBook] = field(default_factory=dict)
    _anchors: dict[str, AnchorEvidence] = field(default_factory=dict)
    _siblings: dict[str, tuple[SiblingSnapshot, ...]] = field(default_factory=dict)
    _readers: dict[str, PartReader] = field(default_factory=dict)

    def load(self, path: str) -> AnchorEvidence:
        """The anchor at `path`, with what is known of its snapshots' validity so far."""
        if path not in self._anchors:
            self._anchors[path] = self._load(path)
        anchor = self._anchors[path]
        folder = f"{path}/{SNAPSHOTS_FOLDER}"
        known = tuple(replace(item, is_valid=self.verdicts.get(f"{folder}/{item.name}")) for item in anchor.snapshots)
        return replace(anchor, snapshots=known)

    def parts_of(self, path: str) -> PartReader:
        """The reader of an anchor's own files: its top names, and what is in `data_plane/`."""
        if path not in self._readers:
            entries: dict[str, TreeEntry] = {}
            problem, storage_problems = "", []
            try:
                if self.root_kind(path) == "directory":
                    entries = {entry.path: entry for entry in self.reader.list_tree(path, max_depth=1)}
                for folder in ("data_plane", "data_plane.tmp", "data_plane.old"):
                    if folder in entries and entries[folder].kind == "directory":
                        for entry in self.reader.list_tree(f"{path}/{folder}"):
                            inner = f"{folder}/{entry.path}"
                            entries[inner] = replace(entry, path=inner)
            except StorageError as error:
                problem = str(error)
                storage_problems = [problem] if is_of_the_system(error) else []
            except FileNotFoundError:
                problem = f"`{path}` was deleted while it was being read"
            self._readers[path] = PartReader(
                self.reader,
                path,
                self.limits,
                dict(sorted(entries.items())),
                problem,
                room=self.room,
                storage_problems=storage_problems,
            )
        return self._readers[path]

    def root_kind(self, path: str) -> EntryKind:
        """What bears an anchor's name; a directory where there is nothing, which a listing tells better. Raises StorageError."""
        kind = self.reader.kind_of(path) or "directory"
        return cast("EntryKind", kind)

    def _load(self, path: str) -> AnchorEvidence:
        name = path.rpartition("/")[2]
        number = step_number(name)
        kind = "step" if number is not None else "bootstrap" if name == BOOTSTRAP_FOLDER else "other"
        root_kind = self.root_kind(path)
        parts = self.parts_of(path)
        limits = self.limits
        names = set(parts.names_in(""))
        found = self._listed(f"{path}/{SNAPSHOTS_FOLDER}") if SNAPSHOTS_FOLDER in names else ()
        beside = {entry.path for entry in found}
        strays = tuple(f"{SNAPSHOTS_FOLDER}/{name}" for name in strays_among(found))
        is_step = kind != "bootstrap"
        return AnchorEvidence(
            name=name,
            kind=kind,  # type: ignore[arg-type]  # mypy widens the conditional's literals
            number=number or 0,
            training_info=parts.read_document(
                TRAINING_INFO_FILE, lambda data: decode_training_info(data, limits), limits.json_document_bytes
            )
            if is_step
            else missing(TRAINING_INFO_FILE),
            bootstrap=missing(MANIFEST_FILE)
            if is_step
            else parts.read_document(
                MANIFEST_FILE, lambda data: decode_bootstrap(data, limits), limits.json_document_bytes
            ),
            config=parts.read_document(CONFIG_FILE, lambda data: decode_yaml(data, limits), limits.yaml_bytes),
            has_policy="policy" in names and parts.entries["policy"].kind == "directory",
            snapshots=self.siblings(path) if root_kind == "directory" else (),
            snapshots_problem=self._unlisted_snapshots(path, parts),
            other_snapshots=self._others(path),
            garbage=(*self._garbage(path, names, beside), *strays),
            foreign_markers=tuple(sorted(beside.intersection(OLD_MARKERS))),
            has_legacy_buffer=LEGACY_BUFFER in names and REPLAY_FILE not in names,
            root_kind=root_kind,
        )

    def siblings(self, path: str) -> tuple[SiblingSnapshot, ...]:
        """The published snapshots of the anchor at `path`, by number."""
        if path not in self._siblings:
            folder = f"{path}/{SNAPSHOTS_FOLDER}"
            found = [
                self._sibling(path, entry, number)
                for entry in self._listed(folder)
                if (number := snapshot_number(entry.path)) is not None and entry.kind in {"directory", "symlink"}
            ]
            self._siblings[path] = tuple(sorted(found, key=lambda item: (item.number, item.name)))
        return self._siblings[path]

    def _sibling(self, anchor: str, entry: TreeEntry, number: int) -> SiblingSnapshot:
        bare = SiblingSnapshot(anchor.rpartition("/")[2], entry.path, number, has_manifest=False)
        if entry.kind == "symlink":
            return replace(bare, problem="is a symbolic link")
        reading = self.read_manifest_of(f"{anchor}/{SNAPSHOTS_FOLDER}/{entry.path}")
        if reading.part.state in {"unreadable", "unsupported"}:
            return replace(bare, problem=f"cannot be read now: {reading.part.reason}; {MEND}", is_unreadable=True)
        if reading.raw is None:
            return replace(bare, problem=f"`{MANIFEST_FILE}`: {reading.part.reason}")
        manifest = reading.manifest
        raw_gym = reading.raw.get("gym_checkpoint")
        checkpoint_id = raw_gym.get("checkpoint_id") if isinstance(raw_gym, Mapping) else None
        return SiblingSnapshot(
            anchor=bare.anchor,
            name=bare.name,
            number=number,
            has_manifest=True,
            checkpoint_id=checkpoint_id if isinstance(checkpoint_id, str) else None,
            schema_found=reading.schema_found,
            base_train_step=manifest.base_train_step if manifest else None,
            trainer_version=manifest.trainer_version if manifest else None,
            bootstrap_fingerprint=manifest.bootstrap_fingerprint if manifest else None,
            has_gym=reading.has_gym,
            problem=f"`{MANIFEST_FILE}`: {reading.counter_defects[0].message}" if reading.counter_defects else "",
        )

    def read_manifest_of(self, path: str) -> ManifestReading:
        """A snapshot's manifest, unless it was read already."""
        if path not in self.readings:
            entries, problem = self._look(path)
            known = {entry.path: entry for entry in entries if entry.path == MANIFEST_FILE}
            parts = PartReader(self.reader, path, self.limits, known, problem, room=self.room, with_blake3=True)
            self.manifest_of(path, parts)
        return self.readings[path]

    def manifest_of(self, path: str, parts: PartReader) -> ManifestReading:
        """A snapshot's manifest; what was read of it is noted in `parts`, whoever read it."""
        if path not in self.readings:
            self.readings[path] = manifest_from(parts)
            if MANIFEST_FILE in parts.digests:
                self._digests[path] = parts.digests[MANIFEST_FILE]
        reading = self.readings[path]
        if path in self._digests:
            parts.digests[MANIFEST_FILE] = self._digests[path]
            parts.looked_at[MANIFEST_FILE] = reading.part.size_bytes
        return reading

    def publication_of(self, path: str, found: Identity) -> PublicationFacts:
        """What the journal of its checkpoint directory says of a published snapshot, which lies in an anchor."""
        checkpoint_dir, anchor, folder, name = path.rsplit("/", 3)
        if checkpoint_dir not in self._books:
            self._books[checkpoint_dir] = PublicationBook(self.reader, checkpoint_dir, self.limits, self.room)
        return self._books[checkpoint_dir].find(f"{anchor}/{folder}/{name}", found)

    def anchors_beside(self, checkpoint_dir: str) -> tuple[str, ...]:
        """Paths of the anchors of a checkpoint directory: bootstrap, then steps by number."""
        names = [entry.path for entry in self._listed(checkpoint_dir) if entry.kind == "directory"]
        steps = sorted((number, name) for name in names if (number := step_number(name)) is not None)
        found = [BOOTSTRAP_FOLDER] if BOOTSTRAP_FOLDER in names else []
        return tuple(f"{checkpoint_dir}/{name}" for name in (*found, *(name for _, name in steps)))

    def _others(self, path: str) -> tuple[SiblingSnapshot, ...]:
        checkpoint_dir = path.rpartition("/")[0]
        return tuple(
            item for anchor in self.anchors_beside(checkpoint_dir) if anchor != path for item in self.siblings(anchor)
        )

    def _garbage(self, path: str, names: set[str], beside: set[str]) -> tuple[str, ...]:
        """Unfinished and half-deleted directories: of this anchor, and beside the newest one those that no anchor owns."""
        found = [
            f"{SNAPSHOTS_FOLDER}/{name}" for name in beside if name.startswith(("tmp_snapshot_", "trash_snapshot_"))
        ]
        found += [name for name in names if name == f"{MANIFEST_FILE}.tmp"]
        checkpoint_dir, _, own = path.rpartition("/")
        anchors = self.anchors_beside(checkpoint_dir)
        owned = {anchor.rpartition("/")[2] for anchor in anchors}
        for entry in self._listed(checkpoint_dir):
            prefix, _, rest = entry.path.partition("_")
            is_mine = rest == own or (rest not in owned and anchors[-1:] == (path,))
            if prefix in {"tmp", "old"} and step_number(rest) is not None and is_mine:
                found.append(f"../{entry.path}")
        return tuple(sorted(found))

    def _unlisted_snapshots(self, path: str, parts: PartReader) -> str:
        """Why nobody knows which snapshots there are: their folder, or the whole anchor, cannot be listed."""
        is_there = SNAPSHOTS_FOLDER in parts.entries
        problem = self._look(f"{path}/{SNAPSHOTS_FOLDER}" if is_there else path)[1]
        return f"{problem}; {MEND}" if problem else ""

    def _listed(self, path: str) -> tuple[TreeEntry, ...]:
        """The names directly in a directory; nothing where there is none or it cannot be listed."""
        return self._look(path)[0]

    def _look(self, path: str) -> tuple[tuple[TreeEntry, ...], str]:
        """The names directly in a directory, and why they cannot be told."""
        try:
            return self.reader.list_tree(path, max_depth=1), ""
        except FileNotFoundError:
            return (), ""
        except StorageError as error:
            return (), error.message


def manifest_from(parts: PartReader) -> ManifestReading:
    """The manifest of a snapshot; one that is not there or not read is a reading without content."""
    data = parts.read_raw(MANIFEST_FILE, parts.limits.json_document_bytes)
    if isinstance(data, Part):
        return ManifestReading(
            part=data, document_defects=data.defects if data.state == "damaged" and data.size_bytes else ()
        )
    return read_manifest(MANIFEST_FILE, data, parts.limits)
