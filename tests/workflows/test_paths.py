"""Paths as operators give them, and folders that are not what their names say."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.cli.offline import is_same_directory
from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.retention import GcRequest
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import ConfigError, NothingThereError, RefusedError
from ckptctl.workflows.gc import run_gc
from ckptctl.workflows.load_config import load_config, require_checkpoint_dir
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.restore import restore
from ckptctl.workflows.snapshot import take_snapshot
from ckptctl.workflows.targets import absolute
from tests.command_line import run as run_command
from tests.fakes.simulated_gym import simulated
from tests.workflows.test_publish import run

LINKS = (".ckptctl", ".ckptctl/journal", ".ckptctl/trash", ".ckptctl/pins", "bootstrap", "bootstrap/rollout_snapshots")


def tree_of(folder) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", LINKS)
def test_no_command_follows_a_link_below_the_checkpoint_directory(tmp_path, name) -> None:
    """Snapshot, publish, restore and gc refuse before anything is changed, here or where the link leads."""

    async def scenario():
        async with simulated(tmp_path / "run") as gym, gym.world() as (world, wire):
            path, elsewhere = gym.checkpoint_dir / name, tmp_path / "elsewhere"
            if path.exists():
                shutil.move(path, elsewhere)
            elsewhere.mkdir(exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(elsewhere)
            before = tree_of(tmp_path)
            found = []
            for work in (
                take_snapshot(world, gym.config, SnapshotRequest()),
                finish_publish(world, gym.config, PublishRequest()),
                restore(world, gym.config, RestoreRequest()),
                asyncio.to_thread(run_gc, world, str(gym.checkpoint_dir), GcRequest()),
            ):
                with pytest.raises(RefusedError) as refusal:
                    await work
                found.append(refusal.value)
            return found, wire.sent, before, tree_of(tmp_path), str(path)

    found, sent, before, after, path = asyncio.run(scenario())

    assert [] == sent
    assert before == after
    assert {f"`{path}` is a symbolic link, and none is followed there: nothing was changed"} == {
        error.message for error in found
    }


def test_a_path_through_a_link_above_the_checkpoint_directory(tmp_path) -> None:
    """The checkpoint directory itself may be one too; a staged directory is recognised whichever way its path goes."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            taken = await take_snapshot(world, gym.config, SnapshotRequest())
        staged = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots" / "tmp_snapshot_000007"
        shutil.move(taken.snapshot, staged)
        (tmp_path / "link").symlink_to(gym.checkpoint_dir)
        path = f"{tmp_path}/link/bootstrap/rollout_snapshots/tmp_snapshot_000007"
        config = replace(gym.config, checkpoint_dir=f"{tmp_path}/run/../link")
        async with gym.world() as (world, _):
            store = LocalStore(config.checkpoint_dir)
            world = replace(world, store=store, is_same_directory=is_same_directory)
            return await finish_publish(world, config, PublishRequest(staged=path))

    assert "published" == run(tmp_path / "run", scenario).outcome


def test_a_checkpoint_directory_that_is_none_is_a_wrong_configuration(tmp_path) -> None:
    """Exit 2, with the key and what lies there; so is a link that leads to no directory."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "lost").symlink_to("nowhere")
    for name, what in (
        ("file", "a file, no directory"),
        ("link", "leads to no directory"),
        ("lost", "leads to no directory"),
    ):
        (tmp_path / "run.yaml").write_text(f"checkpointing: {{checkpoint_dir: {tmp_path}/{name}}}\n")
        config = load_config(LocalStore(), str(tmp_path / "run.yaml"), "/")
        with pytest.raises(ConfigError, match=f"`checkpointing.checkpoint_dir` is `{tmp_path}/{name}`: .*{what}"):
            require_checkpoint_dir(LocalStore(), config)


def test_a_configuration_that_is_no_file_is_a_wrong_configuration(tmp_path) -> None:
    """A directory, a named pipe that nobody writes to, a device: exit 2 at once, with what lies there."""
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((str(tmp_path), "directory"), (f"{tmp_path}/pipe", "fifo"), ("/dev/zero", "device")):
        with pytest.raises(ConfigError, match=f"cannot be read: it is a {kind}, not a regular file"):
            load_config(LocalStore(), path, "/")


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """`here/link` leads to `there/inside`; both folders hold `run`, and `here/run_link` leads to `there/run`."""
    root = tmp_path.resolve()
    for folder in ("here/run", "there/run", "there/inside"):
        (root / folder).mkdir(parents=True)
    (root / "here/link").symlink_to(root / "there/inside")
    (root / "here/run_link").symlink_to(root / "there/run")
    (root / "alias").symlink_to(root / "here")
    monkeypatch.chdir(root / "here")
    return root


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("link/../run", "there/run"),
        ("link/..", "there"),
        ("link/../../here/run_link", "here/run_link"),
        ("run/../run_link", "here/run_link"),
        ("run/../link", "here/link"),
        ("../here/./run/", "here/run"),
        ("link", "here/link"),
    ],
)
def test_two_dots_after_a_link_are_those_of_the_system(linked, given, meant) -> None:
    """The folder that `ls` would show, not the one that the text suggests; the target itself is never followed."""
    assert str(linked / meant) == absolute(given)
    assert str(linked / meant) == absolute(f"{linked}/here/{given}")


@pytest.mark.parametrize(
    ("given", "first", "what"),
    [
        ("missing/../run", "missing", "is not there"),
        ("run/missing/../../run", "run/missing", "is not there"),
        ("run/../missing/../missing", "run/../missing", "is not there"),
        ("file/../run", "file", "is no directory"),
        ("lost/..", "lost", "is not there"),
    ],
)
def test_two_dots_lead_up_from_a_directory_only(linked, given, first, what) -> None:
    """As the system has it: a folder with a typing error in it is not folded away, and nothing else is found instead."""
    (linked / "here/file").write_bytes(b"")
    (linked / "here/lost").symlink_to("nowhere")
    for path, told in ((given, first), (f"{linked}/here/{given}", f"{linked}/here/{first}")):
        with pytest.raises(NothingThereError) as missing:
            absolute(path)
        assert f"no such path: `{path}`, since `{told}` {what}" == missing.value.message
        assert not os.path.exists(path)


def test_two_dots_of_every_path_of_a_command(linked) -> None:
    """The configuration, the answer and the target; none is read or written somewhere else."""
    (linked / "here/run.yaml").write_text("checkpointing: {checkpoint_dir: run}\n")
    config = run_command("restore", "--select", "--config", "missing/../run.yaml", folder=linked / "here")
    answer = run_command("validate", "run", "--output", "missing/../answer", folder=linked / "here")
    target = run_command("validate", "missing/../run", folder=linked / "here")

    assert (2, 32, 3) == (config.status, answer.status, target.status)
    assert "does not exist" in config.stderr
    assert "there is no folder `missing/..`" in answer.stderr
    assert not (linked / "here/answer").exists()


def test_names_stay_as_given_where_the_text_is_right(linked) -> None:
    """An alias of the run's folder is no reason to say another name in a report."""
    assert f"{linked}/alias/run" == absolute(f"{linked}/alias/run/../run")
