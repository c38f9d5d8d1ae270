"""The content of one valid snapshot, as values: what a run was doing when it was saved.

Step 3. Groups `g5` and `g6` are finished (`g6` with deferred routes). `g7`: sibling 0 was restored once, is at attempt 1 and parked
after its third model call, its tool session at revision 4; sibling 1 is sealed. `g8`: sibling 0 is parked in the middle of its actions
(`pending_model`), sibling 1 has no boundary yet and one staged row that nothing needs. Everything that a correct writer derives
from this (indexes, counts, digests, bindings) is derived in `tests.artifacts` and `tests.builders`.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckptctl.domain.canonical import replay_digest
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.ledger import Attempt, Group, Ledger, PromptReference, Sibling
from ckptctl.domain.participant import Capabilities, CompletionReceipt, DiscoveredParticipant, Execution, MultiProcess
from ckptctl.domain.participant_files import BoundaryRecord, MutationReceipt, PendingModel, SessionRecord
from ckptctl.domain.replay import ReplayGroup, ReplayMetadata, RowMeta
from ckptctl.domain.rows import ContinuationRow, LineageRow, StorageReferenceRow
from ckptctl.domain.staged import StagedRow, stage_call

AGENT, SPARE, MODEL, TOOLS, DESK, JUDGE = "policy_agent", "spare_agent", "policy_model", "tools", "desk", "judge"
CANONICAL, STAGING = "rollout_data", "rollout_staging"
CHECKPOINT_ID = "rollout-step-3-snapshot-2-0f0e0d0c0b0a09080706050403020100"
OTHER_DIGEST = "ab" * 32
CANONICAL_FIELDS = (
    "input_ids",
    "input_lengths",
    "generation_logprobs",
    "token_mask",
    "sample_mask",
    "prompt_ids_for_adv",
    "total_reward",
)


# --- model calls ---


def a_call(capture: str, call: str, ids: Sequence[int], *ancestors: StagedRow, **changes: Any) -> StagedRow:
    """One staged call; `ancestors` from the root to the parent."""
    prefix = [token for row in ancestors for token in row.token_ids]
    facts = {
        "token_mask": [0.0] * (len(ids) - 1) + [1.0],
        "logprobs": [0.0] * (len(ids) - 1) + [-0.5],
        "weight_version": 3,
        "parent": ancestors[-1] if ancestors else None,
        **changes,
    }
    return stage_call(rollout_id=capture, model_call_id=call, token_ids=ids, prefix_ids=prefix, **facts)


def a_lineage_row(row: StagedRow, *ancestors: StagedRow, **changes: Any) -> LineageRow:
    """What the policy model keeps of a call. Gym 0.7.0 ends the chain with the row's own key."""
    facts = {
        "model_call_id": row.model_call_id,
        "staging_key": row.key,
        "staging_chain": (*(ancestor.key for ancestor in ancestors), row.key),
        "staging_digest": row.digest,
        "parent_call_id": row.parent_call_id,
        "weight_version": row.weight_version,
        "prev_len": row.prev_len,
        "delta_len": row.delta_len,
        "cum_len": row.cum_len,
        "extras_digest": row.extras_digest,
        "chain_hash": row.chain_hash,
        "cumulative_hash": row.cumulative_hash,
        "mode": row.capture_mode,
        **changes,
    }
    return LineageRow(**facts)


CALL_5 = a_call("g7_g0", "call-5", (11, 12, 13, 900))
CALL_8 = a_call("g7_g0-a1", "call-8", (14, 901), CALL_5)
CALL_9 = a_call("g7_g0-a1", "call-9", (15, 16, 902), CALL_5, CALL_8)
SEALED_1 = a_call("g7_g1", "call-1", (21, 22, 910))
SEALED_2 = a_call("g7_g1", "call-2", (23, 911), SEALED_1)
PENDING = a_call("g8_g0", "call-2", (31, 920))
LOST = a_call("g8_g1", "call-0", (41, 930))
ROUTED = tuple(a_call(f"g6_g{index}", "call-1", (51, 52, 940 + index)) for index in range(2))
STAGED = (CALL_5, CALL_8, CALL_9, SEALED_1, SEALED_2, PENDING, LOST, *ROUTED)


