"""The manifest, the commit replies and the save reply."""

from __future__ import annotations

import pytest

from ckptctl.domain.controller import SaveReply
from ckptctl.domain.manifest import ParticipantIdentity
from ckptctl.domain.participant import AgentCommitReply, ModelCommitReply, ResourcesCommitReply
from ckptctl.errors import RefusedError
from ckptctl.formats.snapshot_manifest import encode_manifest
from ckptctl.planning.publish import (
    SAVED_FILES,
    FoundFile,
    commit_problems,
    compose_manifest,
    new_checkpoint_id,
    next_number,
    saved_problems,
)

D1, D2, D3, D4 = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)


def identity(name: str, component: str) -> ParticipantIdentity:
    return ParticipantIdentity(server_name=name, component=component, participant_name=name)


AGENT = identity("agent", "responses_api_agents")
MODEL = identity("policy", "responses_api_models")
TOOLS = identity("tools", "resources_servers")


def reference(path: str, sha256: str = D1) -> dict:
    return {"schema_version": 1, "relative_path": path, "sha256": sha256, "records": 1, "bytes": 10}


def agent_reply(path: str | None = None) -> AgentCommitReply:
    folder = "agent/instance-d4f0bc5a29de06b510f9aa428f1eedba926012b591fef7a518e776a7c9bd1824"
    index = reference(path or f"{folder}/continuations.jsonl")
    return AgentCommitReply.model_validate({"records": 1, "manifest_digest": D2, "continuation_index": index})


def model_reply(**changes) -> ModelCommitReply:
    facts = {"rollouts": 1, "rows": 2, "excluded_tombstoned": 0, "excluded_inactive": 1, "manifest_digest": D3}
    index = reference("model-ledger/policy/storage-references.jsonl", D4)
    return ModelCommitReply.model_validate({**facts, "storage_reference_index": index, **changes})


TOOLS_REPLY = ResourcesCommitReply(sessions=1, manifest_digest=D4)


def save_reply(*files: tuple[str, int, str]) -> SaveReply:
    counters = {
        "base_train_step": 3,
        "trainer_version": 3,
        "current_epoch": 0,
        "sampler_dispatch_index": 5,
        "mutation_version": 41,
        "rolled_back_train_group_count": 0,
    }
    listed = [{"relative_path": path, "bytes": size, "sha256": sha256} for path, size, sha256 in files]
    rest = {"groups": 1, "canonical_rows": 2, "staging_rows": 3, "barrier_wait_s": 0.1, "cut_hold_s": 0.2}
    return SaveReply.model_validate({"counters": counters, "bootstrap_fingerprint": None, "files": listed, **rest})


def test_the_manifest_has_everybody_in_order() -> None:
    """Agents, models, resources; the payload is the commit reply without what schema 4 has no field for."""
    committed = {TOOLS: TOOLS_REPLY, MODEL: model_reply(generation_cut_records=0), AGENT: agent_reply()}
    manifest = compose_manifest(save_reply(), "ck-1", D1, committed)
    names = [entry.participant.server_name for entry in manifest.gym_checkpoint.participants]

    assert ["agent", "policy", "tools"] == names
    assert (4, 3, 41, D1) == (
        manifest.schema_version,
        manifest.base_train_step,
        manifest.mutation_version,
        manifest.gym_topology_fingerprint,
    )
    assert b"generation_cut_records" not in encode_manifest(manifest)


def test_commit_replies_that_cannot_be_used() -> None:
    """Somebody missing, generation cuts, an index that lies elsewhere."""
    good = {AGENT: agent_reply(), MODEL: model_reply(), TOOLS: TOOLS_REPLY}

    assert [] == list(commit_problems((AGENT, MODEL, TOOLS), good))
    assert ["participants: missing tools"] == list(
        commit_problems((AGENT, MODEL, TOOLS), {AGENT: agent_reply(), MODEL: model_reply()})
    )
    [cuts] = commit_problems((MODEL,), {MODEL: model_reply(generation_cut_records=2)})
    assert "`policy` saved 2 generation cuts" in cuts
    [place] = commit_problems((AGENT,), {AGENT: agent_reply("agent/instance-other/continuations.jsonl")})
    assert "outside its folder" in place


def test_the_save_reply_is_compared_with_the_disk() -> None:
    """Missing, twice, another size, another digest, a required file left out: each is told."""
    files = [(path, 10, D1) for path in SAVED_FILES]
    found = {path: FoundFile(10, D1) for path in SAVED_FILES}

    assert [] == list(saved_problems(save_reply(*files), found))
    assert ["the controller did not save `config.yaml`"] == list(saved_problems(save_reply(*files[1:]), found))
    assert ["the controller lists `config.yaml` twice"] == list(saved_problems(save_reply(*files, files[0]), found))
    [gone] = saved_problems(save_reply(*files), {path: item for path, item in found.items() if path != "config.yaml"})
    assert "which does not exist here" in gone
    assert ["`config.yaml` has 9 bytes here, 10 at the controller"] == list(
        saved_problems(save_reply(*files), {**found, "config.yaml": FoundFile(9, D1)})
    )
    assert ["`config.yaml` has another digest here than at the controller"] == list(
        saved_problems(save_reply(*files), {**found, "config.yaml": FoundFile(10, D2)})
    )


def test_numbers_and_ids() -> None:
    """The highest published number counts, any digit count is read, unpublished names do not count."""
    assert 1 == next_number([])
    assert 13 == next_number(
        ["snapshot_000002", "snapshot_12", "tmp_snapshot_000040", "trash_snapshot_000041", "other"]
    )
    assert "rollout-step-3-snapshot-13-abc" == new_checkpoint_id(3, 13, "abc")


def test_numbers_have_an_end() -> None:
    """One that no count of ours can have come to is passed over, and none follows the highest."""
    assert 3 == next_number(["snapshot_000002", "snapshot_18446744073709551615", "snapshot_1000000000000"])
    assert 10**12 - 1 == next_number(["snapshot_999999999998"])
    with pytest.raises(RefusedError, match=r"`snapshot_999999999999` has the highest number"):
        next_number(["snapshot_000002", "snapshot_999999999999"])
