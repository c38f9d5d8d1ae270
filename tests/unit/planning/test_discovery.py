"""Which topologies may take part: every rule in plain words."""

from __future__ import annotations

import pytest

from ckptctl.domain.config import Endpoint
from ckptctl.domain.participant import Capabilities, DiscoveredParticipant
from ckptctl.domain.topology import topology_of
from ckptctl.errors import CheckpointConflictError, DiscoveryRefusedError
from ckptctl.planning.discovery import (
    busy_refusal,
    name_warnings,
    require_one_actor,
    require_topology,
    topology_refusals,
)

AGENT_FEATURES = [
    "completed_result_acknowledgement",
    "agent_continuation_index_v1",
    "discard_restored_continuation_v1",
    "agent_resource_dependency_index_v1",
]


def a_server(server_name: str, component: str, **changes) -> DiscoveredParticipant:
    """A server that may take part, with some facts changed."""
    features = {"responses_api_agents": AGENT_FEATURES, "responses_api_models": ["external_storage_reference_index_v1"]}
    facts = {
        "component": component,
        "name": server_name,
        "schema_version": 1,
        "admission_states": ["accepting", "draining", "paused"],
        "checkpoint_mode": "export_restore",
        "concurrency_contract": "serialized_per_session",
        "multi_process": {"mode": "single_worker", "num_workers": 1},
        "instance_role": "policy" if component == "responses_api_models" else None,
        "features": features.get(component, []),
        "phase": "idle",
        "active_checkpoint_id": None,
        **changes,
    }
    return DiscoveredParticipant(server_name=server_name, capabilities=Capabilities.model_validate(facts))


def model(server="policy_model", **changes):
    return a_server(server, "responses_api_models", **changes)


def agent(server="simple_agent", **changes):
    return a_server(server, "responses_api_agents", **changes)


def resources(server="counter", **changes):
    return a_server(server, "resources_servers", **changes)


def test_a_sound_topology_is_sorted_by_what_is_done_with_it() -> None:
    """Exporting servers take part; stateless and restart_only ones do not, but the latter are known."""
    topology = require_topology(
        [
            resources("tools"),
            resources("judge", checkpoint_mode="restart_only"),
            resources("search", checkpoint_mode="stateless"),
            agent("b"),
            agent("a"),
            model(),
            model("grader", instance_role="auxiliary", checkpoint_mode="stateless", features=[]),
        ]
    )

    assert ["policy_model"] == [item.server_name for item in topology.models]
    assert ["a", "b"] == [item.server_name for item in topology.agents]
    assert ["tools"] == [item.server_name for item in topology.resources]
    assert ["judge"] == [item.server_name for item in topology.restart_only]


UNMANAGED = {"mode": "unmanaged", "num_workers": 4}


