"""The resources server: order of checks, revisions, receipts, limits, and its checkpoint routes."""

import asyncio
import json

import httpx2
import pytest

from ckptctl.sim import sessions
from ckptctl.sim.identity import EXPECTED_REVISION, REQUEST_ID, REVISION, Pair
from ckptctl.sim.resources import create_resources_app
from ckptctl.sim.server import refuse_cookies
from ckptctl.sim.sessions import SessionBook, input_digest, new_receipt
from ckptctl.sim.settings import ResourcesSettings
from tests.unit.sim.inprocess import FOREVER, TOKEN

PREFIX = "resources-checkpoint/"


class Resources:
    """One counter server and how a test talks to it."""

    def __init__(self, directory, **settings):
        self.settings = ResourcesSettings(
            name="counter", environment="counter", port=0, run_dir=str(directory), **settings
        )
        self.app = create_resources_app(self.settings, TOKEN)
        self.service = self.app.service
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app), base_url="http://counter")
        refuse_cookies(self.http)

    async def call(self, route, body=None, *, pair=("r_g0", 0), request_id="q-1", expected=None, headers=None):
        made = dict(headers or {})
        if pair is not None:
            made |= Pair(*pair).headers()
        if request_id is not None:
            made[REQUEST_ID] = request_id
        if expected is not None:
            made[EXPECTED_REVISION] = str(expected)
        return await self.http.post(f"/{route}", json=body if body is not None else {}, headers=made)

    async def code(self, *args, **kwargs):
        reply = await self.call(*args, **kwargs)
        if reply.status_code != 409:
            return reply.status_code
        error = reply.json()["error"]
        assert "message" in error
        return error["code"]

    async def seed(self, pair=("r_g0", 0), request_id="seed"):
        return await self.call("seed_session", {"parameters": {"increments": 2}}, pair=pair, request_id=request_id)

    async def control(self, route, checkpoint_id="ck-1", *, deadline_ts=FOREVER, **fields):
        body = {"checkpoint_id": checkpoint_id, "deadline_ts": deadline_ts, **fields}
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = await self.http.post(f"/ng-control/v1/{PREFIX}{route}", json=body, headers=headers)
        return (reply.json()["error"]["code"] if reply.status_code == 409 else reply.status_code), reply.json()

    async def status(self, checkpoint_id="ck-1"):
        query = {"checkpoint_id": checkpoint_id, "deadline_ts": str(FOREVER)}
        headers = {"authorization": f"Bearer {TOKEN}"}
        return (await self.http.get(f"/ng-control/v1/{PREFIX}status", params=query, headers=headers)).json()


def scenario(**settings):
    """Run an async test body with a Resources."""

    def wrap(body):
        def test(tmp_path):
            async def main():
                r = Resources(tmp_path, **settings)
                try:
                    await body(r)
                finally:
                    r.service.audit.close()

            asyncio.run(main())

        test.__doc__ = body.__doc__
        return test

    return wrap


ADD = {"by": 1, "ticket": 0}


@scenario()
async def test_every_successful_change_adds_one_to_the_revision(r):
    """A fresh session has revision 1 after its start; the header says so."""
    seeded = await r.seed()
    added = await r.call("increment", ADD, request_id="q-1", expected=1)

    assert ("1", "2") == (seeded.headers[REVISION], added.headers[REVISION])
    assert {"count": 1} == added.json()


@scenario()
async def test_a_known_request_id_is_replayed_byte_for_byte_and_done_once(r):
    """Headers and body are the stored ones, the state does not change again."""
    await r.seed()
    first = await r.call("increment", ADD, expected=1)
    again = await r.call("increment", ADD, expected=1)

    assert first.content == again.content
    assert (first.headers["content-type"], first.headers[REVISION]) == (
        again.headers["content-type"],
        again.headers[REVISION],
    )
    assert 2 == r.service.book.bound()[0].revision


