"""Steps 5 and 6: participants commit into the staged directory, the controller saves, the manifest makes it whole.

Commit agents -> policy models (given every continuation index) -> resources, then save, each with a deadline of its
own. A commit that timed out may still complete on the server, so nothing is concluded from that but to abort under
the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from ckptctl.domain.digest import sha256_hex, sha256_of
from ckptctl.domain.evidence import LiveFacts
from ckptctl.domain.ids import SNAPSHOTS_FOLDER, TMP_SNAPSHOT_NAME, TRASH_SNAPSHOT_NAME, path_problem
from ckptctl.domain.manifest import ParticipantIdentity
from ckptctl.domain.participant import ModelCommitReply
from ckptctl.domain.plan import Step
from ckptctl.errors import InvalidSnapshotError, NotQuiescentError, TrainerStateChangedError
from ckptctl.formats.snapshot_manifest import encode_manifest
from ckptctl.planning import snapshot as steps
from ckptctl.planning.publish import (
    MANIFEST_FILE,
    FoundFile,
    commit_problems,
    compose_manifest,
    manifest_path,
    moved_trainer,
    saved_problems,
)
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.attempt import Attempt
from ckptctl.workflows.judging import SHARED_STORAGE, finding_error, judge_live
from ckptctl.workflows.ownership import demand_ownership
from ckptctl.workflows.transaction import Action
from ckptctl.workflows.waiting import Pauses, ask, side_by_side

SHARED_HINT = "every server must see the same directory under the same absolute path"


def commit_actions(attempt: Attempt) -> dict[str, Action]:
    """What steps 5 and 6 do."""
    return {
        steps.ALLOCATE: partial(_allocate, attempt),
        steps.COMMIT_AGENTS: partial(_commit_agents, attempt),
        steps.COMMIT_MODELS: partial(_commit_models, attempt),
        steps.COMMIT_RESOURCES: partial(_commit_resources, attempt),
        steps.CHECK_COMMITTED: partial(_check_committed, attempt),
        steps.SAVE: partial(_save, attempt),
        steps.WRITE_MANIFEST: partial(_write_manifest, attempt),
    }


async def _allocate(attempt: Attempt, _: Step) -> None:
    """An empty staged directory. Whatever else is unfinished beside it is nobody's: we hold the lock (snapshot-layout 13).

    A higher number than ours is left alone: it would be that of a coordinator who took the directory over this instant.
    """
    store, begun = attempt.world.store, attempt.begun
    attempt.set_deadline(begun.config.prepare_timeout_s)
    folder = f"{begun.config.checkpoint_dir}/{begun.facts.anchor}/{SNAPSHOTS_FOLDER}"
    store.make_directory(folder)
    demand_ownership(
        attempt.world, begun.config.checkpoint_dir, doing="everybody prepared", outcome="this one writes nothing"
    )
    for entry in store.list_tree(folder, max_depth=1):
        staged = TMP_SNAPSHOT_NAME.match(entry.path)
        if (staged and int(staged[1]) <= begun.facts.number) or TRASH_SNAPSHOT_NAME.match(entry.path):
            await asyncio.to_thread(store.remove_tree, f"{folder}/{entry.path}")
    store.make_directory(begun.staged_path)


async def _commit_agents(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    gym, begun = attempt.world.participants, attempt.begun
    calls = {
        item: partial(gym.agent_commit, item.server_name, begun.checkpoint_id, attempt.deadline_ts, begun.staged_path)
        for item in begun.topology.agents
    }
    replies = await _committed(attempt, calls)
    return {"records": {item.server_name: reply.records for item, reply in replies.items()}}


async def _commit_models(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    calls = {item: partial(_commit_model, attempt, item.server_name) for item in attempt.begun.topology.models}
    replies = await _committed(attempt, calls)
    return {"rows": {item.server_name: reply.rows for item, reply in replies.items()}}


async def _commit_model(attempt: Attempt, server: str) -> ModelCommitReply:
    """Commit; a model that has calls in flight after all is asked for its status and then again."""
    gym, begun = attempt.world.participants, attempt.begun
    pauses = Pauses(attempt.world)
    while True:
        try:
            return await gym.model_commit(
                server,
                begun.checkpoint_id,
                attempt.deadline_ts,
                begun.staged_path,
                attempt.continuation_indexes(),
            )
        except NotQuiescentError as refusal:
            if not await pauses.wait(attempt.deadline_ts):
                last = f"it last answered `{refusal.server_code}`: {refusal.detail}"
                raise attempt.deadline_passed(server, "model-checkpoint/commit", last) from refusal
            await gym.model_status(server, begun.checkpoint_id, attempt.deadline_ts, wait_paused_s=None)


async def _commit_resources(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    gym, begun = attempt.world.participants, attempt.begun
    calls = {
        item: partial(
            gym.resources_commit, item.server_name, begun.checkpoint_id, attempt.deadline_ts, begun.staged_path
        )
        for item in begun.topology.resources
    }
    replies = await _committed(attempt, calls)
    return {"sessions": {item.server_name: reply.sessions for item, reply in replies.items()}}


async def _committed(attempt: Attempt, calls: Mapping[ParticipantIdentity, Any]) -> dict[ParticipantIdentity, Any]:
    """Make one stage's calls side by side and keep the replies."""
    by_name = {item.server_name: item for item in calls}
    asked = {item.server_name: partial(ask, attempt.world, attempt.deadline_ts, call) for item, call in calls.items()}
    replies = await side_by_side(asked)
    found = {by_name[name]: reply for name, reply in replies.items()}
    attempt.committed.update(found)
    return found


