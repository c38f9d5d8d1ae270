"""Snapshot, kill, restore, continue: the participants together, in one event loop, with every kind of boundary."""

import asyncio

import pytest

from ckptctl.domain.ids import AGENT, participant_folder
from ckptctl.domain.staged import call_digest, chain_hash
from ckptctl.formats.participant_files import build_resources_artifacts, decode_session
from ckptctl.sim.agent_files import read_agent_folder
from ckptctl.sim.policy_files import read_ledger
from ckptctl.sim.resources_files import read_sessions
from tests.unit.sim.inprocess import FOREVER, HoldingStore, cluster, until

PREPARE = (
    ("policy_model", "model-admission/pause"),
    ("simple_agent", "agent-checkpoint/prepare"),
    ("counter", "resources-checkpoint/prepare"),
)
RESUME = (
    ("counter", "resources-checkpoint/resume"),
    ("policy_model", "model-admission/resume"),
    ("simple_agent", "agent-checkpoint/resume"),
)


async def prepare(c, checkpoint_id="ck-1"):
    for server, route in PREPARE:
        await c.ok(server, route, checkpoint_id)
    status, body = await c.get(
        "policy_model", "model-admission/status", checkpoint_id=checkpoint_id, deadline_ts=FOREVER,
        wait_state="paused", timeout_s=30,
    )  # fmt: skip
    assert (status, body["state"], body["workers"]["acknowledged"]) == (200, "paused", 2)


async def commit(c, folder, checkpoint_id="ck-1"):
    agent = await c.ok("simple_agent", "agent-checkpoint/commit", checkpoint_id, checkpoint_dir=folder)
    model = await c.ok(
        "policy_model", "model-checkpoint/commit", checkpoint_id, checkpoint_dir=folder,
        continuation_indexes=[agent["continuation_index"]],
    )  # fmt: skip
    return agent, model, await c.ok("counter", "resources-checkpoint/commit", checkpoint_id, checkpoint_dir=folder)


async def resume(c, checkpoint_id="ck-1"):
    for server, route in RESUME:
        await c.ok(server, route, checkpoint_id)


async def restore(c, folder, checkpoint_id="restore-1"):
    model = await c.ok("policy_model", "model-checkpoint/restore", checkpoint_id, checkpoint_dir=folder)
    agent = await c.ok("simple_agent", "agent-checkpoint/restore", checkpoint_id, checkpoint_dir=folder)
    return agent, model, await c.ok("counter", "resources-checkpoint/restore", checkpoint_id, checkpoint_dir=folder)


async def run_to_boundary(c, number, **run):
    """Start a rollout and wait until it is parked at its n-th boundary."""
    c.hold_at(number)
    task = asyncio.ensure_future(c.run(**run))
    await until(lambda: c.agent.service.store.parked() or task.done())
    return task


async def uninterrupted(directory, **run):
    async with cluster(directory) as c:
        status, result = await c.run(**run)
        assert status == 200
        return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The result of the run that nothing interrupts."""
    return asyncio.run(uninterrupted(tmp_path_factory.mktemp("whole"), **RUN))


def cut_and_continue(tmp_path, number, run):
    async def main():
        folder = str(tmp_path / "snapshot")
        async with cluster(tmp_path / "b") as c:
            task = await run_to_boundary(c, number, **run)
            await prepare(c)
            committed = await commit(c, folder)
            records = read_agent_folder(folder, participant_folder(AGENT, "simple_agent")).records
            task.cancel()  # the process is killed here; nothing is released
            await asyncio.gather(task, return_exceptions=True)
            plane = c.plane
        async with cluster(tmp_path / "b", incarnation=2, restore_expected=True, plane=plane) as c:
            restored = await restore(c, folder)
            await resume(c, "restore-1")
            late = await c.run(**run, attempt=0)
            status, result = await c.run(**run, attempt=1)
        return committed, restored, records, late, (status, result), plane

    return asyncio.run(main())


RUN = {"rollout": "g_g0", "increments": 6}
"""With the tests' seed its turns have one or two actions, so both kinds of pending boundary occur (asserted below)."""


