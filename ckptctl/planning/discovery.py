"""Which discovered topologies can take part in coordinated snapshots (participant-protocol section 3; design section
5, Scope).

Every rule yields refusals in plain words; nothing has been changed when one is made. Numbers are those of the section:

1. at least one server, (component, name) unique, at least one policy model; exactly one NeMo Gym actor
2. `instance_role` on models and nowhere else; no unmanaged server
3. every agent exports, hands out receipts and writes a continuation index
4. every exporting policy model writes a storage index
5. with a restart_only resources server, every agent can discard and names its dependencies
6. no exporting model that is not the policy
7. nobody is held by another checkpoint id
8. (names) a resources server is called the same by its configuration and by itself

What a topology *is* (its fingerprint) belongs to `domain.fingerprint`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ckptctl.domain.config import Group
from ckptctl.domain.ids import AGENT, MODEL, RESOURCES
from ckptctl.domain.participant import (
    FEATURE_ACKNOWLEDGEMENT,
    FEATURE_CONTINUATION_INDEX,
    FEATURE_DEPENDENCY_INDEX,
    FEATURE_DISCARD,
    FEATURE_STORAGE_INDEX,
    DiscoveredParticipant,
)
from ckptctl.domain.topology import Topology, topology_of
from ckptctl.errors import CheckpointConflictError, CkptctlError, DiscoveryRefusedError

ONE_ACTOR = (
    "exactly one NeMo Gym actor is supported (unsharded, or one shard with one replica); several Gym deployments cannot take "
    "part in one snapshot"
)
NO_POLICY_MODEL = "there is no policy model"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the topology cannot take part, by the number of the rule, and what helps."""

    rule: int
    text: str
    hint: str


def require_one_actor(groups: Mapping[str, Group]) -> None:
    """Refuse a configuration with more than one endpoint group. Raises DiscoveryRefusedError."""
    if len(groups) > 1:
        names = ", ".join(f"`{name or '(no group)'}`" for name in sorted(groups))
        raise DiscoveryRefusedError(
            f"the configuration has {len(groups)} endpoint groups ({names}): {ONE_ACTOR}",
            hint="leave one group in `ckptctl.participants`",
        )


def require_topology(discovered: Iterable[DiscoveredParticipant]) -> Topology:
    """The topology, if it may take part. Raises DiscoveryRefusedError with the first refusal; the hint counts the others."""
    topology = topology_of(discovered)
    refusals = topology_refusals(topology)
    if refusals:
        first, *others = refusals
        hint = first.hint
        if others:
            hint += "; also: " + "; ".join(item.text for item in others)
        raise DiscoveryRefusedError(first.text, hint=hint)
    return topology


def topology_refusals(topology: Topology) -> tuple[Refusal, ...]:
    """Every breach of rules 1 to 6 and of the rule on names."""
    found = topology.discovered
    return (
        *_servers(found),
        *_roles(found),
        *_agents(found),
        *_models(found),
        *_restart_only(topology),
        *_names(found),
    )


def name_warnings(topology: Topology) -> tuple[str, ...]:
    """Models and agents may be called differently; the difference is told, because later messages use both names."""
    return tuple(
        f"`{item.server_name}` calls itself `{item.capabilities.name}`"
        for item in topology.discovered
        if item.capabilities.component != RESOURCES and item.capabilities.name != item.server_name
    )


def busy_refusal(discovered: Iterable[DiscoveredParticipant]) -> CkptctlError | None:
    """Rule 7: the error that names who holds what, or None when every participant is idle."""
    held = [item for item in discovered if item.capabilities.phase != "idle"]
    if not held:
        return None
    told = "; ".join(
        f"`{item.server_name}` is {item.capabilities.phase}"
        + (f" under `{item.capabilities.active_checkpoint_id}`" if item.capabilities.active_checkpoint_id else "")
        for item in held
    )
    ids = [item.capabilities.active_checkpoint_id for item in held if item.capabilities.active_checkpoint_id]
    way = way_to_free(ids[0] if ids else "ID", (item.capabilities.phase for item in held))
    return CheckpointConflictError(
        f"another checkpoint is active: {told}", hint=f"wait for that coordinator; if it is certainly gone, {way}"
    )


def way_to_free(checkpoint_id: str, phases: Iterable[str]) -> str:
    """What frees servers that a coordinator which is gone left in these phases. A restore cannot be undone."""
    if any(phase.startswith("restor") for phase in phases):
        return (
            "restart the controller and all Gym servers as fresh ones, told to expect a restore: "
            "what a restore has begun cannot be undone"
        )
    return f"free them with `ckptctl publish --release {checkpoint_id} --reason TEXT`"


def cannot_discard(topology: Topology) -> tuple[str, ...]:
    """Agents that could not drop a restored continuation. Rule 5 asks it of them only beside a restart_only server; a restore
    may need it without one, when a continuation does not say what it depends on.
    """
    return tuple(
        item.server_name
        for item in topology.discovered
        if item.capabilities.component == AGENT and FEATURE_DISCARD not in item.capabilities.features
    )


def refusals_so_far(topology: Topology) -> tuple[Refusal, ...]:
    """As `topology_refusals`, where not everybody answered: what a silent server may supply is not called missing."""
    if not topology.discovered:
        return ()
    return tuple(item for item in topology_refusals(topology) if item.text != NO_POLICY_MODEL)


