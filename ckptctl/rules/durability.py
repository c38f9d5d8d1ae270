"""Was publication complete, is nothing left lying about, are secrets kept, will work go on? Invariants 91 to 96.

What was synced cannot be seen afterwards: 91 looks for the traces of a loss only. The live rules judge what a transaction
reports; doing something about it is `planning`'s and `workflows`' business.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.evidence import AnchorEvidence, Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.fingerprint import secret_paths
from ckptctl.domain.ids import (
    MAX_SNAPSHOT_NUMBER,
    SNAPSHOTS_FOLDER,
    STEP_NAME,
    TMP_SNAPSHOT_NAME,
    TRASH_SNAPSHOT_NAME,
    is_uncounted,
)
from ckptctl.rules._model import NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules.anchor import anchor_of
from ckptctl.rules.layout import REQUIRED_FILES, entries_by_path

CONFIG_FILE = "config.yaml"
_READABLE_BY_OTHERS = 0o044
_PATHS_SHOWN = 10
STRAY = "by its name no snapshot, which is `snapshot_` and digits: nothing selects, judges or deletes it"


def check_torn_publication(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 91; leftovers of interrupted writes are MAN009's."""
    entries = entries_by_path(evidence)
    for path in REQUIRED_FILES:
        entry = entries.get(path)
        if entry is not None and entry.kind == "file" and entry.size_bytes == 0:
            what = f"`{path}` is empty: the snapshot was probably lost in a crash before it was synced"
            yield Violation(what, path, expected="content", actual="0 bytes")