@scenario()
async def test_a_request_id_stands_for_one_request_only(r):
    """Another body, content type, cookie or expected revision is refused."""
    await r.seed()
    await r.call("increment", ADD, expected=1)

    assert "resource_request_receipt_error" == await r.code("increment", {"by": 1, "ticket": 1}, expected=1)
    assert "resource_request_receipt_error" == await r.code("increment", ADD, expected=2)
    assert "resource_request_receipt_error" == await r.code("increment", ADD, expected=1, headers={"cookie": "a=b"})


@scenario()
async def test_failed_answers_keep_the_revision_and_are_receipts_too(r):
    """The same refusal comes again, from the receipt."""
    await r.seed()
    first = await r.call("increment", {"by": "x"})
    again = await r.call("increment", {"by": "x"})

    assert (422, first.content) == (again.status_code, again.content)
    assert REVISION not in first.headers
    assert (1, 2) == (r.service.book.bound()[0].revision, len(r.service.book.bound()[0].receipts))


@scenario()
async def test_the_checks_stand_in_their_documented_order(r):
    """Each request breaks one check more from behind; the first one that breaks decides."""
    unbound = {"request_id": "q-9", "expected": 5}
    assert "resources_session_unbound" == await r.code("increment", ADD, **unbound)
    assert "resource_request_receipt_error" == await r.code("increment", ADD, request_id=None)
    assert "resource_request_receipt_error" == await r.code("increment", ADD, request_id="x" * 513)
    assert "resource_revision_mismatch" == await r.code("increment", ADD, request_id=None, expected="-1")
    await r.seed()
    r.service.book.bound()[0].uncertain_reason = "test"
    assert "resource_mutation_uncertain" == await r.code("increment", ADD, request_id=None, expected="-1")
    r.service.book.is_saturated = True
    assert "resource_receipt_evicted" == await r.code("increment", ADD, request_id=None)
    r.service.checkpoint.is_open = False
    assert "resources_admission_closed" == await r.code("increment", ADD)
    r.service.book.tombstones.add(Pair("r_g0", 0))
    assert "stale_attempt" == await r.code("increment", ADD)
    assert "execution_identity_mismatch" == await r.code(
        "increment", ADD, pair=None, headers={"x-nemo-gym-attempt-index": "0"}
    )


@scenario()
async def test_a_wrong_revision_names_both(r):
    """The refusal carries expected and actual revision."""
    await r.seed()
    reply = (await r.call("increment", ADD, expected=7)).json()["error"]

    assert ("resource_revision_mismatch", 7, 1) == (reply["code"], reply["expected_revision"], reply["actual_revision"])


@scenario()
async def test_the_terminal_call_releases_the_session_and_keeps_its_receipts(r):
    """A lost answer of the last call can still be asked for; nothing else can."""
    await r.seed()
    first = await r.call("verify", request_id="end", expected=1)
    again = await r.call("verify", request_id="end", expected=1)

    assert (200, first.content) == (again.status_code, again.content)
    assert "resources_session_unbound" == await r.code("increment", ADD, request_id="q-7")
    assert [] == r.service.book.bound()


@scenario()
async def test_a_full_session_takes_no_more(r):
    """1,024 receipts, then `resource_receipt_capacity_exhausted`; known ids are still replayed."""
    await r.seed()
    session = r.service.book.bound()[0]
    filler = new_receipt(
        request_id="f", expected_revision=None, digest="0" * 64, status=200, headers={}, body=b"", revision=1
    )
    session.receipts |= {f"f-{index}": filler for index in range(sessions.MAX_RECEIPTS - len(session.receipts))}

    assert "resource_receipt_capacity_exhausted" == await r.code("increment", ADD)
    assert 200 == (await r.seed()).status_code


