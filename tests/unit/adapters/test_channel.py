"""One HTTP call: what goes out, and what every kind of answer becomes."""

from __future__ import annotations

import asyncio
import json
import logging

import httpx2
import pytest

from ckptctl.adapters.channel import Channel, is_loopback
from ckptctl.adapters.control_http import HttpParticipants
from ckptctl.adapters.controller_http import HttpController
from ckptctl.domain.limits import Limits
from ckptctl.errors import (
    REFUSALS,
    CredentialError,
    DiscoveryRefusedError,
    MalformedReplyError,
    RouteMissingError,
    ServerRefusedError,
    TimedOutError,
    UnreachableError,
)
from tests.fakes.fixed_clock import START_S, FixedClock

TOKEN = "control-token-of-the-run"
RESUMED = {"state": "accepting"}


class Body(httpx2.AsyncByteStream):
    """A body that arrives in pieces."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aiter__(self):
        for start in range(0, len(self.content), 1000):
            yield self.content[start : start + 1000]


def reply(status: int, body: object = None, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.Response(status, stream=Body(content), headers=headers)


def answer(status: int, body: object = None, **headers: str):
    """A server that always says the same."""
    return lambda request: reply(status, body, **headers)


class World:
    """Participants and controller behind one handler, with what they sent and what was noticed."""

    def __init__(self, handler, *, url: str = "http://127.0.0.1:1", limits: Limits = Limits()) -> None:
        self.requests: list[httpx2.Request] = []
        self.notices: list[str] = []
        self.handler = handler
        self.url = url
        self.limits = limits

    def run(self, action, *, use_controller: bool = False):
        async def main():
            def handle(request: httpx2.Request):
                self.requests.append(request)
                return self.handler(request)

            transport = httpx2.MockTransport(handle)
            clock = FixedClock()
            async with Channel(
                token=TOKEN, clock=clock, notice=self.notices.append, limits=self.limits, transport=transport
            ) as channel:
                self.channel = channel
                if use_controller:
                    return await action(HttpController(channel, self.url, control_timeout_s=0.2))
                return await action(HttpParticipants(channel, {"s": self.url}, control_timeout_s=0.2))

        return asyncio.run(main())

    def resume(self):
        return self.run(lambda gym: gym.agent_resume("s", "ck-1", START_S + 5))


def test_a_request_carries_id_deadline_and_token() -> None:
    """Exactly the common body goes out, with the bearer token, to the documented route."""
    world = World(answer(200, RESUMED))
    world.resume()
    [request] = world.requests

    assert ("POST", "/ng-control/v1/agent-checkpoint/resume") == (request.method, request.url.path)
    assert {"schema_version": 1, "checkpoint_id": "ck-1", "deadline_ts": START_S + 5} == json.loads(request.content)
    assert f"Bearer {TOKEN}" == request.headers["authorization"]
    assert "identity" == request.headers["accept-encoding"]


def test_capabilities_go_out_without_the_token() -> None:
    """The capabilities route needs no credential, so it gets none."""
    world = World(answer(404))
    with pytest.raises(RouteMissingError):
        world.run(lambda gym: gym.capabilities("s"))

    assert all("authorization" not in request.headers for request in world.requests)


def test_the_status_long_poll_says_what_it_waits_for() -> None:
    """A long poll carries the state to wait for and a bound; without one neither is sent."""
    world = World(answer(200, {"state": "paused"}))
    world.run(lambda gym: gym.model_status("s", "ck-1", START_S + 5, wait_paused_s=2.5))
    world.run(lambda gym: gym.model_status("s", "ck-1", START_S + 5, wait_paused_s=None))
    first, second = (dict(request.url.params) for request in world.requests)

    assert {
        "checkpoint_id": "ck-1",
        "deadline_ts": repr(START_S + 5),
        "wait_state": "paused",
        "timeout_s": "2.5",
    } == first
    assert {"checkpoint_id", "deadline_ts"} == set(second)


@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_each_documented_code_has_its_class(code) -> None:
    """A 409 becomes the class of its code, with the server's own words, whether they stand in detail or in message."""
    for field in ("detail", "message"):
        world = World(answer(409, {"error": {"code": code, field: "why"}}))
        with pytest.raises(ServerRefusedError, match=f"`s` refused agent-checkpoint/resume: {code}: why") as refusal:
            world.resume()
        assert REFUSALS[code] is type(refusal.value)


