"""Were data plane, ledger, replay metadata and counters saved in one cut? Invariants 23 to 32.

The binding record in `data_plane/metadata.json` is the only proof. It covers ledger and replay metadata; dataloader, reserve and
configuration carry no digest anywhere, which 31 says. What is inside the data plane is `inventory`'s, what is inside the ledger
`ledger`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ckptctl.domain.canonical import replay_digest
from ckptctl.domain.evidence import Cut, Evidence, TargetKind
from ckptctl.domain.finding import Violation
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.safe_text import shown
from ckptctl.rules._model import CannotRunError, NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules.binding_record import RECORD, binding_of, check_record

REPLAY_SCHEMA_VERSION = 1


def cut_of(evidence: Evidence) -> Cut:
    """The counters to compare with. Raises CannotRunError."""
    if evidence.cut is None:
        raise CannotRunError("there are no counters to compare with", because=("MAN003", "MAN004", "ANC003"))
    return evidence.cut


def check_cut(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 24."""
    binding, cut = binding_of(evidence), cut_of(evidence)
    pairs = (
        ("single_controller_train_steps", binding.single_controller_train_steps, cut.train_step),
        ("single_controller_trainer_version", binding.single_controller_trainer_version, cut.trainer_version),
        ("single_controller_epoch", binding.single_controller_epoch, cut.epoch),
    )
    for field, found, wanted in pairs:
        if found != wanted:
            yield Violation(
                f"data plane was saved at `{field}` {found}, `{cut.source}` says {wanted}: the parts come from different cuts",
                evidence.metadata.path,
                f"user_metadata.{field}",
                str(wanted),
                str(found),
            )


