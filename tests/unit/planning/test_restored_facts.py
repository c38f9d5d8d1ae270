"""What evidence says of a snapshot's rollouts, and whether a restored controller's ledger is the saved one."""

from dataclasses import replace

import msgspec
import pytest

from ckptctl.domain.controller import LedgerGroup, LedgerSibling
from ckptctl.planning.restored_facts import (
    continuations_of,
    ledger_differences,
    plan_from,
    route_plan_keys,
    saved_counts,
    servers_without_state,
    sessions_of,
    siblings_of_controller,
    siblings_of_ledger,
)
from tests.builders import a_bootstrap_world, an_evidence
from tests.world import a_replay, a_replay_group


def shown(evidence, **changes) -> list[LedgerGroup]:
    """The ledger as a controller that restored it would show it."""
    groups: dict[str, LedgerGroup] = {}
    for fact in siblings_of_ledger(evidence):
        stays = fact.status == "reserved" or (
            fact.status == "sealed" and (fact.is_ready or fact.granularity == "sibling")
        )
        sibling = LedgerSibling(
            generation_index=fact.generation_index,
            rollout_id=fact.rollout_id,
            current_attempt=fact.current_attempt,
            status=fact.status if stays else "abandoned",
        )
        sibling = sibling.model_copy(update=changes.get(fact.rollout_id, {}))
        group = groups.setdefault(
            fact.group_id, LedgerGroup(group_id=fact.group_id, recovery_granularity=fact.granularity, siblings=[])
        )
        group.siblings.append(sibling)
    return list(groups.values())


def test_the_default_world():
    """Two boundaries continue, one sibling has none, one is sealed; the keys of each come from lineage."""
    evidence = an_evidence()
    plan = plan_from(evidence, siblings_of_ledger(evidence))
    modes = {item.rollout_id: (item.source_attempt, item.mode) for item in plan.redispatch}
    keys = {fact.rollout_id: fact.staging_keys for fact in continuations_of(evidence)}

    assert {"g7_g0": (1, "continue"), "g8_g0": (0, "continue"), "g8_g1": (0, "restart")} == modes
    assert 1 == len(plan.reused)
    assert {"g7_g0/call-5", "g7_g0-a1/call-8"} <= set(keys["g7_g0"])
    assert all(keys.values())
    assert {("tools", "g7_g0", 1)} == {
        (fact.server_name, fact.rollout_id, fact.attempt_index) for fact in sessions_of(evidence)
    }


def test_a_framework_of_its_own_is_known_by_its_references():
    """Then the storage index says which rows a continuation needs."""
    evidence = an_evidence()
    foreign = replace(evidence, models=tuple(replace(model, is_foreign=True, lineage={}) for model in evidence.models))
    keys = lambda found: {fact.rollout_id: set(fact.staging_keys) for fact in continuations_of(found)}  # noqa: E731 - said twice

    assert keys(evidence) == keys(foreign)


def test_a_record_without_a_model_call_is_a_boundary_too():
    """It has no index row and needs no staged row, but its agent restores it."""
    evidence = an_evidence()
    bare = tuple(replace(agent, continuations=replace(agent.continuations, value=())) for agent in evidence.agents)
    facts = continuations_of(replace(evidence, agents=bare))
    plan = plan_from(replace(evidence, agents=bare), siblings_of_ledger(evidence))

    assert {(False, ())} == {(fact.has_model_call, fact.staging_keys) for fact in facts}
    assert {"boundary before the first model call", "no boundary"} == {item.reason for item in plan.redispatch}


def test_revisions_that_the_index_does_not_tell_are_unknown():
    """Whatever the record says: the index is older than the dependency feature."""
    evidence = an_evidence()
    unknown = tuple(
        replace(
            agent,
            continuations=replace(
                agent.continuations,
                value=tuple(
                    msgspec.structs.replace(row, resource_state_revisions=None) for row in agent.continuations.value
                ),
            ),
        )
        for agent in evidence.agents
    )
    plan = plan_from(replace(evidence, agents=unknown), siblings_of_ledger(evidence))

    assert {"dependencies unknown", "no boundary"} == {item.reason for item in plan.redispatch}
    assert 2 == len(plan.discards)


def test_a_server_that_saved_nothing_is_without_state():
    """Whether discovery calls it restart_only or does not know it."""
    evidence = an_evidence()

    assert frozenset() == servers_without_state(evidence, ())
    assert {"genrm"} == servers_without_state(evidence, ["genrm"])
    assert {"tools"} <= servers_without_state(replace(evidence, resources=()), ())


def test_finished_groups_are_nobodys_siblings():
    """A group that replay owns is left out of the ledger's."""
    evidence = an_evidence()
    owned = a_replay([a_replay_group("g8", [{"weight_version": 3}, {"weight_version": 3}])])
    changed = replace(evidence, replay=replace(evidence.replay, value=owned))

    assert {"g7", "g8"} == {fact.group_id for fact in siblings_of_ledger(evidence)}
    assert {"g7"} == {fact.group_id for fact in siblings_of_ledger(changed)}
    assert route_plan_keys(evidence)
    assert not route_plan_keys(changed)


def test_what_a_restored_controller_must_report():
    """Counters of the manifest, groups and rows."""
    evidence = an_evidence()

    assert {
        "train_step": 3,
        "trainer_version": 3,
        "epoch": 0,
        "ledger_groups": 2,
        "replay_groups": 2,
        "canonical_rows": 4,
    } == saved_counts(evidence)
    assert 0 == saved_counts(an_evidence(world=a_bootstrap_world()))["ledger_groups"]


def test_the_saved_ledger_shown_again_does_not_differ():
    """And gives the same plan as the snapshot's own ledger."""
    evidence = an_evidence()
    groups = shown(evidence)
    from_controller = plan_from(evidence, siblings_of_controller(groups, evidence))

    assert [] == list(ledger_differences(groups, evidence))
    assert from_controller == plan_from(evidence, siblings_of_ledger(evidence))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"g7_g0": {"current_attempt": 2}}, "`g7_g0` is at attempt 2, saved was 1"),
        ({"g7_g0": {"status": "sealed"}}, "`g7_g0` attempt 1 is sealed, saved was dispatched"),
        ({"g7_g0": {"status": "reserved"}}, "`g7_g0` attempt 1 is reserved, saved was dispatched"),
        ({"g7_g1": {"status": "abandoned"}}, "`g7_g1` attempt 0 is abandoned, saved was sealed"),
    ],
    ids=["attempt", "sealed", "reserved", "lost"],
)
def test_a_sibling_that_differs(changes, told):
    """What would run an attempt twice, or lose a result."""
    evidence = an_evidence()

    assert [told] == list(ledger_differences(shown(evidence, **changes), evidence))


def test_a_group_that_differs():
    """Missing, of another granularity, or a stranger."""
    evidence = an_evidence()
    groups = shown(evidence)
    other = [group.model_copy(update={"recovery_granularity": "prompt_group"}) for group in groups[:1]]
    stranger = LedgerGroup(
        group_id="g9",
        recovery_granularity="sibling",
        siblings=[LedgerSibling(generation_index=0, rollout_id="g9_g0", current_attempt=0, status="abandoned")],
    )

    assert ["`g8_g0` is missing", "`g8_g1` is missing"] == [
        item for item in ledger_differences(groups[:1], evidence) if "g8" in item
    ]
    assert all("of another granularity" in item for item in ledger_differences([*other, *groups[1:]], evidence))
    assert ["`g9_g0` is not in the saved ledger"] == list(ledger_differences([*groups, stranger], evidence))