@pytest.mark.parametrize("number", range(12))
def test_a_rollout_cut_at_any_boundary_ends_as_if_never_interrupted(tmp_path, whole, number):
    """Reward, final state, transcript and tokens are the same; attempt N is fenced, N+1 goes on."""
    committed, restored, records, late, (status, result), plane = cut_and_continue(tmp_path, number, RUN)

    assert [number] == [record.boundary_index for record in records]
    assert (409, "stale_attempt") == (late[0], late[1]["error"]["code"])
    assert (200, 1.0) == (status, result["reward"])
    for key in ("final_state", "transcript", "turns", "usage"):
        assert whole[key] == result[key]
    agent, model, _ = committed
    again_agent, again_model, again_resources = restored
    sources = (
        again_agent["source_checkpoint_id"],
        again_model["checkpoint_id"],
        again_resources["source_checkpoint_id"],
    )
    assert ("ck-1",) * 3 == sources
    assert agent["continuation_index"] == again_agent["continuation_index"]
    assert model["storage_reference_index"] == again_model["storage_reference_index"]
    assert_one_chain(plane, result)


def assert_one_chain(plane, result):
    """Every call of the rollout was staged exactly once over both attempts, and each follows from the one before."""
    rows = {row.model_call_id: row for row, _ in plane.rows.values()}
    assert len(plane.rows) == result["turns"] == len(rows)
    for index in range(1, result["turns"]):
        row, parent = rows[f"call-{index}"], rows[f"call-{index - 1}"]
        assert (parent.model_call_id, parent.cum_len) == (row.parent_call_id, row.prev_len)
        assert chain_hash(parent.chain_hash, row.token_ids) == row.chain_hash
        assert call_digest(row) == row.digest


def test_the_cuts_meet_every_kind_of_boundary(tmp_path):
    """Guards the test above: the run has complete turns, and pending ones before the first and before a later action."""

    async def main():
        async with cluster(tmp_path) as c:
            c.hold_at(-1)
            HoldingStore.seen.clear()
            await c.run(**RUN)
            return [(item.boundary_index, item.pending_model) for item in HoldingStore.seen]

    seen = asyncio.run(main())

    assert list(range(12)) == [index for index, _ in seen]
    assert {None, 0, 1} == {None if pending is None else pending.pending_action_cursor for _, pending in seen}


def test_the_folders_prove_themselves(tmp_path):
    """What is written can be read with every restore check, and the replies describe it."""

    async def main():
        folder = str(tmp_path / "snapshot")
        async with cluster(tmp_path / "a") as c:
            for index in range(5):
                c.hold_at(index + 1, f"g_g{index}")
            tasks = [asyncio.ensure_future(c.run(f"g_g{index}")) for index in range(5)]
            await until(lambda: len(c.agent.service.store.parked()) == 5)
            await prepare(c)
            replies = await commit(c, folder)
            await resume(c)
            results = await asyncio.gather(*tasks)
            return folder, replies, results

    folder, (agent, model, resources), results = asyncio.run(main())
    written = read_agent_folder(folder, participant_folder(AGENT, "simple_agent"))
    ledger = read_ledger(folder, "policy_model")
    source, sessions = read_sessions(folder, "counter")

    assert [200] * 5 == [status for status, _ in results]
    assert [1.0] * 5 == [body["reward"] for _, body in results]
    assert (5, written.manifest_digest) == (agent["records"], agent["manifest_digest"])
    assert 5 == model["rollouts"] == len(ledger.custody)
    assert ("ck-1", 5, 5) == (source, len(sessions), resources["sessions"])
    assert {record.rollout_id: record.resource_state_revisions["counter"] for record in written.records} == {
        session.rollout_id: session.state_revision for session in sessions
    }


