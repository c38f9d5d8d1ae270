"""Step 1: what the controller says decides whether a transaction may begin at all."""

from __future__ import annotations

import asyncio

import pytest

from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import AnchorRefusedError, CheckpointConflictError, RefusedError
from ckptctl.workflows.begin import begin, require_anchor
from ckptctl.workflows.discovery import controller_status, observe
from tests.fakes.memory_store import MemoryStore
from tests.fakes.small_world import a_world
from tests.unit.planning.test_config_checks import GOOD, decoded
from tests.unit.planning.test_discovery import agent, model, resources

OWN = decoded(GOOD).sections.ckptctl


def a_status(**changes) -> ControllerStatus:
    """An idle controller at step 3, with some facts changed."""
    facts = {
        "instance_id": "i-1",
        "phase": "idle",
        "admission": "open",
        "active_checkpoint_id": None,
        "train_step": 3,
        "trainer_version": 3,
        "epoch": 0,
        "mutation_version": 41,
        "sampler_dispatch_index": 5,
        "sampler_name": "windowed",
        "unfinished_rollouts": 4,
        "acknowledgements_pending": 0,
        "canonical_partition": "rollout_data",
        "staging_partition": "rollout_staging",
        "data_plane": "embedded",
        "storage_units": 2,
        "takes_own_snapshots": False,
        "restore_expected": False,
        "trainer_busy": False,
        "checkpoint_dir": "/srv/runs/demo",
        "anchor": "step_3",
        "bootstrap_fingerprint": None,
        **changes,
    }
    return ControllerStatus.model_validate(facts)


class Servers:
    """A controller with this status, and participants that are idle."""

    def __init__(self, status: ControllerStatus) -> None:
        self._status = status

    async def status(self):
        return self._status

    async def capabilities(self, server):
        return {"policy_model": model, "counter": resources, "simple_agent": agent}[server](server).capabilities


def a_store(*files: str) -> MemoryStore:
    store = MemoryStore()
    store.make_directory("/srv/runs/demo")
    for path in files:
        store.put(f"/srv/runs/demo/{path}", b"{}")
    return store


def check(status: ControllerStatus):
    world = a_world(controller=Servers(status))
    return asyncio.run(controller_status(world, OWN, "/srv/runs/demo"))


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"takes_own_snapshots": True}, RefusedError, "takes its own snapshots"),
        ({"checkpoint_dir": "/elsewhere"}, RefusedError, "the controller works in `/elsewhere`"),
        (
            {"phase": "saved", "active_checkpoint_id": "ck-9", "admission": "closed"},
            CheckpointConflictError,
            "saved under `ck-9`",
        ),
    ],
)
def test_a_controller_that_is_not_ours_to_coordinate(changes, kind, text) -> None:
    """Refused before anything is closed."""
    with pytest.raises(kind, match=text):
        check(a_status(**changes))


def test_a_controller_that_is() -> None:
    """Its status is what the transaction begins from."""
    assert 41 == check(a_status()).mutation_version


@pytest.mark.parametrize(
    ("changes", "sessions_only", "text"),
    [
        (
            {"restore_expected": True, "admission": "closed"},
            False,
            "waits for a restore: there is nothing to take a snap",
        ),
        (
            {"restore_expected": True, "admission": "closed"},
            True,
            "waits for a restore: there is no session that could",
        ),
        ({"trainer_busy": True}, False, "publishing an optimizer step"),
    ],
)
def test_a_controller_that_cannot_be_cut_now(changes, sessions_only, text) -> None:
    """A restore comes first, and `gc --sessions` is told of sessions; a step is waited out by the next attempt."""
    servers = Servers(a_status(**changes))
    world = a_world(controller=servers, participants=servers, store=a_store())
    raw = {
        **GOOD,
        "ckptctl": {
            **GOOD["ckptctl"],
            "participants": {name: {"url": "http://a"} for name in ("policy_model", "simple_agent", "counter")},
        },
    }
    with pytest.raises(RefusedError, match=text):
        asyncio.run(begin(world, decoded(raw), SnapshotRequest(sessions_only=sessions_only)))


@pytest.mark.parametrize(
    ("changes", "files", "text"),
    [
        ({"anchor": None}, (), "no durable trainer checkpoint for step 3"),
        ({"anchor": "latest"}, (), "`latest` is no anchor"),
        ({"anchor": "step_2"}, (), "at step 3, version 3; its newest durable checkpoint is `step_2`"),
        ({"trainer_version": 4}, (), "version 4"),
        ({"anchor": "bootstrap"}, (), "its newest durable checkpoint is `bootstrap`"),
        ({}, (), "`step_3` is missing"),
        ({}, ("step_3/config.yaml",), "`step_3/training_info.json` is missing"),
        ({}, ("step_3/training_info.json/x",), "`step_3/training_info.json` is a directory"),
    ],
)
def test_there_must_be_a_durable_anchor(changes, files, text) -> None:
    """A snapshot belongs to a published trainer checkpoint of exactly this step and version."""
    with pytest.raises(AnchorRefusedError, match=text):
        require_anchor(a_world(store=a_store(*files)), "/srv/runs/demo", a_status(**changes))


def test_anchors() -> None:
    """A step with its training info; the bootstrap anchor at step 0."""
    store = a_store("step_3/training_info.json", "bootstrap/manifest.json")
    zero = a_status(anchor="bootstrap", train_step=0, trainer_version=0)

    assert "step_3" == require_anchor(a_world(store=store), "/srv/runs/demo", a_status())
    assert "bootstrap" == require_anchor(a_world(store=store), "/srv/runs/demo", zero)


def test_looking_keeps_failures_beside_answers() -> None:
    """For `inspect --live`: a server that is down does not hide the others."""

    class Half(Servers):
        async def capabilities(self, server):
            if server == "counter":
                raise RefusedError("down", hint=None)
            return await super().capabilities(server)

    found = asyncio.run(observe(a_world(participants=Half(a_status())), OWN))

    assert ("down", "policy_model") == (found["counter"].message, found["policy_model"].name)