def _servers(found: tuple[DiscoveredParticipant, ...]) -> Iterator[Refusal]:
    if not found:
        yield Refusal(1, "no participant is configured", "list the Gym servers under `ckptctl.participants`")
        return
    counts = Counter((item.capabilities.component, item.capabilities.name) for item in found)
    for (component, name), count in sorted(counts.items()):
        if count > 1:
            text = f"{count} servers say that they are `{name}` ({component}): {ONE_ACTOR}"
            yield Refusal(1, text, "leave one of them in `ckptctl.participants`")
    if not any(item.capabilities.instance_role == "policy" for item in found):
        yield Refusal(1, NO_POLICY_MODEL, "list the policy model under `ckptctl.participants`")


def _roles(found: tuple[DiscoveredParticipant, ...]) -> Iterator[Refusal]:
    for item in found:
        facts = item.capabilities
        if facts.component == MODEL and facts.instance_role is None:
            text = (
                f"`{item.server_name}` is a model without `instance_role`: it cannot be told whether it is the policy"
            )
            yield Refusal(2, text, "use a Gym build that reports the role")
        if facts.component != MODEL and facts.instance_role is not None:
            text = f"`{item.server_name}` is no model, but reports `instance_role` `{facts.instance_role}`"
            yield Refusal(2, text, "check that the url belongs to the server that it is listed for")
        if facts.multi_process.mode == "unmanaged":
            text = (
                f"`{item.server_name}` runs {facts.multi_process.num_workers} workers that nobody coordinates: "
                "pausing one does not pause the others"
            )
            yield Refusal(2, text, "run it with one worker, or with a coordinator")


def _agents(found: tuple[DiscoveredParticipant, ...]) -> Iterator[Refusal]:
    for item in found:
        facts = item.capabilities
        if facts.component != AGENT:
            continue
        if facts.checkpoint_mode != "export_restore":
            text = f"agent `{item.server_name}` is {facts.checkpoint_mode}: its rollouts cannot be continued"
            yield Refusal(
                3, text, "start it with the control token; without one an agent does not announce export_restore"
            )
        if FEATURE_ACKNOWLEDGEMENT not in facts.features:
            text = f"agent `{item.server_name}` lacks `{FEATURE_ACKNOWLEDGEMENT}`: a finished result could be lost or doubled"
            yield Refusal(3, text, "use a Gym build with completed-result receipts")
        if facts.checkpoint_mode == "export_restore" and FEATURE_CONTINUATION_INDEX not in facts.features:
            text = f"agent `{item.server_name}` lacks `{FEATURE_CONTINUATION_INDEX}`: it cannot park"
            yield Refusal(3, text, "use an agent that writes continuations")


def _models(found: tuple[DiscoveredParticipant, ...]) -> Iterator[Refusal]:
    for item in found:
        facts = item.capabilities
        if facts.component != MODEL:
            continue
        exports = facts.checkpoint_mode == "export_restore"
        if facts.instance_role == "policy" and not exports:
            text = f"policy model `{item.server_name}` is {facts.checkpoint_mode}: the lineage of its calls cannot be saved"
            yield Refusal(4, text, "start it with the control token and external staging")
        if facts.instance_role == "policy" and exports and FEATURE_STORAGE_INDEX not in facts.features:
            text = (
                f"policy model `{item.server_name}` lacks `{FEATURE_STORAGE_INDEX}`: nobody knows which rows it needs"
            )
            yield Refusal(4, text, "use a Gym build that writes the storage index")
        if facts.instance_role == "policy" and exports and "paused" not in facts.admission_states:
            text = f"policy model `{item.server_name}` cannot pause (it knows {', '.join(facts.admission_states) or 'no state'})"
            yield Refusal(4, text, "use a Gym build whose policy model can be paused")
        if facts.instance_role == "auxiliary" and exports:
            text = f"model `{item.server_name}` exports state, but is not the policy: no snapshot with it could be restored"
            yield Refusal(6, text, "run it stateless or restart_only")


def _restart_only(topology: Topology) -> Iterator[Refusal]:
    if not topology.restart_only:
        return
    servers = ", ".join(f"`{item.server_name}`" for item in topology.restart_only)
    for item in topology.discovered:
        facts = item.capabilities
        if facts.component != AGENT or FEATURE_CONTINUATION_INDEX not in facts.features:
            continue
        for feature in (FEATURE_DISCARD, FEATURE_DEPENDENCY_INDEX):
            if feature not in facts.features:
                text = f"agent `{item.server_name}` lacks `{feature}`, which is needed because {servers} cannot export state"
                yield Refusal(5, text, "use an agent build with that feature, or leave the server out of the run")


def _names(found: tuple[DiscoveredParticipant, ...]) -> Iterator[Refusal]:
    listed = {item.server_name for item in found}
    for item in found:
        if item.capabilities.component == RESOURCES and item.capabilities.name != item.server_name:
            text = (
                f"resources server `{item.server_name}` calls itself `{item.capabilities.name}`: "
                "continuations name it by the one, the topology by the other"
            )
            yield Refusal(8, text, _where_to_list(item, listed))


def _where_to_list(item: DiscoveredParticipant, listed: set[str]) -> str:
    name = item.capabilities.name
    if name in listed:
        return (
            f"`{item.server_name}` in `ckptctl.participants` seems to have the url of `{name}`, which is listed as well"
        )
    return f"list it as `{name}` under `ckptctl.participants`"