@pytest.mark.parametrize(
    ("servers", "rule", "text"),
    [
        ([], 1, "no participant is configured"),
        ([agent(), resources()], 1, "there is no policy model"),
        ([model(), agent(), agent("other", name="simple_agent")], 1, "exactly one NeMo Gym actor is supported"),
        ([model(), model("x", instance_role=None), agent()], 2, "`x` is a model without `instance_role`"),
        ([model(), agent(instance_role="policy")], 2, "is no model, but reports `instance_role` `policy`"),
        ([model(), agent(multi_process=UNMANAGED)], 2, "runs 4 workers that nobody coordinates"),
        (
            [
                model(),
                agent(),
                model("j", instance_role="auxiliary", checkpoint_mode="stateless", multi_process=UNMANAGED),
            ],
            2,
            "`j` runs 4 workers",
        ),
        (
            [model(), agent(checkpoint_mode="stateless")],
            3,
            "agent `simple_agent` is stateless: its rollouts cannot be continued",
        ),
        ([model(), agent(features=AGENT_FEATURES[1:])], 3, "lacks `completed_result_acknowledgement`"),
        ([model(), agent(features=AGENT_FEATURES[:1])], 3, "lacks `agent_continuation_index_v1`"),
        ([model(features=[]), agent()], 4, "lacks `external_storage_reference_index_v1`"),
        ([model(checkpoint_mode="restart_only"), agent()], 4, "policy model `policy_model` is restart_only"),
        ([model(admission_states=["accepting"]), agent()], 4, "cannot pause (it knows accepting)"),
        (
            [model(), agent(features=AGENT_FEATURES[:2]), resources(checkpoint_mode="restart_only")],
            5,
            "lacks `discard_restored_continuation_v1`, which is needed because `counter` cannot export state",
        ),
        (
            [model(), agent(features=AGENT_FEATURES[:3]), resources(checkpoint_mode="restart_only")],
            5,
            "lacks `agent_resource_dependency_index_v1`",
        ),
        (
            [model(), agent(), model("aux", instance_role="auxiliary")],
            6,
            "model `aux` exports state, but is not the policy",
        ),
        ([model(), agent(), resources("tools", name="other")], 8, "resources server `tools` calls itself `other`"),
    ],
)
def test_each_rule_refuses_in_plain_words(servers, rule, text) -> None:
    """One breach, one refusal with the number of its rule; nothing was changed, so the exit status is 20."""
    refusals = topology_refusals(topology_of(servers))

    assert text in " ".join(refusal.text for refusal in refusals if refusal.rule == rule)
    with pytest.raises(DiscoveryRefusedError, match=".") as error:
        require_topology(servers)
    assert 20 == error.value.exit_code


def test_several_refusals_are_told_together() -> None:
    """The first is the message, the others follow in the hint."""
    with pytest.raises(DiscoveryRefusedError, match="no policy model") as error:
        require_topology([agent(checkpoint_mode="stateless")])

    assert "also: agent `simple_agent` is stateless" in error.value.hint


def test_exchanged_urls_are_suspected_where_both_names_are_listed() -> None:
    """A resources server under the name of the agent, whose own name is listed too."""
    found = [model(), agent("counter", name="simple_agent"), resources("simple_agent", name="counter")]
    [refusal] = topology_refusals(topology_of(found))

    assert "`simple_agent` in `ckptctl.participants` seems to have the url of `counter`" in refusal.hint


def test_features_matter_only_where_they_are_needed() -> None:
    """Without a restart_only server an agent need not be able to discard."""
    assert () == topology_refusals(topology_of([model(), agent(features=AGENT_FEATURES[:2]), resources()]))


def test_other_names_are_told_but_allowed() -> None:
    """A model or agent may call itself differently; the operator learns both names."""
    topology = topology_of([model(name="policy"), agent(), resources()])

    assert () == topology_refusals(topology)
    assert ("`policy_model` calls itself `policy`",) == name_warnings(topology)


def test_a_busy_server_is_reported_with_its_holder() -> None:
    """Who holds what, until when, and how to free it; exit 21."""
    busy = busy_refusal([model(phase="preparing", active_checkpoint_id="ck-9", deadline_ts=5.0), agent()])

    assert isinstance(busy, CheckpointConflictError)
    assert 21 == busy.exit_code
    assert "`policy_model` is preparing under `ck-9`" in busy.message
    assert "--release ck-9" in busy.hint
    assert busy_refusal([model(), agent()]) is None


def test_a_second_endpoint_group_is_a_second_actor() -> None:
    """Exactly one Gym actor: more groups in the configuration are refused in so many words."""
    endpoint = {"m": Endpoint(url="http://a")}
    require_one_actor({"": endpoint})
    require_one_actor({"shard_0": endpoint})

    with pytest.raises(
        DiscoveryRefusedError, match=r"2 endpoint groups \(`\(no group\)`, `shard_1`\): exactly one NeMo Gym actor"
    ):
        require_one_actor({"": endpoint, "shard_1": endpoint})