async def _check_committed(attempt: Attempt, _: Step) -> None:
    """The replies agree with the plan (invariants 59, 64) and with what lies here (invariant 94)."""
    begun = attempt.begun
    for problem in commit_problems(begun.topology.participants, attempt.committed):
        raise InvalidSnapshotError(
            problem, hint="the server's build does not fit; `ckptctl inspect --live` shows what it reports"
        )
    here = _found_files(attempt.world.store, begun.staged_path, [manifest_path(item) for item in attempt.committed])
    found = {}
    for item, reply in attempt.committed.items():
        path = manifest_path(item)
        found[item] = (path, reply.manifest_digest, here[path].sha256 if path in here else None)
    for finding in judge_live((SHARED_STORAGE,), LiveFacts(committed_manifests=found)):
        raise finding_error(finding)


async def _save(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    """The controller's part, compared with the disk file by file."""
    world, begun = attempt.world, attempt.begun
    attempt.set_deadline(begun.config.prepare_timeout_s)
    call = partial(
        world.controller.save,
        begun.checkpoint_id,
        attempt.deadline_ts,
        begun.staged_path,
        attempt.storage_reference_indexes(),
    )
    saved = await ask(world, attempt.deadline_ts, call)
    moved = moved_trainer(begun.status, saved)
    if moved is not None:
        raise TrainerStateChangedError(
            server="controller",
            operation="save",
            status=200,
            server_code="trainer_state_changed",
            detail=moved,
            hint="the next attempt binds to the new trainer checkpoint",
        )
    paths = [item.relative_path for item in saved.files if path_problem(item.relative_path) is None]
    found = await asyncio.to_thread(_found_files, world.store, begun.staged_path, paths)
    for problem in saved_problems(saved, found):
        raise InvalidSnapshotError(problem, hint=SHARED_HINT)
    attempt.saved = saved
    return {
        "mutation_version": saved.counters.mutation_version,
        "groups": saved.groups,
        "canonical_rows": saved.canonical_rows,
        "staging_rows": saved.staging_rows,
        "barrier_wait_s": saved.barrier_wait_s,
        "cut_hold_s": saved.cut_hold_s,
        "bytes": sum(item.bytes for item in saved.files),
    }


def _found_files(reader: SnapshotReader, root: str, paths: list[str]) -> dict[str, FoundFile]:
    found: dict[str, FoundFile] = {}
    for path in paths:
        try:
            with reader.open_source(f"{root}/{path}") as source:
                found[path] = FoundFile(source.size_bytes, sha256_of(source))
        except FileNotFoundError:
            continue
    return found


async def _write_manifest(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    """Written last: a staged directory with a manifest is complete."""
    begun = attempt.begun
    assert attempt.saved is not None, "save comes before the manifest"
    manifest = compose_manifest(attempt.saved, begun.checkpoint_id, begun.facts.topology_fingerprint, attempt.committed)
    data = encode_manifest(manifest)
    attempt.manifest_sha256 = sha256_hex(data)
    attempt.world.store.write_file(f"{begun.staged_path}/{MANIFEST_FILE}", data)
    return {"manifest_sha256": attempt.manifest_sha256}
