"""A journal that is damaged: what blocks, what does not, and the way out."""

from __future__ import annotations

import asyncio

import pytest

from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import (
    CheckpointConflictError,
    JournalDamagedError,
    NothingThereError,
    RefusedError,
    UsageError,
)
from ckptctl.render.transaction_text import transaction_text
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.crash.test_snapshot_crash import die
from tests.fakes.mortal import Life
from tests.fakes.simulated_gym import simulated
from tests.workflows.test_journal_lines import journal_problems
from tests.workflows.test_publish import publish, run


def damage(gym, name: str, line: int) -> None:
    """Overwrite one line (from 0) of a journal."""
    path = gym.checkpoint_dir / ".ckptctl" / "journal" / f"{name}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = b"\0" * 8 + b"\n"
    path.write_bytes(b"".join(lines))


async def snapshot(gym):
    """One `snapshot` in a world of its own: result or error."""
    async with gym.world() as (world, _):
        try:
            return await take_snapshot(world, gym.config, SnapshotRequest())
        except Exception as error:
            return error


def test_a_transaction_that_has_ended_blocks_nobody(tmp_path) -> None:
    """Its damage, first record included, hides nothing that is owed: the next snapshot is taken, `publish` has nothing to do."""

    async def scenario(gym):
        first = await snapshot(gym)
        damage(gym, "000001-snapshot", 0)
        left, _ = await publish(gym)
        second = await snapshot(gym)
        return first, left, second

    first, left, second = run(tmp_path, scenario)

    assert ("published", "nothing_to_do", "published") == (first.outcome, left.outcome, second.outcome), second


def test_a_journal_whose_first_line_was_torn_never_began(tmp_path) -> None:
    """On a file system without hard links a crash may leave that: no server has heard of it, so nobody needs to know."""

    async def scenario(gym):
        folder = gym.checkpoint_dir / ".ckptctl" / "journal"
        folder.mkdir(parents=True)
        (folder / "000001-snapshot.jsonl").write_bytes(b'{"at":1.0,"event":"beg')
        return await snapshot(gym)

    assert "published" == run(tmp_path, scenario).outcome


def test_the_way_out_of_a_damaged_journal(tmp_path) -> None:
    """Everything is refused with the file, the line and the way out; then the file is kept, and who is held can be freed."""

    async def scenario(gym):
        await die(gym, Life(outcome_of="prepare-agents"))
        damage(gym, "000001-snapshot", 3)
        _, held_id = gym.phases()["policy_model"]
        blocked = [
            await snapshot(gym),
            (await publish(gym))[0],
            (await publish(gym, release_id=held_id, reason="x"))[0],
        ]
        aside, wire = await publish(gym, set_aside="000001-snapshot", reason="disk fault on node-3")
        assert [] == wire.posts()
        conflict, _ = await publish(gym)
        released, _ = await publish(gym, release_id=held_id, reason="disk fault")
        assert gym.is_released(), gym.phases()
        taken = await snapshot(gym)
        kept = sorted(path.name for path in (gym.checkpoint_dir / ".ckptctl" / "journal").iterdir())
        return gym.checkpoint_dir, held_id, blocked, aside, conflict, released, taken, kept

    checkpoint_dir, held_id, blocked, aside, conflict, released, taken, kept = run(tmp_path, scenario)

    assert [JournalDamagedError] * 3 == [type(error) for error in blocked]
    assert "000001-snapshot.jsonl` is damaged: line 4 is no journal record" in blocked[0].message
    assert "ckptctl publish --set-aside 000001-snapshot --reason TEXT" in blocked[0].hint
    assert "set_aside" == aside.outcome
    assert [] == [problem for told in journal_problems(checkpoint_dir).values() for problem in told]
    assert any(f"--release {held_id} " in text for text in aside.warnings), aside.warnings
    assert isinstance(conflict, CheckpointConflictError)
    assert f"--release {held_id} " in conflict.hint
    assert ("released", "published") == (released.outcome, taken.outcome)
    assert "000001-snapshot.jsonl.set-aside-1" in kept
    assert "is let go; no snapshot was published" in transaction_text(released, width=120)
    assert "disk fault on node-3; the journal is kept as" in transaction_text(aside, width=400)


def test_what_is_not_set_aside(tmp_path) -> None:
    """No name, no reason, no such transaction, one that can be read, one that has ended."""

    async def scenario(gym):
        await snapshot(gym)
        damage(gym, "000001-snapshot", 2)
        ended, _ = await publish(gym, set_aside="000001-snapshot", reason="x")
        await die(gym, Life(outcome_of="prepare-agents"))
        readable, _ = await publish(gym, set_aside="000002-snapshot", reason="x")
        absent, _ = await publish(gym, set_aside="000009-snapshot", reason="x")
        nameless, _ = await publish(gym, set_aside="", reason="x")
        no_reason, _ = await publish(gym, set_aside="000002-snapshot", reason=" ")
        return ended, readable, absent, nameless, no_reason

    found = run(tmp_path, scenario)

    assert [RefusedError, RefusedError, NothingThereError, UsageError, UsageError] == [type(error) for error in found]


@pytest.mark.parametrize("server", ["controller", "policy_model"])
def test_nobody_is_let_go_in_the_middle_of_a_restore(tmp_path, server) -> None:
    """Half-restored servers that go on would be worse than ones that wait: they must be restarted, and the text says so."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            fence = gym.server.service.fence if server == "controller" else gym.cluster.policy.service.checkpoint.fence
            fence.phase = "restored" if server == "controller" else "restored_paused"
            fence.active_checkpoint_id = "restore-1"
            async with gym.world() as (world, wire):
                found = []
                for request in (PublishRequest(), PublishRequest(release_id="restore-1", reason="x")):
                    with pytest.raises((CheckpointConflictError, RefusedError)) as refusal:
                        await finish_publish(world, gym.config, request)
                    found.append(refusal.value)
                return found, wire.posts()

    found, posts = asyncio.run(scenario())

    assert ([21, 20], []) == ([error.exit_code for error in found], posts)
    assert ["as fresh ones, told to expect a restore" in error.hint for error in found] == [True, True]
