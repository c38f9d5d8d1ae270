"""A route that a server does not have: the hint says what the server is, and where the configuration has its url."""

from __future__ import annotations

import pytest

from ckptctl.domain.participant import Capabilities, MultiProcess
from ckptctl.errors import RouteMissingError
from tests.fakes.fixed_clock import START_S
from tests.unit.adapters.test_channel import World, reply

CAPABILITIES, STATUS = "/ng-control/v1/capabilities", "/ckpt-control/v1/status"


def a_server(component, name):
    """A Gym server that has only this one route."""
    told = Capabilities(
        component=component,
        name=name,
        schema_version=1,
        admission_states=[],
        checkpoint_mode="export_restore",
        concurrency_contract="serialized_per_session",
        multi_process=MultiProcess(mode="single_worker", num_workers=1),
    ).model_dump(mode="json")
    return only(CAPABILITIES, told)


def only(path, told):
    return lambda request: reply(200, told) if request.url.path == path else reply(404, {"detail": "Not Found"})


def hint(handler, action, **options):
    world = World(handler)
    with pytest.raises(RouteMissingError, match="no such route") as missing:
        world.run(action, **options)
    return missing.value.hint, world


def test_the_url_of_another_participant_is_named_as_such() -> None:
    """An agent under the name of a resources server; it is asked what it is without the token."""
    told, world = hint(
        a_server("responses_api_agents", "simple_agent"), lambda gym: gym.resources_resume("s", "ck", START_S + 5)
    )

    assert told.startswith(
        "that server is the agent `simple_agent`: `s` in `ckptctl.participants` seems to have the url"
    )
    assert ["authorization" in request.headers for request in world.requests] == [True, False]


def test_the_url_of_the_controller_among_the_participants() -> None:
    """It has no capabilities, but a status that everybody may read."""
    controller = only(STATUS, {"interface": "ckptctl-controller", "schema_version": 1, "instance_id": "i"})
    told, _ = hint(controller, lambda gym: gym.capabilities("s"))

    assert told.startswith("that server is a rollout controller: `s` in `ckptctl.participants`")


def test_the_url_of_a_participant_for_the_controller() -> None:
    """The other way round."""
    told, _ = hint(a_server("responses_api_models", "policy"), lambda found: found.status(), use_controller=True)

    assert told.startswith("that server is the policy model `policy`: `ckptctl.controller.url` seems to have the url")


def test_what_says_nothing_keeps_the_general_hint() -> None:
    """A server without a token has the role that it should have, and a stranger says nothing: both may be the case."""
    told, _ = hint(only("/", {}), lambda gym: gym.agent_resume("s", "ck", START_S + 5))
    same, _ = hint(a_server("responses_api_agents", "s"), lambda gym: gym.agent_resume("s", "ck", START_S + 5))

    assert told == f"{same}, or `s` in `ckptctl.participants` (http://127.0.0.1:1) is no url of ours"
    assert "without a control token" in same
