"""The agent: order of checks of `/run`, parking, prepare and its refusals, receipts and acknowledgements, retire, lost callers."""

import asyncio

import pytest

from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.participant import AgentStatus, Capabilities, CompletionReceipt
from ckptctl.sim.identity import Pair
from tests.unit.sim.inprocess import FOREVER, TOKEN, cluster, until

PREFIX = "agent-checkpoint/"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


def in_cluster(**options):
    """Run an async test body with a cluster."""

    def wrap(body):
        def test(tmp_path):
            async def main():
                async with cluster(tmp_path, **options) as c:
                    await body(c)

            asyncio.run(main())

        test.__doc__ = body.__doc__
        return test

    return wrap


def code(answer):
    status, body = answer
    return body["error"]["code"] if status == 409 else status


async def parked(c, number=2, **run):
    """A rollout parked at a boundary by a prepare that fails on something else, or by the test's hold."""
    c.hold_at(number)
    task = asyncio.ensure_future(c.run(**run))
    await until(lambda: c.agent.service.store.parked())
    return task


async def acknowledge(c, *receipts):
    body = {"schema_version": 1, "executions": list(receipts)}
    url = f"http://simple_agent/ng-control/v1/{PREFIX}acknowledge-completed"
    reply = await c.http.post(url, json=body, headers=HEADERS)
    return reply.status_code, reply.json()


async def receipt(c, rollout="g_g0", attempt=0):
    return await c.get("simple_agent", PREFIX + "completion-receipt", rollout_id=rollout, attempt_index=attempt)