def test_an_unknown_code_is_told_verbatim() -> None:
    """A code that nobody documented is a refusal all the same."""
    with pytest.raises(ServerRefusedError, match=r"brand_new: it \\x1b hurts") as refusal:
        World(answer(409, {"error": {"code": "brand_new", "detail": "it \x1b hurts"}})).resume()
    assert ServerRefusedError is type(refusal.value)


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (401, b"anything", CredentialError, "token is missing or wrong"),
        (404, {"detail": "Not Found"}, RouteMissingError, "no such route"),
        (
            422,
            {"detail": [{"msg": "Field required"}]},
            ServerRefusedError,
            "does not accept our request: Field required",
        ),
        (500, b"Traceback", ServerRefusedError, "500: the server failed"),
        (503, b"", UnreachableError, "HTTP 503"),
        (409, {"error": "no"}, MalformedReplyError, "without an error code"),
        (409, b"\xff", MalformedReplyError, "without an error code"),
        (302, b"", MalformedReplyError, "HTTP 302 is not a documented answer"),
        (204, b"", MalformedReplyError, "HTTP 204 is not a documented answer"),
    ],
)
def test_other_answers(status, body, kind, text) -> None:
    """Every other status is told apart."""
    with pytest.raises(kind, match=text):
        World(answer(status, body, location="http://evil.example/")).resume()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"<html>",
        b'{"state":"accepting","state":"accepting"}',
        b'{"state":"open"}',
        b'{"state":NaN}',
        b"[" * 100_000,
    ],
)
def test_rubbish_is_malformed(body) -> None:
    """A success that is not the documented reply confirms nothing."""
    with pytest.raises(MalformedReplyError, match="`s` refused agent-checkpoint/resume: malformed"):
        World(answer(200, body)).resume()


def test_replies_are_bounded_and_not_compressed() -> None:
    """A reply above the limit and a compressed one are refused before they are held in memory."""
    with pytest.raises(MalformedReplyError, match="exceeds 10 bytes"):
        World(answer(200, b" " * 11), limits=Limits(reply_bytes=10)).resume()
    with pytest.raises(MalformedReplyError, match="is compressed"):
        World(answer(200, b"x", **{"content-encoding": "gzip"})).resume()


def test_stored_replies_are_strict_and_others_are_lenient() -> None:
    """An unknown field is refused where the content is stored, and told once where it is not."""
    commit = {"sessions": 0, "manifest_digest": "0" * 64, "extra": 1}
    with pytest.raises(MalformedReplyError, match="`extra` is not a field"):
        World(answer(200, commit)).run(lambda gym: gym.resources_commit("s", "ck-1", START_S + 5, "/x"))
    world = World(answer(200, {"state": "accepting", "released": 3, "a\x1b": 1}))

    async def twice(gym):
        await gym.agent_resume("s", "ck-1", START_S + 5)
        await gym.agent_resume("s", "ck-1", START_S + 5)

    world.run(twice)
    assert ["`s` agent-checkpoint/resume: unknown reply fields are ignored: a\\x1b"] == world.notices


def test_what_a_resources_server_tells_of_itself_is_known() -> None:
    """All of the documented reply, also what nobody shows, so that a held server is no reason for a warning."""
    session = {"rollout_id": "g0", "attempt_index": 0}
    counts = (
        "sessions",
        "lock_entries",
        "locked_sessions",
        "tombstones",
        "evicted_receipt_tombstones",
        "mutation_receipts",
    )
    told = {
        "checkpoint_id": "ck-1",
        "state": "prepared",
        "admission_state": "closed",
        "per_session": [{**session, "revision": 2, "locked": True}],
        "uncertain_sessions": [{**session, "reason": "cancelled"}],
        "receipt_history_saturated": False,
        "retired_receipt_sessions": 0,
        "prepared_inventory": [],
        **dict.fromkeys(counts, 1),
    }
    world = World(answer(200, told))
    status = world.run(lambda gym: gym.resources_status("s", "ck-1", START_S + 5))

    assert ("prepared", 2) == (status.state, status.per_session[0].revision)
    assert [] == world.notices