def test_a_second_snapshot_after_a_restore_links_over_capture_keys(tmp_path):
    """The storage references of a continuation name staged rows of attempts 0 and 1."""

    async def main():
        first, second = str(tmp_path / "s1"), str(tmp_path / "s2")
        async with cluster(tmp_path / "b") as c:
            task = await run_to_boundary(c, 3)
            await prepare(c)
            await commit(c, first)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            plane = c.plane
        async with cluster(tmp_path / "b", incarnation=2, restore_expected=True, plane=plane) as c:
            await restore(c, first)
            await resume(c, "restore-1")
            task = await run_to_boundary(c, 5, attempt=1)
            await prepare(c, "ck-2")
            await commit(c, second, "ck-2")
            references = (tmp_path / "s2" / "model-ledger" / "policy_model" / "storage-references.jsonl").read_text()
            await resume(c, "ck-2")
            return references, await task

    references, (status, result) = asyncio.run(main())

    assert '"key":"g_g0/call-0"' in references
    assert '"key":"g_g0-a1/call-' in references
    assert (200, 1.0) == (status, result["reward"])


def test_a_restored_continuation_without_a_new_call_keeps_its_old_capture_key(tmp_path):
    """Cut again at once: the continuation names attempt 1 and the capture key of attempt 0."""

    async def main():
        first, second = str(tmp_path / "s1"), str(tmp_path / "s2")
        async with cluster(tmp_path / "b") as c:
            task = await run_to_boundary(c, 4)
            await prepare(c)
            await commit(c, first)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            plane = c.plane
        async with cluster(tmp_path / "b", incarnation=2, restore_expected=True, plane=plane) as c:
            await restore(c, first)
            for server, route in RESUME:
                await c.ok(server, route, "restore-1")
            await c.ok("policy_model", "model-admission/pause", "ck-2")
            task = asyncio.ensure_future(c.run(attempt=1))
            await until(lambda: c.agent.service.store.executions)
            await c.ok("simple_agent", "agent-checkpoint/prepare", "ck-2")
            await c.ok("counter", "resources-checkpoint/prepare", "ck-2")
            await c.get("policy_model", "model-admission/status", checkpoint_id="ck-2", deadline_ts=FOREVER)
            await commit(c, second, "ck-2")
            await resume(c, "ck-2")
            rows = (tmp_path / "s2" / participant_folder(AGENT, "simple_agent") / "continuations.jsonl").read_text()
            return rows, await task

    rows, (status, result) = asyncio.run(main())

    assert '"attempt_index":1,"capture_key":"g_g0",' in rows
    assert (200, 1.0) == (status, result["reward"])


def test_a_discarded_continuation_starts_from_the_task(tmp_path):
    """Attempt N+1 stays usable; its session is seeded over."""

    async def main():
        folder = str(tmp_path / "s1")
        async with cluster(tmp_path / "b") as c:
            task = await run_to_boundary(c, 3)
            await prepare(c)
            await commit(c, folder)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with cluster(tmp_path / "b", incarnation=2, restore_expected=True) as c:
            await restore(c, folder)
            pair = {"rollout_id": "g_g0", "attempt_index": 1}
            route = "agent-checkpoint/discard-restored-continuation"
            first = await c.ok("simple_agent", route, "restore-1", **pair)
            second = await c.ok("simple_agent", route, "restore-1", **pair)
            await resume(c, "restore-1")
            status, result = await c.run(attempt=1)
            return first, second, status, result, sorted(c.plane.rows)

    first, second, status, result, keys = asyncio.run(main())

    assert ({"discarded": True}, {"discarded": False}) == (first, second)
    assert (200, 1.0) == (status, result["reward"])
    assert "g_g0-a1/call-0" in keys


def test_an_aborted_attempt_is_released_and_nothing_is_lost(tmp_path):
    """Prepare, then resume with the same id instead of a commit: rollouts finish, the id is stale, the next one works."""

    async def main():
        async with cluster(tmp_path / "a") as c:
            task = await run_to_boundary(c, 2)
            await prepare(c)
            await resume(c)
            stale = await c.code("simple_agent", "agent-checkpoint/prepare")
            await prepare(c, "ck-2")
            await resume(c, "ck-2")
            return stale, await task

    stale, (status, result) = asyncio.run(main())

    assert "stale_checkpoint" == stale
    assert (200, 1.0) == (status, result["reward"])


async def snapshot_of_one(c, folder, number=3):
    """A committed snapshot of one rollout, everything still paused."""
    task = await run_to_boundary(c, number)
    await prepare(c)
    await commit(c, folder)
    return task


