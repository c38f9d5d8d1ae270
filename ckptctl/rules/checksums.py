"""`ckptctl-checksums.json` against the snapshot that it was published with. These rules are ckptctl's own (design section 3):
no invariant of the systems around it stands behind them.

A snapshot without the file is judged by its own digests alone, unless the journal of the checkpoint directory knows that it
had one. Which files were digested depends on the level; that every byte was, at level full, is `workflows.checksum_pass`'s
business, and the coverage of the report tells it. How the file itself is written, and that its own digest is right, is
`formats.checksums_file`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.checksums import ChecksumsFile, Publication
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.rules._model import CannotRunError, NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules.layout import KIND_WORDS, demand_tree, entries_by_path
from ckptctl.rules.manifest import MANIFEST_FILE

_MALFORMED = "SUM001"
_ABSENT = "the snapshot has no checksum file"
_JOURNAL_HINT = (
    "The snapshot may be sound, it is the journal that cannot be read: mend what is named there, or move it away if it is no "
    "journal, and validate again."
)
_NO_ID = "a checkpoint without an id"
_PUBLISHED = "as published"


def check_form(evidence: Evidence) -> Iterator[Violation]:
    """The file is one of ours, in its one byte form, with its own digest."""
    part = evidence.checksums
    if part.state in {"missing", "not_read"}:
        raise NotAskedError(_ABSENT if part.state == "missing" else part.reason)
    if part.state in {"unreadable", "unsupported"}:
        raise CannotRunError(f"`{part.path}`: {part.reason}", artifact=part.path)
    for defect in part.defects:
        yield Violation(f"`{part.path}` {defect.message}", part.path, defect.location, defect.expected, defect.actual)


def check_identity(evidence: Evidence) -> Iterator[Violation]:
    """The file belongs to this snapshot."""
    listed = _listed(evidence)
    manifest = evidence.manifest.manifest
    if manifest is None:
        raise NotAskedError("the manifest cannot be read")
    gym = manifest.gym_checkpoint
    checkpoint_id = gym.checkpoint_id if gym is not None else None
    if not (gym is None and evidence.has_gym) and listed.checkpoint_id != checkpoint_id:
        what = f"`{CHECKSUMS_FILE}` was written for checkpoint `{listed.checkpoint_id}`, the manifest is of `{checkpoint_id}`"
        yield Violation(what, CHECKSUMS_FILE, "checkpoint_id", str(checkpoint_id), str(listed.checkpoint_id))


def check_missing(evidence: Evidence) -> Iterator[Violation]:
    """Every listed file is there."""
    listed, entries = _listed(evidence), entries_by_path(evidence)
    for path, found in sorted(listed.files.items()):
        entry = entries.get(path)
        if entry is None:
            yield Violation(
                f"`{path}` is gone: it was published with {found.bytes} bytes", path, "", "present", "absent"
            )
        elif entry.kind != "file":
            kind = KIND_WORDS[entry.kind]
            yield Violation(f"`{path}` was published as a file and is {kind} now", path, "", "a file", kind)


def check_unlisted(evidence: Evidence) -> Iterator[Violation]:
    """Nothing but the listed files is there; folders are no content."""
    listed = _listed(evidence)
    for entry in evidence.tree:
        if entry.kind != "directory" and entry.path != CHECKSUMS_FILE and entry.path not in listed.files:
            what = f"`{entry.path}` was not there when the snapshot was published"
            yield Violation(what, entry.path, "", "absent", KIND_WORDS[entry.kind])


def check_sizes(evidence: Evidence) -> Iterator[Violation]:
    """Every listed file has its size."""
    listed = _listed(evidence)
    for path, entry in entries_by_path(evidence).items():
        found = listed.files.get(path)
        if found is not None and entry.kind == "file" and entry.size_bytes != found.bytes:
            what = f"`{path}` has another size than when it was published"
            yield Violation(what, path, "", f"{found.bytes} bytes", f"{entry.size_bytes} bytes")


def check_content(evidence: Evidence) -> Iterator[Violation]:
    """Every file that was digested at this level has the digest that it was published with."""
    listed, entries = _listed(evidence), entries_by_path(evidence)
    unread: list[tuple[str, str]] = []
    for path, found in sorted(evidence.digests.items()):
        published = listed.files.get(path)
        if published is None or entries[path].size_bytes != published.bytes:
            continue
        if found.problem:
            unread.append((path, found.problem))
        elif found.blake3 is not None and found.blake3 != published.blake3:
            what = f"`{path}` has another content than when it was published"
            yield Violation(what, path, "", f"BLAKE3 {published.blake3}", f"BLAKE3 {found.blake3}")
    if unread:
        path, problem = unread[0]
        more = f" (and {len(unread) - 1} more files)" if len(unread) > 1 else ""
        raise CannotRunError(f"`{path}` could not be read: {problem}{more}", artifact=path)


def check_publication(evidence: Evidence) -> Iterator[Violation]:
    """The checksum file is the one that the journal of the checkpoint directory knows."""
    known, part = evidence.publication.own, evidence.checksums
    if part.state == "not_read":
        raise NotAskedError(part.reason)
    if known is None and evidence.publication.of_name is not None:
        transaction = evidence.publication.of_name.transaction
        raise NotAskedError(f"transaction `{transaction}` published another checkpoint under this name")
    if known is None:
        raise NotAskedError("no journal of the checkpoint directory knows the checksum file of this snapshot")
    published = f"BLAKE3 {known.checksums_blake3}"
    if part.state == "missing":
        demand_tree(evidence)  # of what was not looked into nothing is gone
        what = f"`{CHECKSUMS_FILE}` is gone: transaction `{known.transaction}` published the snapshot with it"
        yield Violation(what, CHECKSUMS_FILE, "", published, "absent")
        return
    found = evidence.digests.get(CHECKSUMS_FILE)
    if found is None or found.blake3 is None:
        because = (_MALFORMED,) if part.state == "damaged" else ()
        raise CannotRunError(f"`{CHECKSUMS_FILE}`: {part.reason}", because=because, artifact=CHECKSUMS_FILE)
    if found.blake3 != known.checksums_blake3:
        what = f"`{CHECKSUMS_FILE}` is not the file that transaction `{known.transaction}` published the snapshot with"
        yield Violation(what, CHECKSUMS_FILE, "", published, f"BLAKE3 {found.blake3}")


def check_name(evidence: Evidence) -> Iterator[Violation]:
    """What lies under the name was published under it."""
    known = evidence.publication
    there, of_name = known.elsewhere, known.of_name
    if there is not None:
        what = f"transaction `{there.transaction}` published this checkpoint as `{there.snapshot}`, not under this name"
        of_this = (
            f"; under this name, `{of_name.transaction}` published {_told(of_name)}" if of_name is not None else ""
        )
        yield Violation(f"{what}{of_this}", "", "", there.snapshot, evidence.name)
    elif known.own is not None:
        return
    elif known.unread:
        raise CannotRunError(f"what was published under this name cannot be told: {known.unread}", hint=_JOURNAL_HINT)
    elif of_name is None:
        raise NotAskedError("no journal of the checkpoint directory knows this snapshot")
    else:
        manifest = evidence.manifest.manifest
        gym = manifest.gym_checkpoint if manifest is not None else None
        found = f"checkpoint `{gym.checkpoint_id}`" if gym is not None else _NO_ID
        what = f"no journal here knows {found}: under this name, transaction `{of_name.transaction}` published another"
        yield Violation(what, MANIFEST_FILE, "gym_checkpoint.checkpoint_id", _told(of_name), found, warning=True)


def _told(known: Publication) -> str:
    return _NO_ID if known.checkpoint_id is None else f"checkpoint `{known.checkpoint_id}`"


def check_stillness(evidence: Evidence) -> Iterator[Violation]:
    """No file changed while it was read."""
    demand_tree(evidence)
    for path, found in sorted(evidence.digests.items()):
        if found.changed:
            yield Violation(f"`{path}` changed while it was read: {found.changed}", path, "", "a file at rest", "")


def _listed(evidence: Evidence) -> ChecksumsFile:
    """The checksums, where there are some. Raises NotAskedError, CannotRunError."""
    if evidence.checksums.state in {"missing", "not_read"}:
        raise NotAskedError(_ABSENT if evidence.checksums.state == "missing" else evidence.checksums.reason)
    demand_tree(evidence)
    return value_of(evidence.checksums, _MALFORMED)


_REQUIRES = (_MALFORMED,)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SUM001",
        invariant=None,
        name="malformed-checksum-file",
        summary="`ckptctl-checksums.json` has its fields, its one byte form and its own digest.",
        why="The file that vouches for every byte was changed itself, so nothing vouches for any of them.",
        hint="Use an older snapshot, or bring the file back from a copy; it is never written anew for a published snapshot.",
        severity="error",
        level="standard",
        check=check_form,
    ),
    Rule(
        id="SUM002",
        invariant=None,
        name="foreign-checksum-file",
        summary="The checksum file carries the checkpoint id of the manifest.",
        why="A checksum file of another snapshot proves nothing of this one; files of two snapshots were mixed.",
        hint="Find out what was copied here; use another snapshot.",
        severity="error",
        level="standard",
        check=check_identity,
        requires=_REQUIRES,
    ),
    Rule(
        id="SUM003",
        invariant=None,
        name="lost-file",
        summary="Every file that the snapshot was published with is there.",
        why="The snapshot is not whole any more: somebody or something deleted a part of it after it was published.",
        hint="Bring the file back from a copy, or use an older snapshot.",
        severity="error",
        level="standard",
        check=check_missing,
        requires=_REQUIRES,
    ),
    Rule(
        id="SUM004",
        invariant=None,
        name="added-file",
        summary="No file is there that the snapshot was not published with.",
        why="Whoever reads the folder may take the file for a part of the snapshot, and nobody proved it.",
        hint="Find out who writes into published snapshots; delete the file.",
        severity="error",
        level="standard",
        check=check_unlisted,
        requires=_REQUIRES,
    ),
    Rule(
        id="SUM005",
        invariant=None,
        name="resized-file",
        summary="Every file has the size that it was published with.",
        why="The file was cut, extended or exchanged after the snapshot was published.",
        hint="Bring the file back from a copy, or use an older snapshot.",
        severity="error",
        level="standard",
        check=check_sizes,
        requires=_REQUIRES,
    ),
    Rule(
        id="SUM006",
        invariant=None,
        name="altered-file",
        summary="Every file that is read whole at this level (at full: every file) has the BLAKE3 that it was published with.",
        why="A byte changed after the snapshot was published, whether a disk or a person changed it.",
        hint="Bring the file back from a copy, or use an older snapshot; when several files changed, have the disk checked.",
        severity="error",
        level="standard",
        check=check_content,
        requires=_REQUIRES,
    ),
    Rule(
        id="SUM007",
        invariant=None,
        name="exchanged-checksum-file",
        summary="The checksum file is the one that the journal of the checkpoint directory knows.",
        why="Without it nothing covers manifest, configuration and tensors; another one vouches for files that nobody published.",
        hint="Bring the file back from a copy, or use an older snapshot; the digest to look for is in the journal.",
        severity="error",
        level="standard",
        check=check_publication,
        requires=("SUM009",),
    ),
    Rule(
        id="SUM008",
        invariant=None,
        name="moving-file",
        summary="No file changed while it was read.",
        why="What was judged is not what lies there now, so no verdict of it holds.",
        hint="Find out what writes into this directory, or whether its file system is sound, and validate again.",
        severity="error",
        level="standard",
        check=check_stillness,
    ),
    Rule(
        id="SUM009",
        invariant=None,
        name="renamed-snapshot",
        summary="What lies under the name of a snapshot was published under it, as far as the journal knows.",
        why="The highest number counts as the newest: of two that were exchanged, restore takes the older, gc removes the newer.",
        hint="Rename it back to the name that it was published under, or delete it when it is a copy. Where no journal knows it: "
        "find out who put it here, and whether it is the newest state that you want.",
        severity="error",
        level="standard",
        check=check_name,
    ),
)