# --- participants ---


def a_record(rollout: str = "g7_g0", attempt: int = 1, **changes: Any) -> BoundaryRecord:
    """A boundary after a whole turn."""
    facts: dict[str, Any] = {
        "schema_version": 2,
        "rollout_id": rollout,
        "attempt_index": attempt,
        "boundary_index": 3,
        "turn_index": 2,
        "boundary_kind": "turn_complete",
        "pending_model": None,
        "output_items": [{"type": "message", "role": "user", "content": "count ☕"}],
        "usage": None,
        "last_committed_model_capture_key": f"{rollout}-a{attempt}" if attempt else rollout,
        "last_committed_model_call_id": "call-9",
        "resource_state_revisions": {TOOLS: 4},
        "agent_state": {},
        "created_at": 1790000000.5,
        **changes,
    }
    return BoundaryRecord.model_validate(facts)


def a_pending_record() -> BoundaryRecord:
    """A boundary between a model's answer and its actions."""
    pending = PendingModel(
        model_call_id="call-2",
        response={"id": "resp-2"},
        model_server_cookies={"session": "m-1"},
        usage=None,
        pending_action_cursor=1,
        resource_request_id="g8_g0.a0.turn-1.action-1",
    )
    return a_record(
        "g8_g0",
        0,
        boundary_kind="pending_model",
        pending_model=pending,
        last_committed_model_call_id="call-2",
        resource_state_revisions={},
    )


def a_session(rollout: str = "g7_g0", attempt: int = 1, **changes: Any) -> SessionRecord:
    """A bound tool session, its mutations recorded."""
    facts: dict[str, Any] = {
        "schema_version": 2,
        "rollout_id": rollout,
        "attempt_index": attempt,
        "state_revision": 4,
        "state": {"count": 4},
        "mutation_receipts": [a_receipt(f"{rollout}.a{attempt}.turn-{turn}.action-0", turn) for turn in range(4)],
        "created_at": 1790000000.25,
        **changes,
    }
    return SessionRecord.model_validate(facts)


def a_receipt(request: str = "request-1", revision: int = 0) -> MutationReceipt:
    """One recorded answer."""
    return MutationReceipt(
        request_id=request,
        expected_revision=revision,
        input_digest=OTHER_DIGEST,
        status=200,
        headers=[["content-type", "application/json"]],
        body_base64="eyJvayI6dHJ1ZX0=",
        resulting_revision=revision + 1,
    )


@dataclass(frozen=True)
class AgentContent:
    """What one agent commits; `continuations` None: exactly the rows that follow from the records."""

    records: tuple[BoundaryRecord, ...] = ()
    continuations: tuple[ContinuationRow, ...] | None = None


@dataclass(frozen=True)
class ModelContent:
    """What one policy model commits; `storage` None: exactly the references that follow from roots and lineage."""

    custody: Mapping[str, tuple[LineageRow, ...]]
    storage: tuple[StorageReferenceRow, ...] | None = None
    tombstones: tuple[Execution, ...] = ()
    source_attempts: tuple[Execution, ...] = ()
    excluded_inactive: int = 1
    roots: tuple[ContinuationRow, ...] | None = None
    """None: what the agents hold."""


