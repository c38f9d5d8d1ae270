"""How the rules of level full get at the facts of staged rows, and what they say when some could not be read.

A row that is not what its key or its digest says is one finding of INV006 or INV007; nothing else is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptctl.domain.evidence import Evidence, Part, TargetKind
from ckptctl.domain.staged_facts import StagedFacts
from ckptctl.rules._model import CannotRunError
from ckptctl.rules._views import INVENTORY_REQUIRES, data_plane_of, unreadable_units
from ckptctl.rules.staged_plan import plan_staged

STAGED_REQUIRES = INVENTORY_REQUIRES
STAGED_TARGETS: tuple[TargetKind, ...] = ("snapshot", "anchor", "data_plane")
UNUSABLE_ROW = "INV005"
"""The rule that reports staged rows whose fields are absent, opaque or of another type."""


def staged_parts(evidence: Evidence) -> Mapping[str, Part[StagedFacts]]:
    """Every staged row that was read, by its key.

    Raises:
        CannotRunError: rows were not read; whoever explains that is named.
    """
    if evidence.staged is not None:
        return evidence.staged
    if plan_staged(evidence) is not None:
        raise CannotRunError("the bytes of staged rows were not read")
    return {}


def needed_rows(evidence: Evidence) -> Iterator[tuple[str, Part[StagedFacts], StagedFacts]]:
    """Every needed row whose bytes could be read: key, part, facts."""
    for key, part in staged_parts(evidence).items():
        if part.value is not None and part.value.is_needed:
            yield key, part, part.value


def sound_rows(evidence: Evidence) -> Iterator[tuple[str, Part[StagedFacts], StagedFacts]]:
    """Of those, the ones that are what their key and their digest say."""
    return (found for found in needed_rows(evidence) if found[2].is_sound_as(found[0]))


def sound_row(evidence: Evidence, key: object) -> StagedFacts | None:
    """The facts of one needed, sound row."""
    part = staged_parts(evidence).get(key) if isinstance(key, str) else None
    facts = part.value if part is not None else None
    return facts if facts is not None and facts.is_needed and facts.is_sound_as(str(key)) else None


def demand_all_read(evidence: Evidence) -> None:
    """To be called at the end of a check: whether every needed row could be looked at.

    Raises:
        CannotRunError: one could not.
    """
    unreadable = unreadable_units(evidence, data_plane_of(evidence))
    if unreadable is not None:
        raise unreadable
    for key, part in staged_parts(evidence).items():
        if part.state == "unreadable":
            raise CannotRunError(part.reason, artifact=part.path)
        if part.state == "unsupported":
            raise CannotRunError(f"staging row `{key}`: {part.reason}", because=(UNUSABLE_ROW,), artifact=part.path)