def check_garbage(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 92."""
    for path in anchor_of(evidence).garbage:
        folder, _, name = path.rpartition("/")
        yield Violation(f"`{path}`: {_what_it_is(name, is_beside_snapshots=folder == SNAPSHOTS_FOLDER)}", path)


def _what_it_is(name: str, *, is_beside_snapshots: bool) -> str:
    if TMP_SNAPSHOT_NAME.match(name):
        return "a snapshot that is being written or was never finished; `ckptctl publish` decides, the next save removes it"
    if TRASH_SNAPSHOT_NAME.match(name):
        return "a snapshot whose deletion was interrupted; the next save or `ckptctl gc` removes it"
    if is_beside_snapshots and is_uncounted(name):
        return f"its number is above {MAX_SNAPSHOT_NUMBER}, so it is not counted: nothing of ours selects, judges or deletes it"
    if is_beside_snapshots and not name.startswith(("tmp_snapshot_", "trash_snapshot_")):
        return STRAY
    if name.startswith("tmp_"):
        return "a trainer checkpoint that is being written or was never finished; the trainer removes it"
    if name.startswith("old_") and STEP_NAME.match(name[len("old_") :]):
        return "the previous version of a trainer checkpoint; when the step itself is gone, rename it back by hand"
    return "a leftover of an interrupted write; it can be deleted when nothing writes here"


def check_secrets(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 93: the key paths, never the values. A mode alone is no breach."""
    part = evidence.config
    if part.state == "not_read" or (part.state == "missing" and evidence.kind != "snapshot"):
        raise NotAskedError(part.reason)
    paths = secret_paths(value_of(part))
    if not paths:
        return
    names = ", ".join(f"`{path}`" for path in paths[:_PATHS_SHOWN])
    more = f" and {len(paths) - _PATHS_SHOWN} more" if len(paths) > _PATHS_SHOWN else ""
    entry = entries_by_path(evidence).get(part.path)
    is_open = entry is not None and bool(entry.mode & _READABLE_BY_OTHERS)
    what = f"`{part.path}` holds secrets in clear: {names}{more}"
    yield Violation(
        f"{what}; others can read the file" if is_open else what,
        part.path,
        paths[0],
        "no value, or `<redacted>`",
        f"mode {entry.mode:04o}" if entry is not None else "",
    )


def check_shared_storage(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 94."""
    committed = evidence.live.committed_manifests
    if committed is None:
        raise NotAskedError("no participant has committed in this run")
    for participant, (path, reported, found) in committed.items():
        name = participant.participant_name
        if found is None:
            what = f"`{name}` wrote `{path}`, which does not exist here: is the directory shared?"
            yield Violation(what, path, expected=reported, actual="nothing")
        elif found != reported:
            what = f"`{name}` wrote `{path}`, which has another digest here: is the directory shared?"
            yield Violation(what, path, expected=reported, actual=found)


def check_retention(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 95: the newest valid snapshot is never pruned."""
    prune = evidence.live.prune
    if prune is None:
        raise NotAskedError("nothing is about to be pruned")
    newest = newest_valid(anchor_of(evidence))
    if newest is not None and newest in prune:
        what = (
            f"refusing to delete `{newest}`: it is the only valid one of `{anchor_of(evidence).name}` that would remain"
        )
        yield Violation(what, f"rollout_snapshots/{newest}", expected="kept", actual="deleted")


def newest_valid(anchor: AnchorEvidence) -> str | None:
    """The newest snapshot that was validated and is valid."""
    valid = [sibling for sibling in anchor.snapshots if sibling.is_valid]
    return max(valid, key=lambda sibling: sibling.number).name if valid else None


def check_admission(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 96."""
    phases = evidence.live.phases
    if phases is None:
        raise NotAskedError("the phases after the run are not known")
    for server, (phase, checkpoint_id) in sorted(phases.items()):
        if phase == "idle" or (checkpoint_id is not None and checkpoint_id == evidence.live.pending_release_id):
            continue
        what = (
            f"`{server}` is still `{phase}` under `{checkpoint_id or 'an unknown id'}`: "
            "run the same command again, it releases this id first"
        )
        yield Violation(what, expected="idle", actual=phase)


RULES: tuple[Rule, ...] = (
    Rule(
        id="DUR001",
        invariant=91,
        name="torn-publication",
        summary="No required file is empty. Whether the writer synced cannot be seen afterwards: only traces of a loss can.",
        why="A file system may keep the names of a snapshot that was renamed before it was synced, and lose the content.",
        hint="Use an older snapshot; a complete one is written again at the next save.",
        severity="warning",
        level="quick",
        check=check_torn_publication,
    ),
    Rule(
        id="DUR002",
        invariant=92,
        name="garbage",
        summary="Which unfinished, half-deleted or misnamed directories lie here, and what becomes of them.",
        why="They take space, and one of them may be the only copy of a step whose replacement was interrupted.",
        hint="`ckptctl gc CHECKPOINT_DIR --dry-run` says what would be removed and why.",
        severity="information",
        level="quick",
        check=check_garbage,
        targets=("anchor",),
    ),
    Rule(
        id="DUR003",
        invariant=93,
        name="secret-in-clear",
        summary="`config.yaml` holds no secret in clear.",
        why="NeMo-RL dumps its whole configuration, the control token included, which lets every reader stop the rollouts.",
        hint="Restrict the file to its owner (mode 0600), or write `<redacted>` in place of the values; no fingerprint changes.",
        severity="warning",
        level="standard",
        check=check_secrets,
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="DUR004",
        invariant=94,
        name="unshared-storage",
        summary="What each participant wrote is readable here with the digest that it reported.",
        why="A server that sees another directory under the same path commits into nowhere.",
        hint="Put `checkpoint_dir` on a file system that every server mounts under the same absolute path.",
        severity="error",
        level="standard",
        check=check_shared_storage,
        needs=("live",),
    ),
    Rule(
        id="DUR005",
        invariant=95,
        name="pruned-last-valid-snapshot",
        summary="A prune plan keeps the newest valid snapshot of an anchor.",
        why="Retention by number keeps damaged snapshots and deletes the last one that could be restored.",
        hint="Validate the newer snapshots, or keep more of them (`keep_latest_k`).",
        severity="error",
        level="standard",
        check=check_retention,
        needs=("live",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="DUR006",
        invariant=96,
        name="closed-admission",
        summary="After a run every participant accepts work again, or a record names the id that is still to be released.",
        why="Generation A has no lease: a server that nobody releases stays paused for ever.",
        hint="Run `ckptctl publish`; it releases the recorded id.",
        severity="error",
        level="standard",
        check=check_admission,
        needs=("live",),
    ),
)