def a_model() -> ModelContent:
    """Lineage of both continuations; `call-10` failed, `g8_g1` attempt 0 was aborted."""
    return ModelContent(
        custody={
            "g7_g0-a1": (
                a_lineage_row(CALL_8, CALL_5),
                a_lineage_row(CALL_9, CALL_5, CALL_8),
                LineageRow(model_call_id="call-10", failure_reason="timeout"),
            ),
            "g8_g0": (a_lineage_row(PENDING),),
        },
        tombstones=(Execution(rollout_id="g8_g1", attempt_index=0),),
        source_attempts=(
            Execution(rollout_id="g7_g0", attempt_index=1),
            Execution(rollout_id="g8_g0", attempt_index=0),
        ),
    )


def a_topology() -> tuple[DiscoveredParticipant, ...]:
    """One policy model, two agents, two exporting resources servers and a judge that loses its state."""
    agent_features = [
        "completed_result_acknowledgement",
        "agent_continuation_index_v1",
        "discard_restored_continuation_v1",
        "agent_resource_dependency_index_v1",
    ]
    return (
        a_server(
            MODEL, "responses_api_models", role="policy", features=["external_storage_reference_index_v1"], workers=2
        ),
        a_server(AGENT, "responses_api_agents", features=agent_features),
        a_server(SPARE, "responses_api_agents", features=agent_features),
        a_server(TOOLS, "resources_servers"),
        a_server(DESK, "resources_servers"),
        a_server(JUDGE, "resources_servers", mode="restart_only"),
    )


def a_server(
    name: str,
    component: str,
    *,
    mode: str = "export_restore",
    role: str | None = None,
    features: Sequence[str] = (),
    workers: int = 1,
) -> DiscoveredParticipant:
    """What discovery says of one server."""
    states = ["accepting"] if mode == "restart_only" else ["accepting", "draining", "paused"]
    capabilities = Capabilities.model_validate(
        {
            "component": component,
            "name": name,
            "schema_version": 1,
            "admission_states": states,
            "checkpoint_mode": mode,
            "concurrency_contract": "serialized_per_session",
            "multi_process": MultiProcess(mode="coordinator" if workers > 1 else "single_worker", num_workers=workers),
            "instance_role": role,
            "features": list(features),
            "phase": "idle",
        }
    )
    return DiscoveredParticipant(server_name=name, capabilities=capabilities)


# --- ledger and replay metadata ---


def an_attempt(index: int = 0, status: str = "dispatched", **changes: Any) -> Attempt:
    """One attempt; nothing but its number and status unless it is sealed."""
    facts = {
        "attempt_index": index,
        "status": status,
        "receipt": None,
        "completion_receipt": None,
        "reward": None,
        "mask_sample": None,
        "staging_keys": [],
        **changes,
    }
    return Attempt.model_validate(facts)


def a_completion(rollout: str, attempt: int = 0, **changes: Any) -> CompletionReceipt:
    """The agent's receipt of a completed result."""
    facts = {
        "rollout_id": rollout,
        "attempt_index": attempt,
        "execution_generation": 1,
        "result_identity": f"result-{rollout}",
        "result_digest": OTHER_DIGEST,
        "manifest_capture_key": None,
        "terminal_model_call_id": None,
        **changes,
    }
    return CompletionReceipt.model_validate(facts)


def a_sealed_attempt(rollout: str, rows: Sequence[StagedRow], **changes: Any) -> Attempt:
    """Attempt 0, done: its receipt names the staged rows of its calls."""
    facts = {
        "receipt": {
            "schema_version": 2,
            "digest_version": 2,
            "extras_digest_version": 1,
            "rollout_id": rollout,
            "reward": 1.0,
            "terminal_model_call_id": rows[-1].model_call_id,
            "manifest": [_receipt_row(row) for row in rows],
            "capture_poisoned": False,
            "failure_reason": None,
            "terminal_selection": "declared",
            "terminal_attribution_reason": None,
        },
        "completion_receipt": a_completion(rollout),
        "reward": 1.0,
        "mask_sample": False,
        "staging_keys": [row.key for row in rows],
        **changes,
    }
    return an_attempt(0, "sealed", **facts)