def test_a_model_commit_into_an_existing_folder_must_be_the_same(tmp_path):
    """The memory of the commit is lost: the same roots give the old result, others are refused."""

    async def main():
        folder = str(tmp_path / "s")
        async with cluster(tmp_path) as c:
            task = await snapshot_of_one(c, folder)
            fence = c.policy.service.checkpoint.fence
            index = read_agent_folder(folder, participant_folder(AGENT, "simple_agent")).manifest.continuation_index
            route, indexes = "model-checkpoint/commit", [index.model_dump()]
            fence.phase = "prepared"
            first = fence._recorded.pop(route)
            again = await c.ok("policy_model", route, checkpoint_dir=folder, continuation_indexes=indexes)
            fence.phase = "prepared"
            fence._recorded.pop(route)
            other = await c.code("policy_model", route, checkpoint_dir=folder, continuation_indexes=[])
            await resume(c)
            await task
            return first, again, other

    first, again, other = asyncio.run(main())

    assert first == again
    assert "ledger_mismatch" == other


def test_an_orphan_session_commits_and_makes_the_snapshot_unrestorable(tmp_path):
    """What a coordinator must find before the commit: inventory and selected boundaries differ."""

    async def main():
        folder = str(tmp_path / "s")
        async with cluster(tmp_path) as c:
            await c.fault("counter", kind="orphan_session")
            task = await snapshot_of_one(c, folder)
            await resume(c)
            await task
        async with cluster(tmp_path, incarnation=2, restore_expected=True) as c:
            return await c.code("counter", "resources-checkpoint/restore", checkpoint_dir=folder)

    assert "resource_revision_mismatch" == asyncio.run(main())


@pytest.mark.parametrize("damage", ["revision", "session", "digest"])
def test_sessions_that_do_not_fit_their_boundaries_are_refused(tmp_path, damage):
    """Another revision, a session that is not there, a file that is not what the manifest says."""

    async def main():
        folder = tmp_path / "s"
        async with cluster(tmp_path) as c:
            task = await snapshot_of_one(c, str(folder))
            await resume(c)
            await task
        [path] = (folder / "resources" / "counter").glob("g_g0.a0.json")
        if damage == "digest":
            path.write_bytes(path.read_bytes() + b" ")
        else:
            sessions = [] if damage == "session" else [decode_session(path.read_bytes())]
            changed = [item.model_copy(update={"state_revision": item.state_revision + 1}) for item in sessions]
            for name, data in build_resources_artifacts("ck-1", "counter", changed).files:
                (path.parent / name).write_bytes(data)
        async with cluster(tmp_path, incarnation=2, restore_expected=True) as c:
            return await c.code("counter", "resources-checkpoint/restore", checkpoint_dir=str(folder))

    wanted = "resources_checkpoint_error" if damage == "digest" else "resource_revision_mismatch"
    assert wanted == asyncio.run(main())


@pytest.mark.parametrize(
    "damage", ["lineage-part-000000.tar", "lineage-index.jsonl", "storage-references.jsonl", "manifest.json"]
)
def test_a_damaged_ledger_is_not_restored(tmp_path, damage):
    """Every file is proved, nothing is installed, and the undamaged one restores under the same id."""

    async def main():
        folder = tmp_path / "s"
        async with cluster(tmp_path) as c:
            task = await snapshot_of_one(c, str(folder))
            await resume(c)
            await task
        path = folder / "model-ledger" / "policy_model" / damage
        data = path.read_bytes()
        changed = bytearray(data)
        changed[len(data) // 3] ^= 1
        path.write_bytes(changed)
        async with cluster(tmp_path, incarnation=2, restore_expected=True) as c:
            refused = await c.code("policy_model", "model-checkpoint/restore", "restore-1", checkpoint_dir=str(folder))
            left = c.policy.service.capture.leftovers()
            path.write_bytes(data)
            restored = await c.ok("policy_model", "model-checkpoint/restore", "restore-1", checkpoint_dir=str(folder))
            return refused, left, restored["rollouts"]

    assert ("ledger_mismatch", [], 1) == asyncio.run(main())
