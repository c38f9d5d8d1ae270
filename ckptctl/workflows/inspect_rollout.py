"""`inspect PATH --rollout ID`: the story of one rollout in one snapshot, or in all of an anchor or a checkpoint directory.

Snapshots are looked at one after the other, newest first, so that a long run needs no more memory than one snapshot. An id that
nobody names is an error with the nearest ids that there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Level, TargetReport, worst
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, snapshot_number, step_number
from ckptctl.domain.rollout_story import RolloutInspection, RolloutStory
from ckptctl.domain.safe_text import safe
from ckptctl.errors import NothingThereError, UsageError
from ckptctl.planning.rollout_story import Story, known_rollouts, names_it, tell_story
from ckptctl.workflows.inspect_directory import checkpoint_id_of, written_at_s
from ckptctl.workflows.inspect_snapshot import look, unread_of
from ckptctl.workflows.measure import Now
from ckptctl.workflows.targets import Target, find_targets
from ckptctl.workflows.world import World

NEAREST = 5


def inspect_rollout(world: World, path: str, rollout: str, level: Level) -> RolloutInspection:
    """Tell what every snapshot at an absolute path says of one rollout.

    Raises:
        NothingThereError: there is no snapshot, or none that names the rollout.
        UsageError: it is no place of snapshots.
        StorageError: it cannot be listed.
    """
    stories: list[RolloutStory] = []
    absent: list[str] = []
    known: set[str] = set()
    for target in snapshots_at(world, path):
        evidence, report = look(world, target, level)
        known |= known_rollouts(evidence)
        story = tell_story(evidence, rollout, report.verdict)
        if story is None:
            absent.append(told(target))
            continue
        stories.append(_story_in(world, target, evidence, report, rollout, story))
    if not stories:
        raise _unknown(path, rollout, known, len(absent))
    return RolloutInspection(
        path=path,
        rollout_id=rollout,
        level=level,
        verdict=worst([story.verdict for story in stories]),
        stories=tuple(stories),
        absent_from=tuple(absent),
    )


def rollout_in(
    world: World, target: Target, evidence: Evidence, report: TargetReport, rollout: str
) -> RolloutInspection:
    """The same of one snapshot that was loaded and judged already. Raises NothingThereError."""
    story = tell_story(evidence, rollout, report.verdict)
    if story is None:
        raise _unknown(target.path, rollout, known_rollouts(evidence), 1)
    return RolloutInspection(
        path=target.path,
        rollout_id=rollout,
        level=report.level,
        verdict=report.verdict,
        stories=(_story_in(world, target, evidence, report, rollout, story),),
        absent_from=(),
    )


def _story_in(
    world: World, target: Target, evidence: Evidence, report: TargetReport, rollout: str, story: Story
) -> RolloutStory:
    written_at = written_at_s(evidence)
    return RolloutStory(
        snapshot=told(target),
        path=target.path,
        checkpoint_id=checkpoint_id_of(evidence),
        written_at=written_at,
        age_s=None if written_at is None else Now(world.clock.now_s()).age_s(written_at),
        verdict=report.verdict,
        fate=story.fate,
        group=story.group,
        finished=story.finished,
        attempts=story.attempts,
        findings=tuple(item for item in report.findings if names_it(item, rollout)),
        unread=unread_of(evidence),
        reserve=evidence.reserve.state != "missing",
    )


def snapshots_at(world: World, path: str) -> tuple[Target, ...]:
    """Every snapshot at a path, newest first.

    Raises:
        NothingThereError: there is none.
        UsageError: it is no snapshot, anchor or checkpoint directory.
    """
    found = find_targets(world.store, path)
    if any(target.kind in {"data_plane", "pack"} for target in found):
        raise UsageError(
            f"`{safe(path)}` is no snapshot, anchor or checkpoint directory",
            hint="give one of those; a packed snapshot is unpacked first",
        )
    snapshots = sorted((target for target in found if target.kind == "snapshot"), key=_age_order, reverse=True)
    if not snapshots:
        raise NothingThereError(f"there is no snapshot in `{safe(path)}`", hint="`ckptctl snapshot` takes one")
    return tuple(snapshots)


def told(target: Target) -> str:
    """A snapshot by anchor and name; the path of one that lies in none."""
    if target.anchor is None:
        return target.path
    return f"{target.anchor.rpartition('/')[2]}/{target.path.rpartition('/')[2]}"


def _age_order(target: Target) -> tuple[int, int]:
    anchor = "" if target.anchor is None else target.anchor.rpartition("/")[2]
    step = -1 if anchor == BOOTSTRAP_FOLDER else step_number(anchor) or 0
    return step, snapshot_number(target.path.rpartition("/")[2]) or 0


def _unknown(path: str, rollout: str, known: Iterable[str], looked_at: int) -> NothingThereError:
    names = ", ".join(f"`{safe(name)}`" for name in nearest(rollout, known))
    where = "the snapshot" if looked_at == 1 else f"none of {looked_at} snapshots"
    says = "does not name it" if looked_at == 1 else "names it"
    return NothingThereError(
        f"no rollout `{safe(rollout)}` in `{safe(path)}`: {where} {says}",
        hint=f"the nearest ids: {names}" if names else "no rollout is named there at all",
    )


def nearest(rollout: str, known: Iterable[str]) -> tuple[str, ...]:
    """The ids that were most likely meant: that begin so, of which this is an attempt, or spelt almost like it."""
    names = sorted(known)
    akin = [name for name in names if rollout and (name.startswith(rollout) or rollout.startswith(f"{name}-a"))]
    alike = get_close_matches(rollout, names, n=NEAREST, cutoff=0.5)
    return tuple(dict.fromkeys((*akin[:NEAREST], *alike, *names)))[:NEAREST]
