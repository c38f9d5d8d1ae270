"""Does the snapshot belong to the anchor that it lies in, and will a restore select the right one? Invariants 10 to 15.

A snapshot names its artifacts relative to itself, so a file of the anchor is `../../training_info.json`; for an anchor as target
it is `training_info.json`. Selection is judged on anchors, whose snapshots have been validated first. Fingerprints are
`fingerprint`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptctl.domain.evidence import AnchorEvidence, Evidence, SiblingSnapshot
from ckptctl.domain.finding import Violation
from ckptctl.domain.fingerprint import identity_differences
from ckptctl.domain.ids import MAX_SNAPSHOT_NUMBER, SNAPSHOTS_FOLDER, is_uncounted
from ckptctl.domain.wrong_kind import LINKED_HINT, MISPLACED_HINT
from ckptctl.rules._model import STORAGE_HINT, CannotRunError, NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules.layout import KIND_WORDS, entries_by_path
from ckptctl.rules.manifest import MANIFEST_FILE, manifest_of

PATHS_SHOWN = 20


def anchor_of(evidence: Evidence) -> AnchorEvidence:
    """The anchor.

    Raises:
        CannotRunError: there is none.
    """
    if evidence.anchor is None:
        raise CannotRunError("the snapshot lies in no anchor", because=("MAN001",))
    return evidence.anchor


def anchor_file(evidence: Evidence, name: str) -> str:
    """The path of a file of the anchor, relative to the target."""
    return f"../../{name}" if evidence.kind == "snapshot" else name


def check_identity(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 10."""
    anchor, manifest = anchor_of(evidence), manifest_of(evidence)
    if anchor.kind == "other":
        raise NotAskedError(f"`{anchor.name}` is no anchor that snapshots are bound to")
    wanted = anchor.number if anchor.kind == "step" else 0
    for name, found in (("base_train_step", manifest.base_train_step), ("trainer_version", manifest.trainer_version)):
        if found != wanted:
            yield Violation(
                f"snapshot belongs to step {manifest.base_train_step} with `trainer_version` {manifest.trainer_version}, "
                f"but lies in `{anchor.name}`: `{name}` must be {wanted} here",
                MANIFEST_FILE,
                name,
                str(wanted),
                str(found),
                incompatible=True,
            )


