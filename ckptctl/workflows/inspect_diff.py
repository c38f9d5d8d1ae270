"""`inspect NEWER --diff OLDER`: two snapshots compared, of one run or of what should be one.

Which is the older one is told by their names where both lie in one checkpoint directory, whatever order they were given in. There
the journals also tell whether a restore went back further between the two.
"""

from __future__ import annotations

from collections import Counter

from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Level, TargetReport, VerdictName, worst
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, snapshot_number, step_number
from ckptctl.domain.safe_text import safe
from ckptctl.domain.snapshot_diff import KIND_ORDER, Change, ComparedSnapshot, SnapshotDiff
from ckptctl.errors import CkptctlError, ExitCode, UsageError
from ckptctl.planning.snapshot_diff import compare_snapshots
from ckptctl.workflows.inspect_directory import checkpoint_id_of, written_at_s
from ckptctl.workflows.inspect_rollout import told
from ckptctl.workflows.inspect_snapshot import look, unread_of
from ckptctl.workflows.targets import Target, find_targets
from ckptctl.workflows.told_transactions import transaction_named
from ckptctl.workflows.validate import VERDICT_CODES
from ckptctl.workflows.world import World

RESTORED = "restored"
Order = tuple[int, int]


def inspect_diff(world: World, older_path: str, newer_path: str, level: Level) -> SnapshotDiff:
    """Compare two snapshots, given by absolute paths.

    Raises:
        NothingThereError: one is not there.
        UsageError: one is no snapshot, or both are the same.
        StorageError: one cannot be listed.
    """
    older, newer = _snapshot(world, older_path), _snapshot(world, newer_path)
    if older.path == newer.path:
        raise UsageError(f"`{safe(older.path)}` is compared with itself", hint="name two snapshots of one run")
    is_swapped = _is_later(older, newer)
    if is_swapped:
        older, newer = newer, older
    rewound_to = _rewound_to(world, older, newer)
    (before, old_report), (after, new_report) = look(world, older, level), look(world, newer, level)
    changes, measures = compare_snapshots(before, after, rewound=rewound_to is not None)
    kinds = Counter(item.kind for item in changes)
    return SnapshotDiff(
        older=_compared(older, before, old_report),
        newer=_compared(newer, after, new_report),
        is_swapped=is_swapped,
        rewound_to=rewound_to,
        level=level,
        exit_code=int(_exit_code(changes, worst([old_report.verdict, new_report.verdict]))),
        counts={kind: kinds[kind] for kind in KIND_ORDER},
        measures=measures,
        changes=changes,
    )


def _snapshot(world: World, path: str) -> Target:
    found = find_targets(world.store, path)
    if len(found) != 1 or found[0].kind != "snapshot":
        raise UsageError(
            f"`--diff` compares two snapshots; `{safe(path)}` is something else",
            hint="for example `ckptctl inspect --diff RUN/step_1/rollout_snapshots/snapshot_000001 "
            "RUN/step_1/rollout_snapshots/snapshot_000002`",
        )
    return found[0]


def _exit_code(changes: tuple[Change, ...], verdict: VerdictName) -> ExitCode:
    codes = {VERDICT_CODES[verdict]}
    for item in changes:
        if item.kind == "unexpected":
            codes.add(ExitCode.INCOMPATIBLE if item.incompatible else ExitCode.INVALID)
    return max(codes)


def _compared(target: Target, evidence: Evidence, report: TargetReport) -> ComparedSnapshot:
    return ComparedSnapshot(
        snapshot=told(target),
        path=target.path,
        checkpoint_id=checkpoint_id_of(evidence),
        written_at=written_at_s(evidence),
        verdict=report.verdict,
        unread=unread_of(evidence),
    )


def _run_of(target: Target) -> str | None:
    return None if target.anchor is None else target.anchor.rpartition("/")[0]


def _is_later(one: Target, other: Target) -> bool:
    """Whether the first is newer by its name; only names of one run can be compared."""
    if _run_of(one) is None or _run_of(one) != _run_of(other):
        return False
    return _order(told(one)) > _order(told(other))


def _order(name: str) -> Order:
    """Where a snapshot stands in its run, by anchor and name."""
    anchor, snapshot = name.partition("/")[0], name.rpartition("/")[2]
    step = -1 if anchor == BOOTSTRAP_FOLDER else step_number(anchor)
    number = snapshot_number(snapshot)
    return (-2 if step is None else step), (-1 if number is None else number)


def _rewound_to(world: World, older: Target, newer: Target) -> str | None:
    """The snapshot before both that a restore between them went back to, as far as the journals tell."""
    if _run_of(older) is None or _run_of(older) != _run_of(newer):
        return None
    try:
        book = [
            transaction_named(world, name)
            for name in world.journal.transactions()
            if name.endswith(("-snapshot", "-restore"))
        ]
    except CkptctlError as error:
        world.notice(f"{error.message}: whether a restore lies between the two is not known")
        return None
    finals = [item.first.get("final") if item.is_published else None for item in book]
    paths = [
        f"{target.anchor}/".rsplit("/", 2)[1] + target.path.removeprefix(target.anchor or "")
        for target in (older, newer)
    ]
    if any(path not in finals for path in paths):
        return None
    first, last = (len(finals) - 1 - finals[::-1].index(path) for path in paths)
    for item in book[first:last]:
        facts = item.restore_facts()
        if facts is not None and item.finish == RESTORED and _order(facts.snapshot) < _order(told(older)):
            return facts.snapshot
    return None