def _receipt_row(row: StagedRow) -> dict[str, Any]:
    names = (
        "model_call_id",
        "parent_call_id",
        "prev_len",
        "delta_len",
        "cum_len",
        "weight_version",
        "digest",
        "extras_digest",
    )
    hashes = ("chain_hash", "cumulative_hash", "schema_version", "digest_version", "extras_digest_version")
    facts = {name: getattr(row, name) for name in (*names, *hashes)}
    more = {
        "response_id": None,
        "admitted_at": 1790000000.0,
        "output_fingerprint": None,
        "continuation_fingerprint": None,
    }
    return {**facts, "staging_key": row.key, "mode": row.capture_mode, **more, "fingerprint_version": 2}


def a_group(group_id: str, prompt: str, siblings: Sequence[Sequence[Attempt]], **changes: Any) -> Group:
    """An unfinished prompt group; `siblings` are lists of attempts."""
    facts = {
        "group_id": group_id,
        "admission_id": "admission-1",
        "prompt_id": prompt,
        "prompt_ref": PromptReference(sample_id=prompt, task_name=None),
        "task_source": None,
        "resolved_agent_name": None,
        "recovery_granularity": "sibling",
        "expected_generations": len(siblings),
        "target_step": 4,
        "start_weight_version": 3,
        "status": "generating",
        "phase": "admitted",
        "siblings": [
            Sibling(generation_index=index, attempts=list(attempts)) for index, attempts in enumerate(siblings)
        ],
        **changes,
    }
    return Group.model_validate(facts)


def a_ledger(**changes: Any) -> Ledger:
    """Groups `g7` and `g8`."""
    facts = {
        "schema_version": 3,
        "groups": [
            a_group(
                "g7",
                "17",
                [[an_attempt(0, "abandoned"), an_attempt(1)], [a_sealed_attempt("g7_g1", (SEALED_1, SEALED_2))]],
                resolved_agent_name=AGENT,
            ),
            a_group("g8", "18", [[an_attempt(0)], [an_attempt(0)]]),
        ],
        "pending_completed_execution_acknowledgements": [],
        "batch_shortfall": {4: 1},
        "sampler_stamps_target_steps": True,
        **changes,
    }
    return Ledger.model_validate(facts)


def a_route_plan(row: StagedRow, **changes: Any) -> dict[str, Any]:
    """The deferred route of a sample with one call."""
    span = {
        "staging_key": row.key,
        "carry_len": len(row.token_ids) - 1,
        "generation_len": 1,
        "staged_route_len": 0,
        "extras_digest_version": 1,
        "extras_digest": row.extras_digest,
    }
    return {
        "schema_version": 2,
        "staging_partition": STAGING,
        "spans": [span],
        "cleanup_staging_keys": [row.key],
        "expected_token_length": len(row.token_ids),
        **changes,
    }


def a_replay_group(group_id: str, tags: Sequence[Mapping[str, Any]], **changes: Any) -> ReplayGroup:
    """A finished group of two samples."""
    facts = {
        "meta": RowMeta(
            partition_id=CANONICAL,
            task_name=None,
            sample_ids=[f"{group_id}_g{index}" for index in range(2)],
            fields=list(CANONICAL_FIELDS),
            sequence_lengths=[7, 9],
            extra_info={},
            tags=[dict(tag) for tag in tags],
        ),
        "start_weight": 2,
        "end_weight": 3,
        "target_step": 4,
        "group_id": group_id,
        **changes,
    }
    return ReplayGroup.model_validate(facts)


def a_replay(groups: Sequence[ReplayGroup] | None = None, **changes: Any) -> ReplayMetadata:
    """Groups `g5` and `g6`; the digest follows from the groups."""
    if groups is None:
        routed = [{"weight_version": 3, "route_assembly_plan": a_route_plan(row)} for row in ROUTED]
        groups = [a_replay_group("g5", [{"weight_version": 3}] * 2), a_replay_group("g6", routed)]
    facts = {
        "schema_version": 1,
        "storage": "tq_checkpoint",
        "partition_id": CANONICAL,
        "saved_capacity": 8,
        "manifest_digest": replay_digest(groups),
        "groups": list(groups),
        **changes,
    }
    return ReplayMetadata.model_validate(facts)