def test_receipts_of_old_sessions_are_evicted_and_at_last_forgotten(monkeypatch):
    """Beyond the limits a pair is evicted, beyond those everything is."""
    monkeypatch.setattr(sessions, "MAX_RETIRED_SESSIONS", 2)
    monkeypatch.setattr(sessions, "MAX_EVICTED", 1)
    book = SessionBook()
    receipt = new_receipt(
        request_id="f", expected_revision=None, digest="0" * 64, status=200, headers={}, body=b"", revision=1
    )
    for index in range(3):
        session = book.require(Pair(f"r{index}", 0), 0.0)
        session.is_bound, session.receipts = True, {"f": receipt}
        book.release(session)

    assert (True, False, 1, False) == (
        book.is_evicted(Pair("r0", 0)), book.is_evicted(Pair("r1", 0)), book.evicted_count, book.is_saturated,
    )  # fmt: skip
    session = book.require(Pair("r3", 0), 0.0)
    session.is_bound, session.receipts = True, {"f": receipt}
    book.release(session)
    assert book.is_evicted(Pair("anything", 9))


def test_the_input_digest_ignores_the_order_of_parameters_and_cookies():
    """Content types are lower-cased with sorted parameters, lists sorted."""
    one = input_digest("POST", "/x", "", ["Application/JSON; b=2; a=1"], [("k", "v"), ("a", "b")], b"{}")
    two = input_digest("POST", "/x", "", ["application/json;a=1;b=2"], [("a", "b"), ("k", "v")], b"{}")

    assert one == two
    assert one != input_digest("POST", "/x", "q", ["application/json;a=1;b=2"], [("a", "b"), ("k", "v")], b"{}")


@scenario()
async def test_a_raising_handler_makes_the_session_uncertain_and_blocks_prepare(r):
    """Only a restart helps: retire is not possible in idle."""
    await r.seed()

    def broken(*_):
        raise ValueError("half done")

    r.service.environment.call = broken
    assert "resource_mutation_uncertain" == await r.code("increment", ADD)
    assert "resource_mutation_uncertain" == (await r.control("prepare"))[0]
    assert "invalid_phase" == (await r.control("retire", rollout_id="r_g0", attempt_index=0))[0]
    assert "resources_admission_closed" == await r.code("increment", ADD, pair=("other", 0))
    assert 200 == (await r.control("resume"))[0]


@scenario()
async def test_traffic_without_identity_poisons_every_prepare(r):
    """A read does not, a start does."""
    await r.call("count", pair=None, request_id=None)
    assert 200 == (await r.control("prepare"))[0]
    await r.control("resume")
    await r.call("seed_session", {"parameters": {"increments": 1}}, pair=None, request_id=None)
    assert "resources_checkpoint_error" == (await r.control("prepare", "ck-2"))[0]


@scenario()
async def test_prepare_takes_every_bound_session_and_retire_removes_an_orphan(r):
    """The inventory counts receipts; a retired pair is stale for ever."""
    await r.seed()
    await r.seed(("orphan_g0", 0))
    _, prepared = await r.control("prepare")
    assert ("prepared", 2) == (prepared["state"], prepared["sessions"])
    assert {"rollout_id": "orphan_g0", "attempt_index": 0, "revision": 1, "mutation_receipts": 1} in prepared[
        "inventory"
    ]
    pair = {"rollout_id": "orphan_g0", "attempt_index": 0}
    assert {"retired": True, **pair} == (await r.control("retire", **pair))[1]
    assert {"retired": True, **pair} == (await r.control("retire", **pair))[1]
    status = await r.status()
    assert ("prepared", "paused", 1, 1) == (
        status["state"],
        status["admission_state"],
        status["sessions"],
        status["tombstones"],
    )
    assert 1 == len(status["prepared_inventory"])
    await r.control("resume")
    assert "stale_attempt" == await r.code("increment", ADD, pair=("orphan_g0", 0))


@scenario()
async def test_prepare_waits_for_a_session_at_work_but_not_past_the_deadline(r):
    """A held lock fails prepare at the deadline, with admission closed; resume opens it."""
    await r.seed()
    session = r.service.book.bound()[0]
    async with session.lock:
        assert "resources_checkpoint_error" == (await r.control("prepare", deadline_ts=0.0))[0]
        waiting = asyncio.ensure_future(r.control("prepare"))
        while r.service.checkpoint.fence.phase != "preparing":
            await asyncio.sleep(0)
        assert "invalid_phase" == (await r.control("resume"))[0]
    assert 200 == (await waiting)[0]