def check_partition_and_sampler(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 25."""
    binding = binding_of(evidence)
    replay = _replay_or_none(evidence)
    if replay is not None:
        if replay.partition_id != binding.partition_id:
            yield _differs(evidence, "partition_id", binding.partition_id, replay.partition_id, "replay metadata")
        for group in replay.groups:
            if group.meta.partition_id != replay.partition_id:
                whose = f"replay group `{group.group_id}`"
                what = f"`partition_id` differs: `{replay.partition_id}` / `{group.meta.partition_id}` ({whose})"
                yield Violation(
                    what, evidence.replay.path, group.group_id, replay.partition_id, group.meta.partition_id
                )
    info = evidence.anchor.training_info.value if evidence.anchor is not None else None
    if info is not None and info.sampler_name is not None and info.sampler_name != binding.sampler_name:
        yield _differs(evidence, "sampler_name", info.sampler_name, binding.sampler_name, "the anchor's training info")


def _differs(evidence: Evidence, field: str, expected: str, actual: str, whose: str) -> Violation:
    what = f"`{field}` differs: `{expected}` / `{actual}` (binding record and {whose})"
    return Violation(what, evidence.metadata.path, f"user_metadata.{field}", expected, actual)


def _replay_or_none(evidence: Evidence) -> ReplayMetadata | None:
    if evidence.replay.state == "missing" and evidence.kind != "snapshot":
        return None
    return value_of(evidence.replay, "BND007")


def check_ledger_bytes(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 26: over the stored bytes, so it holds for ledgers that cannot be decoded, too."""
    wanted, part = binding_of(evidence).rollout_recovery_payload_sha256, evidence.ledger
    if wanted is None:
        raise NotAskedError("the binding record advertises no ledger")
    if part.sha256 is None:
        value_of(part)
        raise CannotRunError(f"`{part.path}` was not read completely")
    if part.sha256 != wanted:
        what = f"`{part.path}` is not the one saved with this data plane: its digest differs from the binding record"
        yield Violation(what, part.path, "", wanted, part.sha256)


def check_ledger_count(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 27."""
    binding = binding_of(evidence)
    if binding.rollout_recovery_payload_sha256 is None:
        raise NotAskedError("the binding record advertises no ledger")
    ledger = value_of(evidence.ledger, "LED001")
    pairs = (
        ("rollout_recovery_group_count", len(ledger.groups), binding.rollout_recovery_group_count, "groups"),
        (
            "rollout_recovery_schema_version",
            ledger.schema_version,
            binding.rollout_recovery_schema_version,
            "as schema",
        ),
    )
    for field, found, bound, noun in pairs:
        if found != bound:
            what = f"ledger has {found} {noun}, the binding says {shown(bound)} (`{field}`)"
            yield Violation(what, evidence.metadata.path, f"user_metadata.{field}", str(found), shown(bound))


def check_replay_digest(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 28: recomputed, stored and bound."""
    bound = binding_of(evidence).replay_manifest_digest
    if bound is None:
        raise NotAskedError("the binding record advertises no replay metadata")
    replay = value_of(evidence.replay, "BND007")
    path = evidence.replay.path
    try:
        computed = replay_digest(replay.groups)
    except ValueError as error:
        yield Violation(f"`{path}`: the digest of the replay metadata cannot be computed: {error}", path, "groups")
        return
    if computed != replay.manifest_digest:
        what = f"replay metadata was changed after the cut: the digest of its groups is not the one in `{path}`"
        yield Violation(what, path, "manifest_digest", replay.manifest_digest, computed)
    elif computed != bound:
        what = "replay metadata belongs to another data plane: its digest differs from the binding record"
        yield Violation(what, path, "manifest_digest", bound, computed)


def check_replay_constants(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 29; the constants inside the file are demanded by its reader, whose refusals are reported here."""
    part = evidence.replay
    if part.state == "damaged" and part.opens:
        for defect in part.defects:
            what = f"replay metadata: {defect.message}"
            yield Violation(what, part.path, defect.location, defect.expected, defect.actual)
        return
    binding = binding_of(evidence)
    if binding.replay_manifest_digest is None:
        raise NotAskedError("the binding record advertises no replay metadata")
    replay = value_of(part)
    pairs = (
        ("replay_group_count", binding.replay_group_count, len(replay.groups)),
        ("replay_metadata_schema_version", binding.replay_metadata_schema_version, REPLAY_SCHEMA_VERSION),
    )
    for field, found, wanted in pairs:
        if found != wanted:
            what = f"replay metadata: the binding's `{field}` is {shown(found)}, the file says {wanted}"
            yield Violation(what, evidence.metadata.path, f"user_metadata.{field}", str(wanted), shown(found))


def check_advertised(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 30."""
    binding = binding_of(evidence)
    record: dict[str, Any] = value_of(evidence.metadata, RECORD).user_metadata or {}
    del binding  # its types were checked; here presence counts, and null is absence
    sidecars = (
        (evidence.replay, ("replay_manifest_digest", "replay_group_count", "replay_metadata_schema_version")),
        (
            evidence.ledger,
            ("rollout_recovery_payload_sha256", "rollout_recovery_group_count", "rollout_recovery_schema_version"),
        ),
    )
    for part, fields in sidecars:
        present = [field for field in fields if record.get(field) is not None]
        is_there = part.state != "missing"
        if is_there and not present:
            what = f"`{part.path}` is not bound to the data plane: the binding record does not advertise it"
            yield Violation(what, evidence.metadata.path, f"user_metadata.{fields[0]}", "a digest", "absent")
        elif present and not is_there:
            what = f"the binding advertises `{part.path}`, which is missing"
            yield Violation(what, evidence.metadata.path, f"user_metadata.{present[0]}", f"`{part.path}`", "nothing")
        elif len(present) not in {0, len(fields)}:
            missing = [field for field in fields if field not in present]
            what = f"the binding of `{part.path}` is incomplete: {', '.join(f'`{field}`' for field in missing)} missing"
            yield Violation(what, evidence.metadata.path, f"user_metadata.{missing[0]}", "present", "absent")


def check_unbound(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 31: once, with the digests that a later run can compare. A checksum file binds what it lists."""
    listed = evidence.checksums.value.files if evidence.checksums.value is not None else {}
    found = (evidence.reserve, evidence.dataloader, evidence.config)
    parts = [part for part in found if part.state != "missing" and part.path not in listed]
    if parts:
        names = ", ".join(f"`{part.path}`" for part in parts)
        digests = "; ".join(f"{part.path} sha256 {part.sha256}" for part in parts if part.sha256 is not None)
        yield Violation(f"{names} carry no digest: their belonging to this cut cannot be verified", actual=digests)


def check_cursor(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 32."""
    cut = cut_of(evidence)
    cursor = cut.sampler_dispatch_index
    if cursor is None:
        raise NotAskedError("the sampler's cursor is not known")
    replay = _replay_or_none(evidence)
    targets = [(group.group_id, group.target_step) for group in replay.groups] if replay is not None else []
    if not (evidence.ledger.state == "missing" and evidence.kind != "snapshot"):
        targets += [(group.group_id, group.target_step) for group in value_of(evidence.ledger, "LED001").groups]
    field = "sampler_dispatch_index"
    for group_id, target in targets:
        if target is not None and target > cursor:
            what = f"sampler cursor {cursor} is behind target step {target} of group `{group_id}` (`{field}` of `{cut.source}`)"
            yield Violation(what, cut.source, field, f"at least {target}", str(cursor))


_TARGETS: tuple[TargetKind, ...] = ("snapshot", "anchor")
_REQUIRES = ("BND001", "MAN002", "MAN003", "MAN004")
_REQUIRES_BOUND = ("BND001", "BND008", "MAN002", "MAN003", "MAN004")

RULES: tuple[Rule, ...] = (
    Rule(
        id="BND001",
        invariant=23,
        name="unreadable-binding",
        summary="`data_plane/metadata.json` holds a binding record of the known version, authoritative, with saved storage.",
        why="It alone proves that the other parts belong to this data plane; NeMo-RL reads it only after loading.",
        hint="Use an older snapshot; this data plane cannot be bound to anything.",
        severity="error",
        level="standard",
        check=check_record,
        requires=("MAN002", "MAN003", "MAN004"),
        needs=("data_plane",),
        targets=("snapshot", "anchor", "data_plane"),
    ),
    Rule(
        id="BND002",
        invariant=24,
        name="parts-of-different-cuts",
        summary="Step, trainer version and epoch of the binding record are those of the manifest.",
        why="Rows of one moment with a ledger and cursors of another lose or repeat rollouts.",
        hint="Use an older snapshot, and report the writer: these numbers are taken under one barrier.",
        severity="error",
        level="standard",
        check=check_cut,
        requires=_REQUIRES,
        needs=("data_plane", "cut"),
        targets=_TARGETS,
    ),
    Rule(
        id="BND003",
        invariant=25,
        name="partition-or-sampler-mismatch",
        summary="Binding record, replay metadata and anchor name the same partition and sampler.",
        why="Another sampler or partition would read rows that it did not order.",
        hint="Restore with the sampler and partition that the snapshot names.",
        severity="error",
        level="standard",
        check=check_partition_and_sampler,
        requires=_REQUIRES,
        needs=("data_plane",),
        targets=_TARGETS,
    ),
    Rule(
        id="BND004",
        invariant=26,
        name="foreign-ledger",
        summary="The bytes of `rollout_recovery.pt` have the digest in the binding record.",
        why="A ledger of another cut names rows that this data plane does not hold, or holds for somebody else.",
        hint="Use an older snapshot; the ledger was exchanged or changed after the save.",
        severity="error",
        level="standard",
        check=check_ledger_bytes,
        requires=_REQUIRES_BOUND,
        needs=("data_plane",),
        targets=_TARGETS,
    ),
    Rule(
        id="BND005",
        invariant=27,
        name="ledger-count-mismatch",
        summary="Schema number and number of groups of the ledger are those of the binding record.",
        why="The record was written for a ledger with other content.",
        hint="Use an older snapshot, and report the writer: digest and count are taken from the same bytes.",
        severity="error",
        level="standard",
        check=check_ledger_count,
        requires=_REQUIRES_BOUND,
        needs=("data_plane",),
        targets=_TARGETS,
    ),
    Rule(
        id="BND006",
        invariant=28,
        name="foreign-replay-metadata",
        summary="The digest of the replay groups, the one stored with them and the bound one are equal.",
        why="Replay metadata says which finished groups the canonical partition holds; of another cut it trains on wrong rows.",
        hint="Use an older snapshot; the replay metadata was exchanged or changed after the save.",
        severity="error",
        level="standard",
        check=check_replay_digest,
        requires=_REQUIRES_BOUND,
        needs=("data_plane",),
        targets=_TARGETS,
    ),
    Rule(
        id="BND007",
        invariant=29,
        name="malformed-replay-metadata",
        summary="The replay metadata has the documented shape and as many groups as the binding record says.",
        why="NeMo-RL refuses it after TransferQueue was already replaced.",
        hint="Use an older snapshot.",
        severity="error",
        level="standard",
        check=check_replay_constants,
        requires=_REQUIRES_BOUND,
        needs=("data_plane",),
        targets=_TARGETS,
    ),
    Rule(
        id="BND008",
        invariant=30,
        name="unbound-sidecar",
        summary="Ledger and replay metadata are there exactly when the binding record advertises them.",
        why="A sidecar that nothing binds may be of any cut; one that is advertised and missing stops the restore half-way.",
        hint="Use an older snapshot.",
        severity="error",
        level="standard",
        check=check_advertised,
        requires=_REQUIRES,
        needs=("data_plane",),
        targets=_TARGETS,
    ),
    Rule(
        id="BND009",
        invariant=31,
        name="unverifiable-belonging",
        summary="Which files carry no digest that binds them to the cut.",
        why="Nobody can prove that these files are of this cut; their digests are given so that two reports can be compared.",
        hint="Keep this report if you want to tell later whether these files changed.",
        severity="information",
        level="standard",
        check=check_unbound,
        requires=("MAN002", "MAN003", "MAN004"),
    ),
    Rule(
        id="BND010",
        invariant=32,
        name="sampler-cursor-behind",
        summary="The sampler's cursor is not behind any target step of replay metadata or ledger.",
        why="The sampler would hand out a target step that a restored group already owns.",
        hint="Use an older snapshot, and report the writer.",
        severity="error",
        level="standard",
        check=check_cursor,
        requires=("BND001", "MAN002", "MAN003", "MAN004"),
        needs=("data_plane", "cut"),
        targets=_TARGETS,
    ),
)
