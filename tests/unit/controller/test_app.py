"""The controller application around a scripted controller, over its real ASGI interface."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest

from ckptctl.controller import ControllerFacts, RefusalError, create_app, openapi_document
from ckptctl.domain.controller import (
    PREFIX,
    AcknowledgementsReply,
    ClearReply,
    CloseReply,
    ConfirmReply,
    CutCounters,
    LedgerReply,
    RestoreReply,
    SaveReply,
    SettleReply,
)

TOKEN = "t-1"
FACTS = ControllerFacts(
    train_step=1, trainer_version=1, epoch=0, mutation_version=7, sampler_dispatch_index=-1, sampler_name="fifo",
    unfinished_rollouts=2, acknowledgements_pending=0, canonical_partition="rollout_data", staging_partition="rollout_staging",
    data_plane="embedded", storage_units=2, takes_own_snapshots=False, trainer_busy=False, checkpoint_dir="/c", anchor="step_1",
    bootstrap_fingerprint=None,
)  # fmt: skip


class ScriptedController:
    """Answers well, records what was asked, and can be told to refuse or to hang."""

    def __init__(self):
        self.calls, self.refusal, self.hang = [], None, False

    async def _do(self, name, reply):
        self.calls.append(name)
        if self.hang:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.calls.append(f"{name} undone")
                raise
        if self.refusal is not None:
            raise self.refusal
        return reply

    async def facts(self):
        return FACTS

    async def close_admission(self, request):
        return await self._do("close", CloseReply(phase="closed", unfinished_rollouts=2, in_flight_dispatches=0))

    async def acknowledgements(self, limit, after):
        return await self._do(
            f"acknowledgements {limit} {after}", AcknowledgementsReply(pending=[], total=0, next=None)
        )

    async def confirm(self, request):
        return await self._do("confirm", ConfirmReply(removed=0, unknown=[], remaining=0))

    async def settle(self, request):
        return await self._do("settle", SettleReply(settled=[], unowned=[]))

    async def save(self, request):
        counters = CutCounters(
            base_train_step=1, trainer_version=1, current_epoch=0, sampler_dispatch_index=-1, mutation_version=7,
            rolled_back_train_group_count=0,
        )  # fmt: skip
        return await self._do(
            "save",
            SaveReply(
                counters=counters, bootstrap_fingerprint=None, files=[], groups=0, canonical_rows=0, staging_rows=0,
                barrier_wait_s=0.0, cut_hold_s=0.0,
            ),
        )  # fmt: skip

    async def restore(self, request):
        return await self._do(
            "restore",
            RestoreReply(
                train_step=1,
                trainer_version=1,
                epoch=0,
                ledger_groups=1,
                replay_groups=0,
                canonical_rows=0,
                staging_rows=0,
                outbox=0,
            ),
        )

    async def ledger(self, limit, after):
        return await self._do("ledger", LedgerReply(groups=[], total=0, next=None))

    async def clear_staging(self, request):
        return await self._do("clear", ClearReply(cleared=len(request.keys), absent=0))

    async def open_admission(self, request):
        return await self._do(f"open {request.outcome}", len(request.redispatch))


class Talk:
    """A client of one application."""

    def __init__(self, client, controller):
        self.client, self.controller = client, controller

    async def post(self, path, checkpoint_id="ck-1", **fields):
        body = {"schema_version": 1, "checkpoint_id": checkpoint_id, "deadline_ts": 1000.0, **fields}
        reply = await self.client.post(PREFIX + path, json=body)
        return reply.status_code, reply.json()

    async def code(self, path, checkpoint_id="ck-1", **fields):
        status, body = await self.post(path, checkpoint_id, **fields)
        return body["error"]["code"] if status == 409 else status

    async def phase(self):
        return (await self.client.get(PREFIX + "/status")).json()["phase"]


@asynccontextmanager
async def talk(*, restore_expected=False, now=lambda: 0.0):
    controller = ScriptedController()
    app = create_app(controller, TOKEN, restore_expected=restore_expected, instance_id="i-1", now=now)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://c", headers=headers
    ) as client:
        yield Talk(client, controller)


def scenario(**options):
    """Run an async test body with a Talk."""

    def wrap(body):
        def test():
            async def main():
                async with talk(**options) as t:
                    await body(t)

            asyncio.run(main())

        test.__doc__ = body.__doc__
        return test

    return wrap


SAVE = {"checkpoint_dir": "/c/tmp", "storage_reference_indexes": []}
RESTORE = {"checkpoint_dir": "/c/s", "manifest_sha256": "0" * 64}


@scenario()
async def test_status_shows_little_without_and_all_with_the_token(t):
    """Only interface, schema and instance are public; a wrong token is refused here as everywhere."""
    wrong = await t.client.get(PREFIX + "/status", headers={"authorization": "Bearer wrong"})
    public = (await t.client.get(PREFIX + "/status", headers={"authorization": ""})).json()
    full = (await t.client.get(PREFIX + "/status")).json()

    assert 401 == wrong.status_code
    assert public == {"interface": "ckptctl-controller", "schema_version": 1, "instance_id": "i-1"}
    assert (full["phase"], full["admission"], full["restore_expected"], full["mutation_version"]) == (
        "idle",
        "open",
        False,
        7,
    )


@scenario()
async def test_a_bad_body_is_422_before_a_bad_token_is_401(t):
    """Order of checks: validation, credential, fence."""
    wrong = {"authorization": "Bearer wrong"}
    bad = await t.client.post(PREFIX + "/admission/close", json={"checkpoint_id": "ck"}, headers=wrong)
    good = {"checkpoint_id": "ck", "deadline_ts": 5.0}
    unknown = await t.client.post(PREFIX + "/admission/close", json=good, headers=wrong)

    assert (bad.status_code, unknown.status_code, t.controller.calls) == (422, 401, [])


@scenario()
async def test_every_other_route_needs_the_token(t):
    """None of them answers without it."""
    for path in ("/acknowledgements", "/ledger"):
        assert (await t.client.get(PREFIX + path, headers={"authorization": "x"})).status_code == 401
    reply = await t.client.post(
        PREFIX + "/acknowledgements/confirm", json={"acknowledged": []}, headers={"authorization": "x"}
    )

    assert reply.status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"checkpoint_id": "ck", "deadline_ts": NaN}',
        b'{"checkpoint_id": "ck", "deadline_ts": 1e999}',
        b'{"checkpoint_id": "ck", "checkpoint_id": "ck", "deadline_ts": 1.0}',
        b'{"checkpoint_id": "ck", "deadline_ts": 1.0, "extra": 1}',
        b'{"checkpoint_id": "ck", "deadline_ts": "1.0"}',
        b'{"checkpoint_id": "../x", "deadline_ts": 1.0}',
        b'{"checkpoint_id": "ck", "deadline_ts": 1.0, "schema_version": 2}',
        b'{"checkpoint_id": "ck", "deadline_ts": true}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"",
    ],
)
def test_a_body_that_is_not_exactly_the_message_is_422(body):
    """Nothing lenient gets through, and the reply does not echo it."""

    async def main():
        async with talk() as t:
            headers = {"content-type": "application/json"}
            reply = await t.client.post(PREFIX + "/admission/close", content=body, headers=headers)
            return reply, t.controller.calls

    reply, calls = asyncio.run(main())

    assert (reply.status_code, calls) == (422, [])
    assert {"type", "loc", "msg"} == set(reply.json()["detail"][0])


@scenario()
async def test_close_save_and_open_are_a_transaction(t):
    """Phases idle, closed, saved, idle; replies are replayed; the id is stale afterwards."""
    assert (await t.post("/admission/close"))[0] == 200
    assert (await t.phase(), (await t.post("/admission/close"))[0]) == ("closed", 200)
    assert (await t.post("/save", **SAVE))[0] == 200
    assert await t.phase() == "saved"
    opened = await t.post("/admission/open", outcome="released")
    assert opened == (200, {"phase": "idle", "admission": "open", "dispatched": 0})
    assert await t.post("/admission/open", outcome="released") == opened
    assert await t.code("/admission/close") == "stale_checkpoint"
    assert t.controller.calls == ["close", "save", "open released"]


@scenario()
async def test_another_id_conflicts_and_a_wrong_phase_is_refused(t):
    """The fence stands before the controller."""
    assert await t.code("/save", **SAVE) == "invalid_phase"
    await t.post("/admission/close")
    assert await t.code("/admission/close", "ck-2") == "checkpoint_conflict"
    assert t.controller.calls == ["close"]


@scenario()
async def test_a_failed_save_leaves_closed_and_runs_again(t):
    """Failures are not recorded."""
    await t.post("/admission/close")
    t.controller.refusal = RefusalError("staging_rows_missing", "3 of 10")
    assert await t.post("/save", **SAVE) == (409, {"error": {"code": "staging_rows_missing", "detail": "3 of 10"}})
    t.controller.refusal = None
    assert (await t.phase(), (await t.post("/save", **SAVE))[0]) == ("closed", 200)


@scenario()
async def test_aborted_is_legal_from_idle_but_nothing_else_is(t):
    """A lost close can be rolled back; `released` needs something to release."""
    assert await t.code("/admission/open", outcome="released") == "invalid_phase"
    assert await t.code("/admission/open", outcome="aborted") == 200
    assert await t.code("/admission/close") == "stale_checkpoint"


@scenario(now=lambda: 2000.0)
async def test_a_passed_deadline_changes_nothing(t):
    """`deadline_exceeded` before the controller is asked."""
    assert await t.code("/admission/close") == "deadline_exceeded"
    assert (await t.phase(), t.controller.calls) == ("idle", [])


@scenario(now=lambda: 999.99)
async def test_work_that_passes_its_deadline_is_cancelled(t):
    """The controller undoes it, the phase stays."""
    t.controller.hang = True
    assert await t.code("/admission/close") == "deadline_exceeded"
    assert (await t.phase(), t.controller.calls) == ("idle", ["close", "close undone"])


@scenario(restore_expected=True)
async def test_restore_then_open_with_a_mapping(t):
    """A fresh process restores, shows its ledger, clears staging rows twice and opens."""
    assert await t.code("/admission/open", outcome="aborted") == "invalid_phase"
    assert await t.code("/admission/close") == "invalid_phase"
    assert (await t.client.get(PREFIX + "/ledger")).json()["error"]["code"] == "invalid_phase"
    assert await t.code("/restore", "restore-1", **RESTORE) == 200
    assert (await t.client.get(PREFIX + "/ledger")).status_code == 200
    for keys in (["b", "a"], ["a", "b"], ["c"]):
        assert await t.code("/staging/clear", "restore-1", keys=keys) == 200
    assert await t.code("/admission/open", "restore-1", outcome="aborted") == "invalid_phase"
    one = {
        "group_id": "g", "generation_index": 0, "rollout_id": "g_g0", "source_attempt": 0, "replacement_attempt": 1,
        "mode": "continue", "reason": "boundary",
    }  # fmt: skip
    assert (await t.post("/admission/open", "restore-1", outcome="restored", redispatch=[one]))[1]["dispatched"] == 1
    status = (await t.client.get(PREFIX + "/status")).json()
    assert (status["admission"], status["restore_expected"]) == ("open", False)
    assert t.controller.calls == ["restore", "ledger", "clear", "clear", "open restored"]


@scenario(restore_expected=True)
async def test_a_failed_restore_allows_nothing_but_restore(t):
    """`restore_failed` keeps the id and refuses open."""
    t.controller.refusal = RefusalError("restore_failed", "data plane")
    assert await t.code("/restore", "restore-1", **RESTORE) == "restore_failed"
    t.controller.refusal = None
    assert await t.phase() == "restore_failed"
    assert await t.code("/admission/open", "restore-1", outcome="restored") == "invalid_phase"
    assert await t.code("/restore", "restore-1", **RESTORE) == 200


@scenario(restore_expected=True)
async def test_a_manifest_mismatch_before_loading_leaves_the_process_idle(t):
    """A harmless refusal is no restore failure."""
    t.controller.refusal = RefusalError("manifest_mismatch", "x", harmless=True)
    assert await t.code("/restore", "restore-1", **RESTORE) == "manifest_mismatch"
    assert await t.phase() == "idle"


@scenario()
async def test_a_process_that_admitted_work_is_not_restored(t):
    """`not_fresh`, and it goes on as before."""
    assert await t.code("/restore", **RESTORE) == "not_fresh"
    assert (await t.phase(), t.controller.calls) == ("idle", [])


@scenario()
async def test_redispatch_belongs_to_a_restore(t):
    """Any other outcome with a mapping is 422."""
    one = {
        "group_id": "g", "generation_index": 0, "rollout_id": "g_g0", "source_attempt": 0, "replacement_attempt": 1,
        "mode": "restart", "reason": "",
    }  # fmt: skip
    assert await t.code("/admission/open", outcome="aborted", redispatch=[one]) == 422


@scenario()
async def test_acknowledgement_routes_have_no_fence(t):
    """They work in every phase and carry no id."""
    await t.post("/admission/close")
    assert (await t.client.get(PREFIX + "/acknowledgements?limit=5&after=x")).status_code == 200
    assert (await t.client.get(PREFIX + "/acknowledgements?limit=0")).status_code == 422
    assert (await t.client.get(PREFIX + "/acknowledgements?size=1")).status_code == 422
    assert (await t.client.post(PREFIX + "/acknowledgements/confirm", json={"acknowledged": []})).status_code == 200
    assert (await t.client.post(PREFIX + "/acknowledgements/settle", json={"receipts": []})).status_code == 200
    assert t.controller.calls == ["close", "acknowledgements 5 x", "confirm", "settle"]


def test_no_token_no_application():
    """A controller that anyone may stop is not served."""
    with pytest.raises(ValueError, match="needs a token"):
        create_app(ScriptedController(), "")


def test_the_openapi_document_describes_every_route_and_does_not_vary():
    """What is committed under `schemas/` can be compared byte by byte."""
    first, second = (json.dumps(openapi_document(), sort_keys=True) for _ in range(2))
    paths = {path.removeprefix(PREFIX) for path in openapi_document()["paths"]}

    assert first == second
    assert paths == {
        "/status", "/admission/close", "/admission/open", "/acknowledgements", "/acknowledgements/confirm",
        "/acknowledgements/settle", "/save", "/restore", "/ledger", "/staging/clear",
    }  # fmt: skip
