"""Injected faults: each kind, and that the participant behind stays honest."""

import asyncio

import httpx2
import pytest

from ckptctl.sim.fault_order import Fault
from ckptctl.sim.faults import FaultPlan, operation_of
from tests.unit.sim.inprocess import TOKEN, cluster

PREPARE = "resources-checkpoint/prepare"
RESUME = "resources-checkpoint/resume"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


def with_fault(body_of_test, tmp_path, **fault):
    async def main():
        async with cluster(tmp_path) as c:
            await c.fault("counter", **fault)
            return await body_of_test(c)

    return asyncio.run(main())


def phase(c):
    return c.counter.service.checkpoint.fence.phase


def test_a_refusal_does_nothing_and_is_used_up(tmp_path):
    """The next call is served."""

    async def body(c):
        return await c.code("counter", PREPARE), phase(c), await c.code("counter", PREPARE)

    fault = {"operation": PREPARE, "kind": "refuse", "code": "checkpoint_conflict"}
    assert ("checkpoint_conflict", "idle", 200) == with_fault(body, tmp_path, **fault)


@pytest.mark.parametrize("status", [401, 404, 422, 500])
def test_a_status_does_nothing(tmp_path, status):
    """Only the status is answered."""

    async def body(c):
        return await c.code("counter", PREPARE), phase(c)

    assert (status, "idle") == with_fault(body, tmp_path, operation="*prepare", kind="status", status=status)


def test_refusing_resume_until_cleared(tmp_path):
    """`times` 0 lasts until the faults are cleared."""

    async def body(c):
        await c.ok("counter", PREPARE)
        refused = [await c.code("counter", RESUME) for _ in range(3)]
        await c.http.post("http://counter/sim/v1/fault/clear", headers=HEADERS)
        return refused, await c.code("counter", RESUME)

    fault = {"operation": RESUME, "kind": "refuse", "code": "resources_checkpoint_error", "times": 0}
    assert (["resources_checkpoint_error"] * 3, 200) == with_fault(body, tmp_path, **fault)


@pytest.mark.parametrize(("kind", "reached"), [("lost", "idle"), ("drop", "prepared"), ("cut", "prepared")])
def test_a_broken_connection_before_or_after_the_effect(tmp_path, kind, reached):
    """The caller sees a transport error either way; the retry with the same id succeeds."""

    async def body(c):
        with pytest.raises(httpx2.TransportError):
            await c.control("counter", PREPARE)
        return phase(c), await c.code("counter", PREPARE)

    assert (reached, 200) == with_fault(body, tmp_path, operation=PREPARE, kind=kind)


def test_wrong_values_and_rubbish(tmp_path):
    """Counts, digests and the whole body; schema versions stay."""

    async def body(c):
        await c.fault("counter", operation="*commit", kind="wrong_digest")
        await c.fault("counter", operation=RESUME, kind="rubbish")
        prepared = await c.ok("counter", PREPARE)
        committed = await c.ok("counter", "resources-checkpoint/commit", checkpoint_dir=str(c.directory / "s"))
        honest = await c.ok("counter", "resources-checkpoint/commit", checkpoint_dir=str(c.directory / "s"))
        reply = await c.http.post(
            f"http://counter/ng-control/v1/{RESUME}",
            json={"checkpoint_id": "ck-1", "deadline_ts": 9e9},
            headers=HEADERS,
        )
        return prepared["sessions"], committed["manifest_digest"] == honest["manifest_digest"], reply.content, phase(c)

    assert (1, False, b"<html>\xff", "idle") == with_fault(body, tmp_path, operation=PREPARE, kind="wrong_count")


def test_late_and_stalled_calls_finish_after_the_caller_gave_up(tmp_path):
    """The effect is there although nobody waited for the answer."""

    async def body(c):
        await c.fault("counter", operation=RESUME, kind="stall", delay_s=0.0)
        late = asyncio.ensure_future(c.ok("counter", PREPARE))
        while phase(c) != "prepared":
            await asyncio.sleep(0)
        done_early = late.done()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        return done_early, await c.code("counter", RESUME, deadline_ts=0.0)

    assert (False, 200) == with_fault(body, tmp_path, operation=PREPARE, kind="late")


def test_a_clock_that_is_off_shows_in_the_date_header(tmp_path):
    """Until cleared."""

    async def body(c):
        from email.utils import parsedate_to_datetime

        reply = await c.http.get("http://counter/ng-control/v1/capabilities")
        shown = parsedate_to_datetime(reply.headers["date"]).timestamp()
        return 3500 < shown - c.counter.now() < 3700

    assert with_fault(body, tmp_path, kind="clock", delay_s=3600.0)


def test_a_dropped_tool_answer_is_repeated_and_counted_once(tmp_path):
    """The receipt makes the agent's retry harmless; the same for a dropped model answer and a dropped verify."""

    async def main():
        async with cluster(tmp_path) as c:
            await c.fault("counter", operation="increment", kind="drop", times=2)
            await c.fault("counter", operation="verify", kind="drop")
            await c.fault("counter", operation="seed_session", kind="cut")
            await c.fault("policy_model", operation="generate", kind="drop")
            status, result = await c.run()
            return status, result["reward"], result["final_state"]["tickets"]

    assert (200, 1.0, [0, 1, 2, 3]) == asyncio.run(main())


def test_faults_need_the_token_and_can_be_listed(tmp_path):
    """They are part of the control surface."""

    async def body(c):
        denied = await c.http.post("http://counter/sim/v1/fault", json={"kind": "slow"})
        listed = await c.http.get("http://counter/sim/v1/fault", headers=HEADERS)
        return denied.status_code, [item["operation"] for item in listed.json()["faults"]]

    assert (401, ["x"]) == with_fault(body, tmp_path, operation="x", kind="slow")


@pytest.mark.parametrize(
    "order",
    [
        {"kind": "slow", "delay_s": -3.0},
        {"kind": "refuse", "status": 404},
        {"kind": "clock", "delay_s": 1e18},
        {"kind": "orphan_session", "rollout_id": "foo bar/../x"},
    ],
)
def test_an_order_without_sense_is_refused(tmp_path, order):
    """422, and nothing is kept."""

    async def body(c):
        refused = await c.http.post("http://counter/sim/v1/fault", json=order, headers=HEADERS)
        listed = await c.http.get("http://counter/sim/v1/fault", headers=HEADERS)
        return refused.status_code, [item["operation"] for item in listed.json()["faults"]]

    assert (422, ["x"]) == with_fault(body, tmp_path, operation="x", kind="drop")


def test_operations_are_named_by_their_route():
    """Control routes without prefix, model calls as `generate`, else the path."""
    assert "admission/close" == operation_of("/ckpt-control/v1/admission/close")
    assert "generate" == operation_of("/ng-rollout/x/training-token-capture/v1/responses")
    assert "run" == operation_of("/run")


def test_the_oldest_fitting_fault_is_taken_first():
    """And used up by its count."""
    plan = FaultPlan()
    plan.add(Fault(operation="a*", kind="slow", times=2))
    plan.add(Fault(operation="*", kind="drop"))

    assert ["slow", "drop", "slow", None] == [
        fault and fault.kind for fault in (plan.take("ab"), plan.take("b"), plan.take("ac"), plan.take("ad"))
    ]