def check_fingerprint_presence(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 11."""
    anchor, manifest = anchor_of(evidence), manifest_of(evidence)
    field = "bootstrap_fingerprint"
    if anchor.kind == "step" and manifest.bootstrap_fingerprint is not None:
        message = (
            f"`{field}` must be null here: snapshots of `{anchor.name}` are not bound to a bootstrap configuration"
        )
        yield Violation(message, MANIFEST_FILE, field, "null", manifest.bootstrap_fingerprint, incompatible=True)
    if anchor.kind == "bootstrap" and manifest.bootstrap_fingerprint is None:
        message = f"`{field}` must be a digest here: a snapshot of the bootstrap anchor is bound to its configuration"
        yield Violation(message, MANIFEST_FILE, field, "a digest", "null", incompatible=True)


def check_completeness(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 12; only another trainer version is a matter of compatibility."""
    anchor = anchor_of(evidence)
    if anchor.root_kind != "directory":
        yield _no_directory(anchor, anchor_file(evidence, "."))
        return
    yield from _snapshots_misplaced(evidence, anchor)
    if anchor.kind == "bootstrap":
        yield from _bootstrap_gaps(evidence, anchor)
        return
    if anchor.kind == "other":
        yield _incomplete(
            anchor, anchor_file(evidence, "."), "this is a directory of an unfinished or replaced trainer checkpoint"
        )
        return
    path = anchor_file(evidence, "training_info.json")
    part = anchor.training_info
    if part.state == "missing":
        yield _incomplete(anchor, path, "`training_info.json` is missing", expected="a file", actual="nothing")
    elif part.state == "damaged":
        defect = part.defects[0]
        yield _incomplete(
            anchor, path, f"`training_info.json`: {defect.message}", defect.location, defect.expected, defect.actual
        )
    else:
        info = value_of(part)
        if info.current_step != anchor.number:
            what = f"`training_info.json` says `current_step` {info.current_step}"
            yield _incomplete(anchor, path, what, "current_step", str(anchor.number), str(info.current_step))
        version = anchor.number if info.trainer_version is None else info.trainer_version
        manifest = evidence.manifest.manifest
        wanted = manifest.trainer_version if evidence.kind == "snapshot" and manifest is not None else anchor.number
        if version != wanted:
            yield Violation(
                f"anchor `{anchor.name}` was written by another trainer: `trainer_version` is {version}, "
                f"expected {wanted}; the snapshot cannot be used",
                path,
                "trainer_version",
                str(wanted),
                str(version),
                incompatible=True,
            )
    if not anchor.has_policy:
        what = f"anchor `{anchor.name}` has no `policy/`: it holds no weights to restore"
        yield Violation(what, anchor_file(evidence, "policy"), expected="a directory", actual="nothing", warning=True)


def _bootstrap_gaps(evidence: Evidence, anchor: AnchorEvidence) -> Iterator[Violation]:
    path = anchor_file(evidence, MANIFEST_FILE)
    part = anchor.bootstrap
    if part.state == "missing":
        yield _incomplete(anchor, path, f"`{MANIFEST_FILE}` is missing", expected="a file", actual="nothing")
    elif part.state == "damaged":
        defect = part.defects[0]
        yield _incomplete(
            anchor, path, f"`{MANIFEST_FILE}`: {defect.message}", defect.location, defect.expected, defect.actual
        )


def _no_directory(anchor: AnchorEvidence, path: str) -> Violation:
    kind = KIND_WORDS[anchor.root_kind]
    return Violation(
        f"anchor `{anchor.name}` is {kind}, not a directory: nothing behind it was read, and its snapshots are not known",
        path,
        expected="a directory",
        actual=kind,
        hint=LINKED_HINT if anchor.root_kind == "symlink" else MISPLACED_HINT,
    )


def _snapshots_misplaced(evidence: Evidence, anchor: AnchorEvidence) -> Iterator[Violation]:
    """What is no directory where the folder of snapshots belongs; a link is the layout's."""
    entry = entries_by_path(evidence).get(SNAPSHOTS_FOLDER) if evidence.kind == "anchor" else None
    if entry is not None and entry.kind not in {"directory", "symlink"}:
        kind = KIND_WORDS[entry.kind]
        yield Violation(
            f"`{SNAPSHOTS_FOLDER}` of `{anchor.name}` is {kind}, not a directory: its snapshots are not known",
            SNAPSHOTS_FOLDER,
            expected="a directory",
            actual=kind,
            hint=MISPLACED_HINT,
        )


def _incomplete(
    anchor: AnchorEvidence, path: str, what: str, location: str = "", expected: str = "", actual: str = ""
) -> Violation:
    return Violation(
        f"anchor `{anchor.name}` is incomplete: {what}; the snapshot cannot be used", path, location, expected, actual
    )


def check_same_bootstrap(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 13."""
    ours = evidence.run.bootstrap_manifest
    if ours is None:
        raise NotAskedError("the run's own bootstrap manifest is not known")
    stored = value_of(anchor_of(evidence).bootstrap, "ANC003")
    path = anchor_file(evidence, MANIFEST_FILE)
    if stored == ours:
        return
    if stored.schema_version != ours.schema_version:
        yield Violation(
            f"bootstrap anchor was written by snapshot schema {stored.schema_version}; this run writes {ours.schema_version}",
            path,
            "schema_version",
            str(ours.schema_version),
            str(stored.schema_version),
            incompatible=True,
        )
    old, new = stored.bootstrap_identity, ours.bootstrap_identity
    changed = identity_differences(old, new)[:PATHS_SHOWN] if old is not None and new is not None else ()
    if changed:
        what = f"bootstrap anchor was written under another configuration (nothing was modified): {'; '.join(changed)}"
        yield Violation(what, path, "bootstrap_identity.config", incompatible=True)
    elif stored.schema_version == ours.schema_version:
        what = "the digest of the bootstrap anchor does not match the identity stored beside it (nothing was modified)"
        yield Violation(
            what,
            path,
            "bootstrap_identity",
            ours.bootstrap_fingerprint,
            stored.bootstrap_fingerprint,
            incompatible=True,
        )


def _candidates(anchor: AnchorEvidence) -> list[SiblingSnapshot]:
    """The published snapshots, newest first."""
    return sorted(anchor.snapshots, key=lambda sibling: (sibling.number, sibling.name), reverse=True)


def _readable(anchor: AnchorEvidence, *, until: Callable[[SiblingSnapshot], bool]) -> list[SiblingSnapshot]:
    """The candidates, if all of them down to the first that decides could be looked at. Raises CannotRunError."""
    if anchor.root_kind != "directory":
        raise CannotRunError(f"`{anchor.name}` is no directory: nothing behind it was read", because=("ANC003",))
    if anchor.snapshots_problem:
        what = f"the snapshots of `{anchor.name}` are not known: {anchor.snapshots_problem}"
        # The two speak where no directory lies in their place.
        raise CannotRunError(what, because=("ANC003", "MAN009"), hint=STORAGE_HINT)
    candidates = _candidates(anchor)
    for sibling in candidates:
        if sibling.is_unreadable:
            raise CannotRunError(
                f"`{anchor.name}/{sibling.name}` {sibling.problem}",
                artifact=f"rollout_snapshots/{sibling.name}",
                hint=STORAGE_HINT,
            )
        if until(sibling):
            break
    return candidates


def mismatch(anchor: AnchorEvidence, sibling: SiblingSnapshot) -> tuple[str, bool] | None:
    """Why upstream would not select a snapshot of this anchor, and whether it is only incompatible; None when it would."""
    if sibling.problem or not sibling.has_manifest:
        return sibling.problem or "has no readable `manifest.json`", False
    found = sibling.schema_found
    if found not in {3, 4} or isinstance(found, bool):
        return f"schema {found}", isinstance(found, int) and not isinstance(found, bool)
    wanted = anchor.number if anchor.kind == "step" else 0
    for name, value in (("base_train_step", sibling.base_train_step), ("trainer_version", sibling.trainer_version)):
        if value != wanted:
            return f"`{name}` is {value}", True
    if anchor.kind == "bootstrap" and anchor.bootstrap.value is None:
        return None  # ANC003 says that the anchor's manifest cannot be used
    fingerprint = anchor.bootstrap.value.bootstrap_fingerprint if anchor.bootstrap.value is not None else None
    if sibling.bootstrap_fingerprint != fingerprint:
        return "another `bootstrap_fingerprint`", True
    return None


def check_newest_counts(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 14."""
    anchor = anchor_of(evidence)
    for path in anchor.garbage:
        folder, _, name = path.rpartition("/")
        if folder == SNAPSHOTS_FOLDER and is_uncounted(name):
            yield Violation(
                f"NeMo-RL will look at `{name}` first, which ckptctl does not count (its number is above {MAX_SNAPSHOT_NUMBER}); "
                "move it away",
                path,
                expected=f"at most {MAX_SNAPSHOT_NUMBER}",
                actual=name,
            )
    candidates = _readable(anchor, until=lambda sibling: mismatch(anchor, sibling) is None)
    chosen = next((sibling for sibling in candidates if mismatch(anchor, sibling) is None), None)
    if chosen is None or chosen.is_valid is None or chosen.is_valid:
        return
    valid = next((sibling.name for sibling in candidates if sibling.is_valid), None)
    rest = (
        f"newest valid: `{valid}`; move `{chosen.name}` away to use it"
        if valid
        else "no snapshot of this anchor is valid"
    )
    yield Violation(
        f"NeMo-RL will select `{chosen.name}`, which is not valid; {rest}",
        f"rollout_snapshots/{chosen.name}",
        expected="the newest matching snapshot is valid",
        actual=valid or "none is valid",
    )


def check_selectable(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 15, which asks nothing of an anchor without snapshots.

    When every candidate is only of another schema or anchor, this one is incompatible, not damaged.
    """
    anchor = anchor_of(evidence)
    candidates = _readable(anchor, until=lambda sibling: mismatch(anchor, sibling) is None)
    reasons = [(sibling, mismatch(anchor, sibling)) for sibling in candidates]
    refused = [(sibling.name, reason) for sibling, reason in reasons if reason is not None]
    if candidates and len(refused) == len(candidates):
        told = "; ".join(f"{name}: {why}" for name, (why, _) in refused[:PATHS_SHOWN])
        yield Violation(
            f"no snapshot of `{anchor.name}` matches: {told}",
            "rollout_snapshots",
            expected="one matching snapshot",
            actual=f"{len(candidates)} that do not match",
            incompatible=all(is_incompatible for _, (_, is_incompatible) in refused),
        )
    elif (
        candidates  # none at all is normal: a restart there begins at the trainer checkpoint
        and evidence.run.participant_checkpointing
        and not any(sibling.has_gym for sibling, reason in reasons if reason is None)
    ):
        yield Violation(
            f"no snapshot of `{anchor.name}` holds Gym state, which a run with participant checkpointing needs",
            "rollout_snapshots",
            expected="a snapshot with Gym state",
            incompatible=True,
        )


_NEEDS_MANIFEST = ("MAN003", "MAN004")

RULES: tuple[Rule, ...] = (
    Rule(
        id="ANC001",
        invariant=10,
        name="snapshot-of-another-anchor",
        summary="Step and trainer version of the manifest are those of the anchor that the snapshot lies in.",
        why="Rollouts would go on against weights that did not produce them.",
        hint="Restore with the anchor that the manifest names; if the snapshot was moved, move it back.",
        severity="error",
        level="quick",
        check=check_identity,
        requires=_NEEDS_MANIFEST,
        needs=("anchor",),
    ),
    Rule(
        id="ANC002",
        invariant=11,
        name="misplaced-bootstrap-fingerprint",
        summary="`bootstrap_fingerprint` is null under a step and a digest under the bootstrap anchor.",
        why="The selector compares it for equality and never selects a snapshot whose fingerprint is of the wrong kind.",
        hint="Use another snapshot of this anchor.",
        severity="error",
        level="quick",
        check=check_fingerprint_presence,
        requires=_NEEDS_MANIFEST,
        needs=("anchor",),
    ),
    Rule(
        id="ANC003",
        invariant=12,
        name="incomplete-anchor",
        summary="The anchor is a finished trainer checkpoint of the step and trainer version that the snapshot names.",
        why="Trainer checkpoints are not synced upstream, so an anchor can be lost in a crash that its snapshots survived.",
        hint="Restart from an older step that is complete; snapshots of an incomplete one have nothing to build on.",
        severity="error",
        level="quick",
        check=check_completeness,
        requires=_NEEDS_MANIFEST,
        needs=("anchor",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="ANC004",
        invariant=13,
        name="foreign-bootstrap-anchor",
        summary="The bootstrap anchor's manifest is the one that this run would write.",
        why="NeMo-RL compares the whole object and refuses every snapshot of an anchor that differs.",
        hint="Run with the configuration and build that wrote the anchor, or start afresh in an empty checkpoint directory.",
        severity="error",
        level="quick",
        check=check_same_bootstrap,
        needs=("bootstrap_anchor", "run"),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="ANC005",
        invariant=14,
        name="invalid-newest-snapshot",
        summary="The snapshot that NeMo-RL would select is valid.",
        why="NeMo-RL looks at manifests only: it falls back over a bad manifest, never over a bad payload.",
        hint="Move the named snapshot away, or restore with ckptctl, which goes back to the newest valid one.",
        severity="warning",
        level="quick",
        check=check_newest_counts,
        targets=("anchor",),
    ),
    Rule(
        id="ANC006",
        invariant=15,
        name="unselectable-snapshots",
        summary="Where there are snapshots, at least one matches its anchor, with Gym state where the run needs it.",
        why="With candidates of which none matches, NeMo-RL stops instead of starting from the trainer checkpoint.",
        hint="Move the snapshots away to start from the trainer checkpoint, or use the build and configuration that wrote them.",
        severity="error",
        level="quick",
        check=check_selectable,
        targets=("anchor",),
    ),
)
