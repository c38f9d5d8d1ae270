"""Which snapshot a restore uses: candidates of one anchor, newest first, each with the reason why it is no choice.

Decided from manifests and names alone; whether a candidate's payload is sound is found out by validating it, in this order.
Unlike upstream a damaged payload makes the next older one the choice; a difference of topology or of the Gym feature never
does, because an older snapshot would only hide that the run was set up differently.
Source: design section 6, snapshot-layout section 14.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.document import Document
from ckptctl.domain.evidence import SiblingSnapshot
from ckptctl.domain.finding import VerdictName, worst
from ckptctl.domain.ids import snapshot_number
from ckptctl.domain.schemas import is_schema_number, schema_refusal


class Expectation(Document):
    """What the run that wants to restore says of itself."""

    anchor: str
    train_step: int
    trainer_version: int
    bootstrap_fingerprint: str | None
    participant_checkpointing: bool | None
    """None: not known (offline); then the manifest decides."""


class Rejected(Document):
    """A candidate that is not used."""

    name: str
    verdict: VerdictName
    """What is wrong with it: `invalid`, `incompatible`, or `incomplete` (nobody could tell)."""
    reason: str
    stops: bool = False
    """No older one is tried either: the run is set up differently."""


class Ranking(Document):
    """The names to validate, newest first, and who is out already. Nothing older than a stopping rejection is in `names`."""

    names: tuple[str, ...]
    rejected: tuple[Rejected, ...]


def rank_candidates(snapshots: Iterable[SiblingSnapshot], expected: Expectation) -> Ranking:
    """Order the snapshots of the expected anchor and reject by manifest."""
    names: list[str] = []
    rejected: list[Rejected] = []
    for snapshot in sorted(snapshots, key=lambda item: (item.number, item.name), reverse=True):
        refusal = _refuse(snapshot, expected)
        if refusal is None:
            names.append(snapshot.name)
            continue
        rejected.append(refusal)
        if refusal.stops:
            break
    return Ranking(names=tuple(names), rejected=tuple(rejected))


def newest_first(rejected: Iterable[Rejected]) -> tuple[Rejected, ...]:
    """Rejections in the order in which the candidates were looked at."""
    return tuple(sorted(rejected, key=lambda item: (snapshot_number(item.name) or 0, item.name), reverse=True))


def worst_verdict(rejected: Iterable[Rejected]) -> VerdictName:
    """What a restore that found nothing ends with. A difference in the set-up outweighs whatever is damaged beside it."""
    found = tuple(rejected)
    return "incompatible" if any(item.stops for item in found) else worst([item.verdict for item in found])


def _refuse(snapshot: SiblingSnapshot, expected: Expectation) -> Rejected | None:
    damage = _damage(snapshot)
    if damage:
        verdict: VerdictName = "incomplete" if snapshot.is_unreadable else "invalid"
        return Rejected(name=snapshot.name, verdict=verdict, reason=damage)
    reason, stops = _difference(snapshot, expected)
    return Rejected(name=snapshot.name, verdict="incompatible", reason=reason, stops=stops) if reason else None


def _damage(snapshot: SiblingSnapshot) -> str:
    """Why the manifest says nothing that could be compared; empty when it does, or is of another schema."""
    if snapshot.problem or not snapshot.has_manifest:
        return snapshot.problem or "no readable `manifest.json`"
    if not is_schema_number(snapshot.schema_found):
        return schema_refusal(snapshot.schema_found) or ""
    return ""


def _difference(snapshot: SiblingSnapshot, expected: Expectation) -> tuple[str, bool]:
    """How the snapshot differs from what the run expects, and whether that rules older ones out too."""
    refusal = schema_refusal(snapshot.schema_found)
    if refusal is not None:
        return refusal, False
    if snapshot.base_train_step != expected.train_step:
        return f"train step {snapshot.base_train_step}, the run is at {expected.train_step}", False
    if snapshot.trainer_version != expected.trainer_version:
        return f"trainer version {snapshot.trainer_version}, the run is at {expected.trainer_version}", False
    if snapshot.bootstrap_fingerprint != expected.bootstrap_fingerprint:
        saved, wanted = _short(snapshot.bootstrap_fingerprint), _short(expected.bootstrap_fingerprint)
        return f"bootstrap fingerprint {saved}, the run has {wanted}", False
    wants_gym = expected.participant_checkpointing
    if wants_gym is None or snapshot.has_gym == wants_gym:
        return "", False
    if snapshot.has_gym:
        return "it holds Gym state, but participant checkpointing is off in this run", True
    return "it holds no Gym state, but participant checkpointing is on in this run", True


def _short(fingerprint: str | None) -> str:
    return "none" if fingerprint is None else f"{fingerprint[:12]}..."