def a_sample(length: int) -> dict[str, TensorValue]:
    """The stored fields of one finished sample."""
    floats = struct.pack(f"<{length}f", *([0.5] * length))
    ints = struct.pack(f"<{length}q", *range(length))
    return {
        "input_ids": TensorValue("int64", (length,), ints),
        "input_lengths": TensorValue("int64", (), struct.pack("<q", length)),
        "generation_logprobs": TensorValue("float32", (length,), floats),
        "token_mask": TensorValue("float32", (length,), floats),
        "sample_mask": TensorValue("float32", (), struct.pack("<f", 1.0)),
        "prompt_ids_for_adv": TensorValue("int64", (length,), ints),
        "total_reward": TensorValue("float32", (), struct.pack("<f", 1.0)),
    }


# --- the whole ---


def a_config() -> dict[str, Any]:
    """The run's configuration."""
    return {
        "grpo": {"seed": 42, "num_generations_per_prompt": 2},
        "data": {"train": {"dataset_name": "tasks"}},
        "token_capture": {"enabled": True, "staging_partition": STAGING},
        "checkpointing": {"enabled": True, "save_period": 1},
        "rollout_checkpointing": {
            "keep_latest_k": 2,
            "gym": {"capability_discovery_enabled": True, "participant_checkpointing_enabled": True},
        },
    }


@dataclass(frozen=True, eq=False)
class World:
    """Everything that a run saves at one moment, before any writer touched it. One world is one object (`eq=False`), so that what is
    derived from it can be remembered."""

    anchor: str = "step_3"
    name: str = "snapshot_000002"
    step: int = 3
    epoch: int = 0
    sampler_dispatch_index: int = 5
    schema_version: int = 4
    with_gym: bool = True
    checkpoint_id: str = CHECKPOINT_ID
    config: Mapping[str, Any] = field(default_factory=a_config)
    anchor_config: Mapping[str, Any] = field(default_factory=a_config)
    topology: tuple[DiscoveredParticipant, ...] = field(default_factory=a_topology)
    agents: Mapping[str, AgentContent] = field(
        default_factory=lambda: {AGENT: AgentContent((a_record(), a_pending_record())), SPARE: AgentContent()}
    )
    models: Mapping[str, ModelContent] = field(default_factory=lambda: {MODEL: a_model()})
    resources: Mapping[str, tuple[SessionRecord, ...]] = field(
        default_factory=lambda: {TOOLS: (a_session(),), DESK: ()}
    )
    ledger: Ledger = field(default_factory=a_ledger)
    replay: ReplayMetadata = field(default_factory=a_replay)
    samples: Mapping[str, Mapping[str, TensorValue]] = field(
        default_factory=lambda: {
            f"g{group}_g{index}": a_sample(7 + 2 * index) for group in (5, 6) for index in range(2)
        }
    )
    staged: tuple[StagedRow, ...] = STAGED
    storage_units: int = 2


def a_world(**changes: Any) -> World:
    """The default world, or one that differs in whole fields."""
    return World(**changes)


def a_bootstrap_world(**changes: Any) -> World:
    """Before the first trainer step: nothing unfinished, no Gym state, everything at version 0."""
    config = a_config()
    config["rollout_checkpointing"] = {"keep_latest_k": 2}
    facts = {
        "anchor": "bootstrap",
        "step": 0,
        "with_gym": False,
        "config": config,
        "agents": {},
        "models": {},
        "resources": {},
        "ledger": a_ledger(groups=[]),
        "replay": a_replay([]),
        "samples": {},
        "staged": (),
    }
    return World(**{**facts, **changes})