def test_no_answer_in_time_is_timed_out() -> None:
    """A stalled server costs no more than the time that is left, and a passed deadline is a tiny budget, not an error."""

    async def stall(request):
        await asyncio.Event().wait()

    for left_s in (0.01, -100.0):
        with pytest.raises(TimedOutError, match="no answer within"):
            World(stall).run(lambda gym, left_s=left_s: gym.agent_resume("s", "ck-1", START_S + left_s))


def test_lost_connections_are_unreachable() -> None:
    """Refused, reset in the middle of the body: the server cannot be reached, and the text says for what."""

    def refuse(request):
        raise httpx2.ConnectError("refused")

    class Torn(httpx2.AsyncByteStream):
        async def __aiter__(self):
            yield b'{"state":'
            raise httpx2.ReadError("reset by peer")

    with pytest.raises(
        UnreachableError, match=r"`s` \(http://127.0.0.1:1\) cannot be reached for agent-checkpoint/resume: refused"
    ):
        World(refuse).resume()
    with pytest.raises(UnreachableError, match="reset by peer"):
        World(lambda request: httpx2.Response(200, stream=Torn())).resume()


def test_a_clock_that_is_off_is_told_once() -> None:
    """Deadlines are absolute: a server that is more than 5 s off is named, once."""
    world = World(answer(200, RESUMED, date="Mon, 21 Sep 2026 14:14:20 GMT"))  # 60 s ahead
    world.resume()

    assert ["the clock of `s` is 60 s ahead of ours: deadlines will be wrong"] == world.notices
    assert {"s": 60.0} == world.channel.clocks_ahead()
    close = World(answer(200, RESUMED, date="Mon, 21 Sep 2026 14:13:17 GMT"))
    close.resume()
    assert [] == close.notices


def test_plain_http_to_another_host_is_told() -> None:
    """The token could be read on the way; loopback and https are fine."""
    for url, expected in (
        ("http://10.0.0.7:80", 1),
        ("https://gym.example", 0),
        ("http://[::1]:80", 0),
        ("http://localhost", 0),
    ):
        world = World(answer(200, RESUMED), url=url)
        world.resume()
        assert expected == len(world.notices), url
    assert not is_loopback("127.0.0.1.evil.example")


def test_generation_b_is_recognised() -> None:
    """No capabilities, but the status route of generation B: said in so many words."""
    for status in (200, 401):
        world = World(
            lambda request, status=status: reply(status if "checkpoint/status" in request.url.path else 404, {})
        )
        with pytest.raises(
            DiscoveryRefusedError, match="speaks control protocol generation B; ckptctl speaks generation A"
        ):
            world.run(lambda gym: gym.capabilities("s"))


def test_the_token_appears_nowhere(caplog) -> None:
    """Not in errors, even when a server echoes it, not in notices, not in logs."""
    caplog.set_level(logging.DEBUG)
    world = World(answer(409, {"error": {"code": "x", "detail": f"bad header Bearer {TOKEN}"}}))
    with pytest.raises(ServerRefusedError, match="bad header Bearer <redacted>"):
        world.resume()

    assert TOKEN not in caplog.text + "".join(world.notices)


def test_the_controller_says_who_it_is_without_a_token() -> None:
    """The public status carries no credential; errors call the server `controller`."""
    world = World(answer(200, {"interface": "ckptctl-controller", "schema_version": 1, "instance_id": "i-1"}))

    assert "i-1" == world.run(lambda controller: controller.public_status(), use_controller=True)
    assert "authorization" not in world.requests[0].headers
    with pytest.raises(CredentialError, match="`controller` refused status: 401"):
        World(answer(401)).run(lambda controller: controller.status(), use_controller=True)
    with pytest.raises(CredentialError, match="it answers only what needs no token"):
        world.run(lambda controller: controller.status(), use_controller=True)


def test_lists_are_read_by_page() -> None:
    """The outbox is asked for by limit and cursor."""
    world = World(answer(200, {"pending": [], "total": 0, "next": None}))
    world.run(lambda controller: controller.acknowledgements(limit=7, after="c"), use_controller=True)

    assert {"limit": "7", "after": "c"} == dict(world.requests[0].url.params)
