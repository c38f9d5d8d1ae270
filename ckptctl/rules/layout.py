"""Which names belong into a snapshot, an anchor and a data plane, and what is wrong with the others (invariant 9).

The layout is exact where the manifests that list files could be read, and goes by patterns where they could not (another rule
says so) or were not read (level quick). What lies in an anchor besides our files is the trainer's business and not judged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ckptctl.domain.evidence import AgentEvidence, Evidence, ModelEvidence, ResourcesEvidence, TreeEntry
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import CHECKSUMS_FILE, SNAPSHOTS_FOLDER, participant_folder
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.schemas import foreign_marker
from ckptctl.domain.wrong_kind import LINKED_HINT
from ckptctl.rules._model import CannotRunError

KIND_WORDS: Mapping[str, str] = {
    "file": "a file",
    "directory": "a directory",
    "symlink": "a symbolic link",
    "fifo": "a named pipe",
    "socket": "a socket",
    "device": "a device",
    "unknown": "a special file",
}
REQUIRED_FILES = (
    "manifest.json",
    "config.yaml",
    "train_dataloader.pt",
    "data_plane/metadata.json",
    "replay_buffer_metadata.pt",
    "rollout_recovery.pt",
)
_OPTIONAL_FILES = (
    "replacement_reserve.pt",
    CHECKSUMS_FILE,
    "replay_buffer.pt",  # MAN008 speaks of it
    "COMMITTED",  # MAN004 does
)
_GYM_FOLDERS = ("agent", "model-ledger", "resources")
_DATA_PLANE_FILES = ("metadata.json", "controller_state.pkl", "simple_storage/storage_unit_info.json")
_UNIT = re.compile(r"simple_storage/su_[0-9]+_[^/]+\.pkl\Z")
_BLOB = re.compile(r"(simple_storage/su_[0-9]+_[^/]+\.pkl)\.blobs/[0-9a-f]{32}\.bin\Z")
_PATTERNS = {
    "agent": re.compile(r"(agent-part-[0-9]{6}\.tar|[^/]+\.jsonl|manifest\.json)\Z"),
    "model-ledger": re.compile(r"(lineage-part-[0-9]{6}\.tar|[^/]+\.jsonl|manifest\.json)\Z"),
    "resources": re.compile(r"[^/]+\.json\Z"),
}
_Participant = AgentEvidence | ModelEvidence | ResourcesEvidence
_SET_ID, _OTHERS_WRITE, _OWNER_READ, _OWNER_ENTER = 0o6000, 0o002, 0o400, 0o100


def entries_by_path(evidence: Evidence) -> dict[str, TreeEntry]:
    """The tree by path."""
    return {entry.path: entry for entry in evidence.tree}


def demand_tree(evidence: Evidence) -> None:
    """Refuse to judge names that could not be listed. Raises CannotRunError."""
    if evidence.root_kind != "directory":
        whose = "MAN001" if evidence.kind == "snapshot" else "ANC003"
        raise CannotRunError("it is no directory: nothing behind it was read", because=(whose,))
    if evidence.tree_problem:
        raise CannotRunError(evidence.tree_problem)


def top_names(evidence: Evidence) -> frozenset[str]:
    """The names directly under the target."""
    return frozenset(entry.path for entry in evidence.tree if "/" not in entry.path)


def is_our_layout(evidence: Evidence) -> bool:
    """Whether the snapshot is not recognisably of another schema, so that our file list may be held against it."""
    found = evidence.manifest.schema_found
    is_other_number = isinstance(found, int) and not isinstance(found, bool) and found not in {3, 4}
    return not is_other_number and foreign_marker(top_names(evidence)) is None


def check_layout(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 9: links are errors, everything else is a warning."""
    demand_tree(evidence)
    layout = _layout_of(evidence)
    passed_over: set[str] = set()
    names: dict[tuple[str, str], str] = {}
    for entry in evidence.tree:
        path = entry.path
        folder, _, name = path.rpartition("/")
        if evidence.kind == "anchor" and "/" in path and not path.startswith("data_plane"):
            continue
        twin = names.setdefault((folder, _folded(name)), path)
        if twin != path:
            yield _warning(
                path, f"`{path}` and `{twin}` differ only in case or Unicode form: elsewhere they are one file"
            )
        if entry.kind == "symlink":
            yield Violation(
                f"`{path}` is a symbolic link: it is not followed",
                path,
                expected="a directory" if path == SNAPSHOTS_FOLDER else "a file",
                actual="a symbolic link",
                hint=LINKED_HINT if path == SNAPSHOTS_FOLDER else "",
            )
            continue
        if folder in passed_over:
            if entry.kind == "directory":
                passed_over.add(path)
            continue
        problem = layout.problem(entry)
        if problem is not None:
            if entry.kind == "directory":
                passed_over.add(path)
            yield _warning(path, f"`{path}` {problem}")
        elif entry.kind not in {"file", "directory"}:
            yield _warning(path, f"`{path}` is {KIND_WORDS[entry.kind]}: it is not opened")
        else:
            problem = _mode_problem(entry)
            if problem is not None:
                yield _warning(path, f"`{path}` {problem}", actual=f"mode {entry.mode:04o}")