@in_cluster()
async def test_the_checks_of_run_stand_in_their_order(c):
    """Acknowledged and tombstoned before completed before active before admission."""
    store = c.agent.service.store
    done = await c.run()
    assert done == await c.run()
    store.is_open = False
    assert done == await c.run()
    assert "agent_admission_closed" == code(await c.run("new_g0"))
    store.is_open = True
    task = await parked(c, rollout="slow_g0")
    store.is_open = False
    assert "duplicate_execution" == code(await c.run("slow_g0"))
    await c.acknowledge()
    assert "stale_attempt" == code(await c.run())
    store.tombstones.add(Pair("slow_g0", 0))
    assert "stale_attempt" == code(await c.run("slow_g0"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_cluster()
async def test_a_malformed_run_is_422(c):
    """Before anything else."""
    for body in (
        {},
        {"_ng_rollout_id": "../x", "_ng_attempt_index": 0},
        {"_ng_rollout_id": "x", "_ng_attempt_index": -1},
    ):
        assert 422 == (await c.http.post("http://simple_agent/run", json=body)).status_code
    unknown = {"_ng_rollout_id": "x", "_ng_attempt_index": 0, "environment": "chess"}
    assert 422 == (await c.http.post("http://simple_agent/run", json=unknown)).status_code


@in_cluster()
async def test_a_failed_run_fences_its_attempt(c):
    """A retry needs a new attempt number, which is a new execution."""
    c.reachable["counter"].is_up = False
    failing = asyncio.ensure_future(c.run())
    assert 500 == code(await failing)
    c.reachable["counter"].is_up = True
    assert "stale_attempt" == code(await c.run())
    assert 200 == code(await c.run(attempt=1))


@in_cluster()
async def test_the_receipt_digests_the_result_and_names_its_last_call(c):
    """Identity is the result's id; the generation counts executions of the pair."""
    status, result = await c.run()
    _, body = await receipt(c)

    assert 200 == status
    assert (compact_digest(result), result["id"], 1) == (
        body["result_digest"],
        body["result_identity"],
        body["execution_generation"],
    )
    assert ("g_g0", f"call-{result['turns'] - 1}") == (body["manifest_capture_key"], body["terminal_model_call_id"])
    assert CompletionReceipt.model_validate(body)
    assert "completed_execution_acknowledgement_error" == code(await receipt(c, "unknown_g0"))


@in_cluster()
async def test_a_batch_of_acknowledgements_is_taken_whole_or_not_at_all(c):
    """One wrong receipt releases nothing; exact repeats succeed; afterwards the receipt is gone."""
    await asyncio.gather(c.run("a_g0"), c.run("b_g0"))
    first, second = (await receipt(c, "a_g0"))[1], (await receipt(c, "b_g0"))[1]
    wrong = {**second, "result_digest": "0" * 64}

    assert "completed_execution_acknowledgement_error" == code(await acknowledge(c, first, wrong))
    assert 200 == (await receipt(c, "a_g0"))[0]
    assert (200, {"acknowledged": [second, first]}) == await acknowledge(c, second, first)
    assert (200, {"acknowledged": [first]}) == await acknowledge(c, first)
    assert "completed_execution_acknowledgement_error" == code(
        await acknowledge(c, {**first, "execution_generation": 2})
    )
    assert "completed_execution_acknowledgement_error" == code(await receipt(c, "a_g0"))
    assert 422 == (await acknowledge(c, first, first))[0]
    assert 422 == (await acknowledge(c))[0]


@in_cluster()
async def test_one_receipt_can_be_acknowledged_alone(c):
    """The reply says whether it was a repeat."""
    await c.run()
    _, one = await receipt(c)
    url = f"http://simple_agent/ng-control/v1/{PREFIX}acknowledge"
    replies = [(await c.http.post(url, json=one, headers=HEADERS)).json() for _ in range(2)]

    assert [{"acknowledged": True, "idempotent": False}, {"acknowledged": True, "idempotent": True}] == replies


@in_cluster()
async def test_an_unacknowledged_result_fails_prepare_at_once_and_leaves_admission_closed(c):
    """Not at the deadline; resume opens it again; after the acknowledgement prepare succeeds."""
    await c.run()

    assert "agent_prepare_incomplete" == await c.code("simple_agent", PREFIX + "prepare")
    assert "idle" == c.agent.service.checkpoint.fence.phase
    assert "agent_admission_closed" == code(await c.run("new_g0"))
    await c.acknowledge()
    reply = await c.ok("simple_agent", PREFIX + "prepare")
    assert AgentStatus.model_validate(reply).ready_to_commit
    assert "checkpoint_id" not in reply
    await c.ok("simple_agent", PREFIX + "resume")
    assert 200 == code(await c.run("new_g0"))


@in_cluster(delays={"generation": 30.0})
async def test_prepare_gives_up_at_its_deadline_and_withdraws_its_requests(c):
    """A model call that outlasts it: the execution runs on, admission stays closed."""
    task = asyncio.ensure_future(c.run())
    await until(lambda: c.agent.service.store.executions)
    refused = await c.code("simple_agent", PREFIX + "prepare", deadline_ts=0.0)
    store = c.agent.service.store

    assert "agent_prepare_incomplete" == refused
    assert ["running"] == [item.state for item in store.executions.values()]
    assert not store.is_open
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for item in list(store.executions):
        store.end(item)


@in_cluster(delays={"generation": 30.0})
async def test_resume_overtakes_a_waiting_prepare(c):
    """The prepare is stale, the execution runs on, the next id may prepare."""
    task = asyncio.ensure_future(c.run())
    store = c.agent.service.store
    await until(lambda: store.executions)
    waiting = asyncio.ensure_future(c.code("simple_agent", PREFIX + "prepare"))
    await until(lambda: c.agent.service.checkpoint.fence.phase == "preparing")
    await c.ok("simple_agent", PREFIX + "resume")

    assert "stale_checkpoint" == await waiting
    assert (["running"], True) == ([item.state for item in store.executions.values()], store.is_open)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for item in list(store.executions):
        store.end(item)


@in_cluster()
async def test_a_rollout_whose_first_call_is_refused_parks_at_its_first_boundary(c):
    """The policy model is paused before the agents prepare."""
    await c.ok("policy_model", "model-admission/pause")
    task = asyncio.ensure_future(c.run())
    await until(lambda: c.agent.service.store.executions)
    reply = await c.ok("simple_agent", PREFIX + "prepare")
    status, seen = await c.get("simple_agent", PREFIX + "status", checkpoint_id="ck-1")

    selected = reply["selected_boundaries"]
    assert [("g_g0", 0, "turn_complete", {"counter": 1})] == [
        (item["rollout_id"], item["boundary_index"], item["boundary_kind"], item["resource_state_revisions"])
        for item in selected
    ]
    execution = reply["executions"][0]
    assert ("parked", "parked_with_boundary", 1) == (
        execution["state"],
        execution["parked_boundary_state"],
        execution["generation"],
    )
    assert "completion_receipt" not in execution
    assert (200, "ck-1", "preparing") == (status, seen["checkpoint_id"], seen["state"])
    assert (1, 1, 0, []) == (seen["parked"], seen["active"], seen["running"], seen["blocking_attempts"])
    await c.ok("policy_model", "model-admission/resume")
    await c.ok("simple_agent", PREFIX + "resume")
    assert 200 == code(await task)


@in_cluster()
async def test_a_lost_caller_of_a_parked_execution_is_ended_by_the_next_resume(c):
    """Until then it can be committed; a lost caller of a running one is fenced at once."""
    store = c.agent.service.store
    receive_gone = asyncio.Event()

    async def request(path, body):
        sent = []

        async def receive():
            if not sent:
                sent.append(1)
                return {"type": "http.request", "body": body, "more_body": False}
            await receive_gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            pass

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "root_path": "", "scheme": "http", "headers": [(b"content-type", b"application/json")],
            "server": ("a", 1), "client": ("b", 2),
        }  # fmt: skip
        await c.agent(scope, receive, send)

    c.hold_at(2)
    body = b'{"_ng_rollout_id":"g_g0","_ng_attempt_index":0,"parameters":{"increments":4}}'
    caller = asyncio.ensure_future(request("/run", body))
    await until(store.parked)
    reply = await c.ok("simple_agent", PREFIX + "prepare")
    receive_gone.set()
    await until(lambda: store.parked()[0].is_connection_lost)
    committed = await c.ok("simple_agent", PREFIX + "commit", checkpoint_dir=str(c.directory / "s"))
    released = await c.ok("simple_agent", PREFIX + "resume")
    await caller

    assert (1, 1, 0) == (reply["parked"], committed["records"], released["released"])
    assert "stale_attempt" == code(await c.run())


@in_cluster()
async def test_retire_ends_an_attempt_but_not_a_completed_result(c):
    """Unknown pairs are fenced too."""
    await c.run()
    pair = {"rollout_id": "g_g0", "attempt_index": 0}
    kept = await c.ok("simple_agent", PREFIX + "retire", **pair)
    unknown = await c.ok("simple_agent", PREFIX + "retire", rollout_id="u_g0", attempt_index=3)
    task = await parked(c, rollout="p_g0")
    ended = await c.ok("simple_agent", PREFIX + "retire", rollout_id="p_g0", attempt_index=0)

    assert {"retired": False, "tombstoned": False, "completed_unacknowledged": True} == kept
    assert {"retired": False, "tombstoned": True} == unknown
    assert {"retired": True, "tombstoned": True} == ended
    assert "stale_attempt" == code(await task)
    assert "stale_attempt" == code(await c.run("u_g0", attempt=3))


@in_cluster()
async def test_a_commit_into_an_existing_folder_gives_the_old_result(c):
    """Live records are not compared; another id or a damaged file is refused."""
    folder = str(c.directory / "s")
    task = await parked(c)
    await c.ok("simple_agent", PREFIX + "prepare")
    first = await c.ok("simple_agent", PREFIX + "commit", checkpoint_dir=folder)
    checkpoint = c.agent.service.checkpoint
    checkpoint.fence.phase = "prepared"
    checkpoint.fence._recorded.clear()  # as after a restart that lost the memory of the commit
    execution = c.agent.service.store.parked()[0]
    boundary, execution.boundary = execution.boundary, None

    assert first == await c.ok("simple_agent", PREFIX + "commit", checkpoint_dir=folder)
    execution.boundary = boundary
    await c.ok("simple_agent", PREFIX + "resume")
    await task
    await c.acknowledge()
    await c.ok("simple_agent", PREFIX + "prepare", "ck-2")
    assert "agent_checkpoint_error" == await c.code("simple_agent", PREFIX + "commit", "ck-2", checkpoint_dir=folder)


@pytest.mark.parametrize(
    "damage", ["agent-part-000000.tar", "agent-index.jsonl", "continuations.jsonl", "manifest.json"]
)
def test_a_damaged_folder_is_not_restored(tmp_path, damage):
    """Every file is proved; the process stays idle and open."""

    async def main():
        folder = tmp_path / "s"
        async with cluster(tmp_path) as c:
            task = await parked(c, 3)
            await c.ok("simple_agent", PREFIX + "prepare")
            await c.ok("simple_agent", PREFIX + "commit", checkpoint_dir=str(folder))
            await c.ok("simple_agent", PREFIX + "resume")
            await task
        path = next(folder.glob(f"agent/*/{damage}"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        async with cluster(tmp_path, incarnation=2) as c:
            refused = await c.code("simple_agent", PREFIX + "restore", checkpoint_dir=str(folder))
            return refused, c.agent.service.checkpoint.fence.phase, c.agent.service.store.is_open

    assert ("agent_checkpoint_error", "idle", True) == asyncio.run(main())


@in_cluster()
async def test_capabilities_need_no_credential_and_are_well_formed(c):
    """Of every participant."""
    for server in ("policy_model", "simple_agent", "counter"):
        reply = await c.http.get(f"http://{server}/ng-control/v1/capabilities")
        capabilities = Capabilities.model_validate_json(reply.content)
        assert ("export_restore", "idle", server) == (
            capabilities.checkpoint_mode,
            capabilities.phase,
            capabilities.name,
        )


@in_cluster()
async def test_control_checks_validation_then_credential_then_fence(c):
    """422, 401, 409."""
    url = "http://simple_agent/ng-control/v1/agent-checkpoint/commit"
    good = {"checkpoint_id": "ck", "deadline_ts": FOREVER, "checkpoint_dir": "/x"}
    bad = {**good, "schema_version": 2}

    assert 422 == (await c.http.post(url, json=bad)).status_code
    for content in (b"{", b'{"a": NaN}', b'{"a": 1, "a": 1}', b"[" * 100_000, b""):
        reply = await c.http.post(url, content=content, headers={"content-type": "application/json"})
        assert (422, {"type", "loc", "msg"}) == (reply.status_code, set(reply.json()["detail"][0]))
    assert 401 == (await c.http.post(url, json=good)).status_code
    assert 409 == (await c.http.post(url, json=good, headers=HEADERS)).status_code
