"""Which leaked sessions may be retired: whoever may still call keeps its session."""

from ckptctl.domain.controller import LedgerGroup, LedgerSibling
from ckptctl.domain.participant import SelectedBoundary, SessionInventory
from ckptctl.planning.orphans import find_orphans, plan_orphans


def a_session(rollout: str, attempt: int = 0) -> SessionInventory:
    return SessionInventory(rollout_id=rollout, attempt_index=attempt, revision=1, mutation_receipts=1)


def a_boundary(rollout: str, attempt: int = 0, *servers: str) -> SelectedBoundary:
    return SelectedBoundary(
        rollout_id=rollout,
        attempt_index=attempt,
        boundary_index=0,
        turn_index=0,
        boundary_kind="turn_complete",
        resource_state_revisions=dict.fromkeys(servers, 1),
    )


def a_group(*siblings: tuple[str, int, str]) -> LedgerGroup:
    return LedgerGroup(
        group_id="g",
        recovery_granularity="sibling",
        siblings=[
            LedgerSibling(generation_index=index, rollout_id=rollout, current_attempt=attempt, status=status)
            for index, (rollout, attempt, status) in enumerate(siblings)
        ],
    )


def names(sessions):
    return [(item.server_name, item.rollout_id, item.attempt_index) for item in sessions]


def test_a_session_that_no_boundary_names_is_an_orphan() -> None:
    """By server and exact attempt: a boundary of another attempt, or one that names another server, claims nothing."""
    inventories = {"tools": [a_session("a"), a_session("b", 1), a_session("c")], "desk": [a_session("a")]}
    boundaries = [a_boundary("a", 0, "tools"), a_boundary("b", 0, "tools"), a_boundary("c", 0, "desk")]

    assert [("desk", "a", 0), ("tools", "b", 1), ("tools", "c", 0)] == names(find_orphans(inventories, boundaries))
    assert () == find_orphans({"tools": [a_session("a")]}, [a_boundary("a", 0, "tools", "desk")])


def test_whoever_may_still_call_keeps_its_session() -> None:
    """At work at an agent, or about to be sent: in use. Earlier attempts, and what was sent and is at no agent: retired."""
    sessions = [a_session("working", 1), a_session("waiting", 1), *map(a_session, ("done", "failed", "gone"))]
    orphans = find_orphans({"tools": sessions}, [])
    ledger = [
        a_group(("waiting", 1, "reserved"), ("failed", 1, "reserved"), ("gone", 0, "sealed"), ("done", 0, "dispatched"))
    ]
    plan = plan_orphans(orphans, [a_boundary("working", 1)], ledger)

    assert [("tools", "waiting", 1), ("tools", "working", 1)] == names(plan.in_use)
    assert [("tools", "done", 0), ("tools", "failed", 0), ("tools", "gone", 0)] == names(plan.retire)


def test_without_a_ledger_the_agents_alone_say_who_is_at_work() -> None:
    """A controller that does not show its ledger protects nobody who waits to be sent."""
    orphans = find_orphans({"tools": [a_session("working", 1), a_session("waiting", 1)]}, [])
    plan = plan_orphans(orphans, [a_boundary("working", 1)], [])

    assert ([("tools", "working", 1)], [("tools", "waiting", 1)]) == (names(plan.in_use), names(plan.retire))