@scenario(restore_expected=True)
async def test_a_process_that_expects_a_restore_serves_nothing_before(r):
    """Data plane closed, resume refused."""
    assert "resources_admission_closed" == await r.code("increment", ADD)
    assert "resources_checkpoint_error" == (await r.control("resume"))[0]
    assert "resources_checkpoint_error" == (await r.control("restore", checkpoint_dir="/nowhere"))[0]


def test_restore_wants_a_fresh_process_and_fitting_agents(tmp_path):
    """Stateful traffic is unsafe; a session without boundary is an orphan; else N+1 goes on and N is fenced."""

    async def main():
        folder = str(tmp_path / "s")
        first = Resources(tmp_path)
        await first.seed()
        await first.control("prepare")
        committed = (await first.control("commit", checkpoint_dir=folder))[1]
        used = await first.control("restore", "restore-0", checkpoint_dir=folder)
        first.service.audit.close()
        second = Resources(tmp_path, incarnation=2, restore_expected=True)
        unsafe = Resources(tmp_path, incarnation=3)
        await unsafe.seed()
        refused = (await unsafe.control("restore", checkpoint_dir=folder))[0]
        restored = (await second.control("restore", "restore-1", checkpoint_dir=folder))[1]
        await second.control("resume", "restore-1")
        stale = await second.code("increment", ADD, pair=("r_g0", 0), expected=1)
        added = (await second.call("increment", ADD, pair=("r_g0", 1), expected=1)).json()
        (tmp_path / "s" / "agent" / "instance-x").mkdir(parents=True)
        third = Resources(tmp_path, incarnation=4, restore_expected=True)
        broken = (await third.control("restore", checkpoint_dir=folder))[0]
        for server in (second, third, unsafe):
            server.service.audit.close()
        return committed, used[0], refused, restored, stale, added, broken

    committed, used, refused, restored, stale, added, broken = asyncio.run(main())

    assert 1 == committed["sessions"]
    assert ("checkpoint_conflict", "unsafe_resources_restore") == (used, refused)
    assert {"sessions": 1, "source_checkpoint_id": "ck-1"} == restored
    assert ("stale_attempt", {"count": 1}) == (stale, added)
    assert "resources_checkpoint_error" == broken


@scenario()
async def test_a_commit_into_an_existing_folder_gives_the_old_result_or_refuses(r):
    """Same id and intact files: the old result. Another id or a changed file: refused."""
    folder = f"{r.settings.run_dir}/s"
    await r.seed()
    await r.control("prepare")
    first = (await r.control("commit", checkpoint_dir=folder))[1]
    await r.control("resume")
    await r.control("prepare", "ck-2")
    assert "resources_checkpoint_error" == (await r.control("commit", "ck-2", checkpoint_dir=folder))[0]
    assert 1 == first["sessions"]


@scenario()
async def test_the_audit_log_has_every_change_once(r):
    """Replays leave no trace, refusals neither."""
    await r.seed()
    for _ in range(3):
        await r.call("increment", ADD, request_id="q-1", expected=1, headers={"x-ckptctl-sim-turn": "4"})
    await r.call("increment", ADD, request_id="q-2", expected=9)
    with open(r.service.audit.path) as file:
        lines = [json.loads(line) for line in file]

    assert [("seed", 1, None), ("q-1", 2, 4)] == [
        (line["request_id"], line["revision"], line["turn"]) for line in lines
    ]


