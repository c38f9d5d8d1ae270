"""The policy model: deterministic text, admission over worker processes, capture, commit and restore checks."""

import asyncio
import json

from ckptctl.domain.participant import Capabilities, ModelStatus, PauseReply, ResumeReply
from ckptctl.sim.counter import respond
from ckptctl.sim.identity import CALL, PARENT_CALL, PARENT_CAPTURE, Pair
from ckptctl.sim.policy_text import PolicyTurn, carried_from, encode, generate, message
from tests.unit.sim.inprocess import FOREVER, Cluster, cluster, until


async def call(c, *, rollout="r_g0", attempt=0, turn=0, call_id=None, items=None, headers=None, key=None, parent=None):
    pair = Pair(rollout, attempt)
    made = {**pair.headers(), CALL: call_id or f"call-{turn}", **(headers or {})}
    if parent is not None:
        made |= {PARENT_CAPTURE: parent[0], PARENT_CALL: parent[1]}
    body = {
        "input": items or [message("user", "go")], "turn_index": turn, "environment": "counter", "parameters": {"increments": 9},
    }  # fmt: skip
    url = f"http://policy_model/ng-rollout/{key or pair.capture_key}/training-token-capture/v1/responses"
    return await c.http.post(url, json=body, headers=made)


def code(reply):
    return reply.json()["error"]["code"] if reply.status_code == 409 else reply.status_code


async def status(c, checkpoint_id="ck-1", **query):
    got, body = await c.get(
        "policy_model", "model-admission/status", checkpoint_id=checkpoint_id, deadline_ts=FOREVER, **query
    )
    assert got == 200, body
    return body


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


def test_text_is_a_function_of_seed_rollout_turn_and_history():
    """Any of them changes it; nothing else could."""
    base = PolicyTurn(1, "r_g0", 0, [message("user", "go")], {"increments": 9})
    others = [
        PolicyTurn(2, "r_g0", 0, [message("user", "go")], {"increments": 9}),
        PolicyTurn(1, "r_g1", 0, [message("user", "go")], {"increments": 9}),
        PolicyTurn(1, "r_g0", 1, [message("user", "go")], {"increments": 9}),
        PolicyTurn(1, "r_g0", 0, [message("user", "GO")], {"increments": 9}),
    ]

    assert generate(base, respond) == generate(base, respond)
    assert all(generate(base, respond) != generate(other, respond) for other in others)


def test_tokens_of_a_prefix_are_a_prefix_of_the_tokens():
    """So a prefix can be computed again from the history."""
    items = [message("user", "ä"), message("assistant", "b"), {"type": "function_call_output", "output": "1"}]

    assert encode(items)[: len(encode(items[:2]))] == encode(items[:2])
    assert 2 == carried_from(items)
    assert 0 == carried_from(items[:1])


@in_cluster()
async def test_the_checks_of_a_call_stand_in_their_order(c):
    """Identity, tombstone, admission."""
    model = c.policy.service.checkpoint
    model.tombstones.add(Pair("r_g0", 0))
    model.is_open = False

    assert "execution_identity_mismatch" == code(await call(c, key="r_g0-a1"))
    assert "stale_attempt" == code(await call(c))
    refused = await call(c, attempt=1)
    assert ("checkpoint_parked", "1") == (code(refused), refused.headers["retry-after"])


@in_cluster()
async def test_a_repeated_call_gets_its_first_answer_and_one_row(c):
    """The agent may have lost the answer."""
    first, second = await asyncio.gather(call(c), call(c))
    third = await call(c)

    assert first.json() == second.json() == third.json()
    assert ["r_g0/call-0"] == list(c.plane.rows)
    assert 1 == len(c.policy.service.capture.custody()["r_g0"].splitlines())


@in_cluster()
async def test_a_history_that_is_not_the_parents_is_a_failed_call(c):
    """The lineage holds the failure; the row is not staged."""
    first = (await call(c)).json()
    wrong = [message("user", "other"), *first["output"]]
    right = [message("user", "go"), *first["output"]]

    assert 500 == (await call(c, turn=1, items=wrong, parent=("r_g0", "call-0"))).status_code
    assert 500 == (await call(c, turn=1, items=right, parent=("r_g0", "call-7"))).status_code
    assert 200 == (await call(c, turn=1, items=right, parent=("r_g0", "call-0"))).status_code
    lines = [json.loads(line) for line in c.policy.service.capture.custody()["r_g0"].splitlines()]
    assert [None, "generation_failed", "generation_failed", None] == [line.get("failure_reason") for line in lines]
    assert {"failure_reason", "model_call_id"} == set(lines[1])
    assert ["r_g0/call-0", "r_g0/call-1"] == lines[3]["staging_chain"]


