"""`inspect --html`: gathers what a page shows of one snapshot or of a directory; how it looks is the renderer's business.

Rollouts: the one that was asked for, else of a snapshot the few that are worth a picture, those with findings first.
"""

from __future__ import annotations

from ckptctl import __version__
from ckptctl.domain.agreement import DirectoryPage, SnapshotPage
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Level, TargetReport
from ckptctl.domain.inspection import DirectoryInspection
from ckptctl.domain.safe_text import safe
from ckptctl.domain.timings import TimingsInspection
from ckptctl.errors import CkptctlError, NothingThereError, UsageError
from ckptctl.planning.agreement import agreement
from ckptctl.planning.rollout_story import known_rollouts, names_it
from ckptctl.workflows.inspect import checkpoint_dir_of, run_inspection
from ckptctl.workflows.inspect_rollout import inspect_rollout, rollout_in
from ckptctl.workflows.inspect_snapshot import describe_snapshot, look
from ckptctl.workflows.inspect_timings import inspect_timings
from ckptctl.workflows.targets import Target, find_targets
from ckptctl.workflows.world import World

PICTURES = 6
"""Rollouts of a snapshot that are drawn when nobody asked for one."""


def gather_page(world: World, path: str, rollout: str | None, level: Level | None) -> SnapshotPage | DirectoryPage:
    """Everything that a page about an absolute path shows.

    Raises:
        NothingThereError: there is nothing, or no snapshot names the rollout.
        UsageError: it is something of which there is no page.
        StorageError: it cannot be listed.
    """
    targets = _targets(world, path)
    if len(targets) == 1 and targets[0].kind == "snapshot":
        return _snapshot_page(world, targets[0], rollout, level or "standard")
    inspection = run_inspection(world, path, level)
    if not isinstance(inspection, DirectoryInspection):
        raise UsageError(
            f"`--html` is about a snapshot, an anchor or a checkpoint directory; `{safe(path)}` is something else",
            hint="give one of those",
        )
    deep: Level = "full" if level == "full" else "standard"
    return DirectoryPage(
        inspection=inspection,
        rollouts=() if rollout is None else (inspect_rollout(world, path, rollout, deep),),
        timings=_timings(world, path),
        made_at=world.clock.now_s(),
        tool_version=__version__,
    )


def _targets(world: World, path: str) -> tuple[Target, ...]:
    try:
        return find_targets(world.store, path)
    except NothingThereError:
        return ()  # perhaps a run that has only begun, which `run_inspection` knows


def _snapshot_page(world: World, target: Target, rollout: str | None, level: Level) -> SnapshotPage:
    evidence, report = look(world, target, level)
    wanted = _worth_a_picture(evidence, report) if rollout is None else (rollout,)
    return SnapshotPage(
        inspection=describe_snapshot(world, target, level, evidence, report),
        cells=agreement(report.outcomes, report.findings),
        rollouts=tuple(rollout_in(world, target, evidence, report, name) for name in wanted),
        timings=_timings(world, target.path),
        made_at=world.clock.now_s(),
        tool_version=__version__,
    )


def _worth_a_picture(evidence: Evidence, report: TargetReport) -> tuple[str, ...]:
    """Rollouts with findings first, then those that an agent holds at a boundary, then others of the ledger."""
    known = sorted(known_rollouts(evidence))
    held = {record.rollout_id for agent in evidence.agents for record in agent.boundaries()}
    unfinished = set() if evidence.ledger.value is None else set(evidence.ledger.value.siblings())

    def rank(name: str) -> tuple[bool, bool, bool]:
        return not any(names_it(finding, name) for finding in report.findings), name not in held, name not in unfinished

    return tuple(sorted((name for name in known if name in held | unfinished), key=rank)[:PICTURES])


def _timings(world: World, path: str) -> TimingsInspection | None:
    """How long the snapshots took, where journals tell; a page is made without them all the same."""
    try:
        return inspect_timings(world, checkpoint_dir_of(path), path)
    except CkptctlError:
        return None