@scenario()
async def test_planted_faults_make_orphans_and_uncertain_sessions(r):
    """They are what a coordinator must find before it commits."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    made = (await r.http.post("/sim/v1/fault", json={"kind": "orphan_session"}, headers=headers)).json()
    assert {"kind": "orphan_session", "is_new": True, **Pair("orphan-0_g0", 0).as_json()} == made["planted"]
    _, prepared = await r.control("prepare")
    assert ["orphan-0_g0"] == [item["rollout_id"] for item in prepared["inventory"]]
    await r.control("resume")
    made = (await r.http.post("/sim/v1/fault", json={"kind": "uncertain_session"}, headers=headers)).json()
    assert ("orphan-0_g0", False) == (made["planted"]["rollout_id"], made["planted"]["is_new"])
    assert "resource_mutation_uncertain" == (await r.control("prepare", "ck-2"))[0]


@scenario()
async def test_an_id_that_no_file_could_be_named_after_is_refused(r):
    """At the first call, not at the commit that would have to save the session."""
    assert "execution_identity_mismatch" == await r.code("seed_session", {}, pair=("x" * 300, 0))
    assert 200 == await r.code("seed_session", {"parameters": {"increments": 2}}, pair=("x" * 128, 0))
    assert 200 == (await r.control("prepare"))[0]
    folder = r.settings.run_dir + "/written"
    assert 200 == (await r.control("commit", checkpoint_dir=folder))[0]


@scenario()
async def test_a_planted_session_takes_nobodys_place(r):
    """Neither that of a bound session nor that of one that is over; an id that is none is no session either."""
    await r.seed()

    async def plant(**order):
        reply = await r.http.post("/sim/v1/fault", json=order, headers={"authorization": f"Bearer {TOKEN}"})
        return reply.status_code, reply.json()

    status, refused = await plant(kind="orphan_session", rollout_id="r_g0")
    assert (409, "session_exists") == (status, refused["error"]["code"])
    assert 1 == r.service.book.find(Pair("r_g0", 0)).revision
    for bad in ("foo bar/../x", "x" * 300):
        assert 422 == (await plant(kind="uncertain_session", rollout_id=bad))[0]
    names = [(await plant(kind="orphan_session"))[1]["planted"]["rollout_id"] for _ in range(2)]
    assert ["orphan-0_g0", "orphan-1_g0"] == names
    assert 200 == (await r.control("prepare"))[0]


@pytest.mark.parametrize("environment", ["directory", "genrm"])
def test_a_server_whose_sessions_nobody_saves_takes_no_planted_one(tmp_path, environment):
    """Its menu does not have them, and an order of one is refused, not kept."""

    async def main():
        settings = ResourcesSettings(name=environment, environment=environment, port=0, run_dir=str(tmp_path))
        app = create_resources_app(settings, TOKEN)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://s", headers=headers
        ) as http:
            menu = (await http.get("/sim/v1/fault/menu")).json()
            reply = await http.post("/sim/v1/fault", json={"kind": "orphan_session"})
            left = (await http.get("/sim/v1/fault")).json()["faults"]
        app.service.audit.close()
        return menu["kinds"], reply.status_code, reply.json()["error"]["code"], left

    kinds, status, code, left = asyncio.run(main())

    assert not {"orphan_session", "uncertain_session"} & set(kinds)
    assert (409, "unknown_fault", []) == (status, code, left)


def test_a_server_without_a_token_has_no_checkpoint_routes(tmp_path):
    """404, and discovery says restart_only."""

    async def main():
        app = create_resources_app(
            ResourcesSettings(name="counter", environment="counter", port=0, run_dir=str(tmp_path)), None
        )
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://c") as http:
            capabilities = (await http.get("/ng-control/v1/capabilities")).json()
            reply = await http.post(f"/ng-control/v1/{PREFIX}prepare", json={})
        app.service.audit.close()
        return capabilities["checkpoint_mode"], reply.status_code

    assert ("restart_only", 404) == asyncio.run(main())


def test_an_unknown_environment_is_refused_by_name(tmp_path):
    """The message lists what there is."""
    with pytest.raises(ValueError, match="no resources server `chess`; there are: counter, directory"):
        create_resources_app(ResourcesSettings(name="c", environment="chess", port=0, run_dir=str(tmp_path)), TOKEN)