@in_cluster(delays={"generation": 0.05})
async def test_pause_drains_accepted_calls_and_is_replayed_verbatim(c):
    """Its recorded reply never shows progress; the status does, and moves the phase."""
    running = asyncio.ensure_future(call(c))
    await until(lambda: c.policy.service.checkpoint.inflight)
    first = await c.ok("policy_model", "model-admission/pause")
    parked = await call(c, rollout="other")
    reached = await status(c, wait_state="paused", timeout_s=30)
    again = await c.ok("policy_model", "model-admission/pause")
    capabilities = (await c.get("policy_model", "capabilities"))[1]

    assert ("draining", 1) == (first["state"], first["inflight_total"])
    assert "checkpoint_parked" == code(parked)
    assert 200 == (await running).status_code
    assert ("paused", 0, {"acknowledged": 2, "expected": 2, "live": 2}) == (
        reached["state"], reached["inflight_total"], reached["workers"],
    )  # fmt: skip
    assert first == again
    assert ("prepared", "ck-1") == (capabilities["phase"], capabilities["active_checkpoint_id"])
    assert PauseReply.model_validate(first)
    assert ModelStatus.model_validate(reached)
    assert Capabilities.model_validate(capabilities)


@in_cluster()
async def test_a_slow_call_is_accepted_first_so_a_pause_waits_for_it(c):
    """The fault of a policy call that outlasts a deadline."""
    await c.fault("policy_model", operation="generate", kind="slow", delay_s=0.05)
    running = asyncio.ensure_future(call(c))
    await until(lambda: c.policy.service.checkpoint.inflight)
    await c.ok("policy_model", "model-admission/pause")

    assert "draining" == (await status(c))["state"]
    assert 200 == (await running).status_code
    assert "paused" == (await status(c))["state"]


@in_cluster()
async def test_a_worker_that_is_gone_is_missing_and_blocks_readiness(c):
    """Calls go to the others; pause is not acknowledged by all; the status names the missing one."""
    c.reachable["worker-1"].is_up = False
    assert [200] * 3 == [(await call(c, rollout=f"r{index}_g0")).status_code for index in range(3)]
    paused = await c.ok("policy_model", "model-admission/pause")
    seen = await status(c, wait_state="paused", timeout_s=0.05)

    assert {"acknowledged": 1, "expected": 2} == paused["workers"]
    assert (["worker-1"], False) == (seen["missing_workers"], seen["per_worker"]["worker-1"]["connected"])
    assert "preparing" == c.policy.service.checkpoint.fence.phase
    assert "invalid_phase" == await c.code(
        "policy_model", "model-checkpoint/commit", checkpoint_dir="/x", continuation_indexes=[]
    )
    resumed = await c.ok("policy_model", "model-admission/resume")
    assert ResumeReply.model_validate(resumed)
    c.reachable["worker-1"].is_up = True
    await c.ok("policy_model", "model-admission/pause", "ck-2")
    assert 2 == (await status(c, "ck-2"))["workers"]["acknowledged"]


@in_cluster()
async def test_no_worker_at_all_fails_the_call(c):
    """500, and the failure stands in the lineage."""
    for name in ("worker-0", "worker-1"):
        c.reachable[name].is_up = False

    assert 500 == (await call(c)).status_code
    assert b"generation_failed" in c.policy.service.capture.custody()["r_g0"]


@in_cluster()
async def test_a_worker_lets_calls_finish_that_were_accepted_before_the_pause(c):
    """It refuses only what was accepted later."""
    headers = {"authorization": "Bearer sim-token"}
    body = {
        "admission": 0,
        "rollout_id": "r",
        "turn_index": 0,
        "environment": "counter",
        "items": [],
        "parameters": {"increments": 1},
    }
    base = "http://worker-0/sim/v1/worker"
    await c.http.post(f"{base}/admission", json={"number": 1, "is_open": False}, headers=headers)
    before = await c.http.post(f"{base}/generate", json=body, headers=headers)
    after = await c.http.post(f"{base}/generate", json={**body, "admission": 1}, headers=headers)

    assert (200, 409) == (before.status_code, after.status_code)