def _warning(path: str, message: str, actual: str = "") -> Violation:
    return Violation(message, path, actual=actual, warning=True)


def _folded(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _mode_problem(entry: TreeEntry) -> str | None:
    if entry.mode & _SET_ID and entry.kind == "file":
        return "has a set-id bit"
    if entry.mode & _OTHERS_WRITE:
        return "can be changed by everybody"
    if not entry.mode & _OWNER_READ or (entry.kind == "directory" and not entry.mode & _OWNER_ENTER):
        return "cannot be read by its owner"
    return None


@dataclass(slots=True)
class _Layout:
    """What may lie where. `listed`: folder -> the manifest that lists its files; `loose`: folder -> pattern; `free`: anything."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    listed: dict[str, str] = field(default_factory=dict)
    loose: dict[str, re.Pattern[str]] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    data_plane: str = "data_plane/"
    is_anchor: bool = False

    def problem(self, entry: TreeEntry) -> str | None:
        """What a name that does not belong is, or None."""
        path = entry.path
        folder, _, name = path.rpartition("/")
        if self._belongs(entry, folder, name):
            return None
        if name.startswith(".") or name.endswith(".tmp") or path == "data_plane.old":
            return "is a leftover of an interrupted write"
        listing = self.listed.get(folder)
        return f"is not listed in `{listing}`" if listing else "is not part of the format"

    def _belongs(self, entry: TreeEntry, folder: str, name: str) -> bool:
        path = entry.path
        if self.free and path.startswith(self.free):
            return True
        if path.startswith(self.data_plane) and _belongs_to_data_plane(entry, path[len(self.data_plane) :]):
            return True
        if self.is_anchor and not folder:
            return not path.startswith("data_plane.") and not path.endswith(".tmp")
        if entry.kind == "directory":
            return path in self.folders
        return path in self.files or (folder in self.loose and self.loose[folder].match(name) is not None)


def _belongs_to_data_plane(entry: TreeEntry, path: str) -> bool:
    if entry.kind == "directory":
        return path == "simple_storage" or (
            path.endswith(".pkl.blobs") and _UNIT.match(path[: -len(".blobs")]) is not None
        )
    return path in _DATA_PLANE_FILES or _UNIT.match(path) is not None or _BLOB.match(path) is not None


def _layout_of(evidence: Evidence) -> _Layout:
    if evidence.kind == "data_plane":
        return _Layout(data_plane="")
    layout = _Layout(
        files={*REQUIRED_FILES, *_OPTIONAL_FILES}, folders={"data_plane"}, is_anchor=evidence.kind == "anchor"
    )
    if not evidence.has_gym:
        return layout
    layout.folders.update(_GYM_FOLDERS)
    manifest = evidence.manifest.manifest
    if manifest is None or manifest.gym_checkpoint is None:
        layout.free = tuple(
            f"{folder}/" for folder in _GYM_FOLDERS
        )  # MAN005 says that the list of participants is unusable
        return layout
    for entry in manifest.gym_checkpoint.participants:
        folder = participant_folder(entry.participant.component, entry.participant.participant_name)
        layout.folders.add(folder)
        layout.loose[folder] = _PATTERNS[folder.split("/", 1)[0]]
    participants: tuple[_Participant, ...] = (*evidence.agents, *evidence.models, *evidence.resources)
    for participant in participants:
        _add_participant(layout, participant)
    return layout


def _add_participant(layout: _Layout, participant: _Participant) -> None:
    folder = participant.folder
    if isinstance(participant, ModelEvidence) and participant.is_foreign:
        layout.free = (*layout.free, f"{folder}/")
        return
    names: list[str] = []
    references: list[ArtifactReference] = []
    if isinstance(participant, ResourcesEvidence):
        if participant.manifest.value is None:
            return
        names += participant.manifest.value.files
    elif isinstance(participant, AgentEvidence):
        kept = participant.manifest.value
        if kept is None:
            return
        names += [archive.name for archive in kept.archives]
        references += [kept.record_index, kept.continuation_index]
    else:
        stored = participant.manifest.value
        if stored is None:
            return
        names += [archive.name for archive in stored.archives]
        references += [stored.lineage_index, stored.storage_reference_index]
    layout.loose.pop(folder, None)
    layout.listed[folder] = participant.manifest.path
    layout.files.update(f"{folder}/{name}" for name in ("manifest.json", *names))
    layout.files.update(reference.relative_path for reference in references)