@in_cluster(delays={"generation": 30.0})
async def test_aborting_an_attempts_calls_fences_it(c):
    """The call ends as stale, a later one is refused, the commit counts it."""
    running = asyncio.ensure_future(call(c))
    await until(lambda: c.policy.service.checkpoint.inflight)
    await c.ok("policy_model", "model-admission/pause")
    aborted = await c.ok("policy_model", "model-admission/abort_inflight", rollout_id="r_g0", attempt_index=0)
    await status(c)
    folder = str(c.directory / "s")
    reply = await c.ok("policy_model", "model-checkpoint/commit", checkpoint_dir=folder, continuation_indexes=[])

    assert (1, 0) == (aborted["aborted_inflight"], aborted["inflight_total"])
    assert "stale_attempt" == code(await running)
    assert (1, 1, 0) == (reply["excluded_tombstoned"], reply["excluded_inactive"], reply["rollouts"])
    assert "generation_cut_records" not in reply


@in_cluster()
async def test_a_commit_refuses_what_does_not_fit(c):
    """Continuations without lineage, an index that differs from its reference, an aborted attempt."""
    await call(c)
    await c.ok("policy_model", "model-admission/pause")
    await status(c)
    folder = c.directory / "s" / "agent"
    folder.mkdir(parents=True)
    row = b'{"schema_version":1,"rollout_id":"x_g0","attempt_index":0,"capture_key":"x_g0","last_committed_model_call_id":"call-0","resource_state_revisions":{}}\n'
    import hashlib

    def reference(data, records=1):
        (folder / "c.jsonl").write_bytes(data)
        return {
            "schema_version": 1, "relative_path": "agent/c.jsonl", "sha256": hashlib.sha256(data).hexdigest(), "records": records,
            "bytes": len(data),
        }  # fmt: skip

    async def commit(*references):
        return await c.code(
            "policy_model",
            "model-checkpoint/commit",
            checkpoint_dir=str(c.directory / "s"),
            continuation_indexes=list(references),
        )

    assert "ledger_mismatch" == await commit(reference(row))
    good = reference(row.replace(b"x_g0", b"r_g0"))
    assert "ledger_mismatch" == await commit({**good, "bytes": 1})
    assert "ledger_mismatch" == await commit({**good, "records": 2})
    assert "ledger_mismatch" == await commit(good, good)
    c.policy.service.checkpoint.tombstones.add(Pair("r_g0", 0))
    assert "ledger_mismatch" == await commit(good)
    c.policy.service.checkpoint.tombstones.clear()
    assert 200 == await commit(good)
    assert 422 == await commit({**good, "relative_path": "../x"})


def test_a_restore_needs_a_clean_directory_and_can_be_repeated(tmp_path):
    """Leftovers fail it with the id kept; after cleaning the same id succeeds and fences the source attempts."""

    async def main():
        folder = str(tmp_path / "s")
        async with cluster(tmp_path) as c:
            await call(c)
            await c.ok("policy_model", "model-admission/pause")
            await status(c)
            await c.ok("policy_model", "model-checkpoint/commit", checkpoint_dir=folder, continuation_indexes=[])
        c = Cluster(tmp_path, incarnation=2)
        leftover = tmp_path / "capture-2" / "old.lineage.jsonl"
        leftover.write_text("")
        first = await c.code("policy_model", "model-checkpoint/restore", "restore-1", checkpoint_dir=folder)
        phase = (await c.get("policy_model", "capabilities"))[1]
        leftover.unlink()
        reply = await c.ok("policy_model", "model-checkpoint/restore", "restore-1", checkpoint_dir=folder)
        closed = code(await call(c, attempt=1))
        await c.ok("policy_model", "model-admission/resume", "restore-1")
        late = code(await call(c, attempt=0))
        c.counter.service.audit.close()
        return first, phase["phase"], phase["active_checkpoint_id"], reply, closed, late

    first, phase, active, reply, closed, late = asyncio.run(main())

    assert ("ledger_mismatch", "restore_failed_paused", "restore-1") == (first, phase, active)
    assert ("ck-1", [{"rollout_id": "r_g0", "attempt_index": 0}], []) == (
        reply["checkpoint_id"], reply["source_attempts"], reply["tombstones"],
    )  # fmt: skip
    assert ("checkpoint_parked", "stale_attempt") == (closed, late)
