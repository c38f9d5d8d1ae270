"""Every environment, cut and restored in one process: the end is that of an uninterrupted run, whatever was in flight."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.retention import GcRequest
from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import LockHeldError
from ckptctl.sim.equivalence import compare
from ckptctl.sim.prompt_source import Prompt, group_id
from ckptctl.sim.run_history import read_history
from ckptctl.workflows.gc import run_gc
from ckptctl.workflows.restore import restore
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.restored_runs import attempt, born, reborn, run, snapshot
from tests.unit.sim.inprocess import until

SEED = 7


def rollout(row: int, index: int) -> str:
    """Rollouts have the same ids in every run of a seed."""
    return f"{group_id(SEED, Prompt(0, row))}_g{index}"


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """Runs that nothing interrupts, by their options; each is made once, and its logs are given."""
    made: dict[str, str] = {}

    async def whole(groups: int, **options) -> str:
        name = repr((groups, sorted(options.items())))
        if name not in made:
            directory = tmp_path_factory.mktemp("whole")
            async with born(directory, **options) as gym:
                await gym.run_whole(groups)
            made[name] = str(directory / "run")
        return made[name]

    return whole


async def play(gym, groups: int) -> None:
    """Everything runs to its end, and the goal is reached."""
    gym.cluster.hold_at(-1)
    for store in gym.cluster.stores():
        for execution in store.parked():
            store.set_state(execution, "running")
    gym.controller.loop.set_goal(groups)
    state = gym.controller.state
    await until(lambda: state.finished_count() == groups and not state.ledger.outbox())
    assert [] == gym.controller.problems()


async def hold(gym, groups: int, boundary: int = 2, **others: int) -> None:
    """Start rollouts; each waits at its boundary of this number, some at other ones."""
    gym.cluster.hold_at(boundary)
    for name, number in others.items():
        gym.cluster.hold_at(number, name)
    gym.controller.loop.set_goal(groups)
    state = gym.controller.state
    await until(
        lambda: state.prompts.drawn >= groups and gym.controller.loop.in_flight() == len(gym.cluster.parked()) > 0
    )


async def lose_work(gym, finished: int = 0) -> None:
    """Go on after the snapshot, which had so many finished groups: what happens now, no snapshot holds."""
    for store in gym.cluster.stores():
        store.__class__.holds.pop(id(store), None)
    await until(lambda: gym.controller.state.finished_count() > finished)


def modes(result) -> dict[str, int]:
    """How many rollouts continue and restart."""
    return dict(Counter(item.mode for item in result.rollouts))


def compared(first: str, directory: Path, options: dict) -> object:
    found = compare(first, str(directory / "run"), ", ".join(options.get("environments", ("counter",))))
    assert [] == found.differences
    assert found.equal
    return found


def cut_and_compare(wholes, tmp_path, boundary: int, groups: int, **options):
    """Whole run, cut run, comparison; also what the restore answered."""

    async def scenario():
        first = await wholes(groups, **options)
        async with born(tmp_path / "cut", **options) as gym:
            await hold(gym, groups, boundary)
            await snapshot(gym)
            await lose_work(gym)
        async with reborn(tmp_path / "cut", **options) as gym:
            result, _ = await attempt(gym)
            await play(gym, groups)
        return compared(first, tmp_path / "cut", options), result

    return run(scenario)


@pytest.mark.parametrize("boundary", [0, 1, 4])
@pytest.mark.parametrize("environment", ["workplace", "genrm"])
def test_cut_at_a_boundary_and_continued(wholes, tmp_path, environment, boundary) -> None:
    """At the start, in the middle of a turn, after a turn: every rollout goes on as N+1 and nothing happens twice."""
    found, result = cut_and_compare(wholes, tmp_path, boundary, 2, environments=(environment,), turns=4)

    assert (4, {"continue": 4}) == (found.rollouts, modes(result))


def test_a_judge_forgets_and_only_its_dependants_restart(wholes, tmp_path) -> None:
    """A boundary after the registration names the judge and restarts, one before it continues; the group is judged all the same."""
    options = {"environments": ("genrm",), "turns": 3}
    late = rollout(0, 0)

    async def scenario():
        first = await wholes(2, **options)
        async with born(tmp_path / "cut", **options) as gym:
            await hold(gym, 2, 3, **{late: 6})
            store = gym.cluster.agent.service.store
            names = {item.pair.rollout_id: item.boundary.resource_state_revisions for item in store.parked()}
            path = await snapshot(gym)
            await lose_work(gym)
        async with reborn(tmp_path / "cut", **options) as gym:
            result, wire = await attempt(gym)
            await play(gym, 2)
        return compared(first, tmp_path / "cut", options), result, names, path, wire.posts()

    found, result, names, path, posts = run(scenario)
    decided = {item.rollout_id: (item.mode, item.reason) for item in result.rollouts}

    assert {late: {"genrm": 1}} == {name: revisions for name, revisions in names.items() if revisions}
    assert ("restart", "depends on restart_only genrm") == decided.pop(late)
    assert {("continue", "boundary restored")} == set(decided.values())
    assert (4, {"continue": 3, "restart": 1}) == (found.rollouts, modes(result))
    assert [(late, 1)] == [(item.rollout_id, item.replacement_attempt) for item in result.discards]
    assert not Path(path, "resources").exists()
    assert not [server for server, _ in posts if server in ("genrm", "directory")]


async def one_sibling_done(wholes, folder, options, *, held_before):
    """Cut while one sibling is done and the other held before that call, restored and played to the end."""
    first = await wholes(1, **options)
    async with born(folder, **options) as gym:
        await hold(gym, 1, -1, **{rollout(0, 0): held_before})
        store = gym.cluster.agent.service.store
        await until(lambda: rollout(0, 1) in {pair.rollout_id for pair in store.acknowledged})
        await snapshot(gym)
        await lose_work(gym)
    async with reborn(folder, **options) as gym:
        result, _ = await attempt(gym)
        await play(gym, 1)
    return compared(first, folder, options), result


def test_a_group_that_is_half_judged_is_judged_again_as_a_whole(wholes, tmp_path) -> None:
    """`prompt_group`: a sibling whose result was there already is dispatched again with the others, and comes to the same."""
    options = {"environments": ("genrm",), "turns": 2, "prompts": 1}

    found, result = run(lambda: one_sibling_done(wholes, tmp_path / "cut", options, held_before=4))

    assert (2, {"restart": 2}, 0) == (found.rollouts, modes(result), len(result.reused))
    assert {"no boundary", "depends on restart_only genrm"} == {item.reason for item in result.rollouts}


@pytest.mark.parametrize("granularity", ["sibling", "prompt_group"])
def test_one_sibling_done_the_other_not(wholes, tmp_path, granularity) -> None:
    """`sibling` keeps the sealed one, `prompt_group` sends both again; the results are the same."""
    options = {"environments": ("workplace",), "granularity": granularity, "prompts": 1}

    _, result = run(lambda: one_sibling_done(wholes, tmp_path / "cut", options, held_before=2))
    wanted = {"sibling": (1, {"continue": 1}), "prompt_group": (0, {"continue": 1, "restart": 1})}

    assert wanted[granularity] == (len(result.reused), modes(result))


def test_several_environments_agents_and_servers_restored_twice(wholes, tmp_path) -> None:
    """Two environments at two agents, killed and restored twice: attempts N+2, call chains over three capture keys."""
    options = {"environments": ("workplace", "genrm"), "agents": 2, "prompts": 4, "turns": 4, "max_in_flight": 16}

    async def scenario():
        first = await wholes(4, **options)
        async with born(tmp_path / "cut", **options) as gym:
            await hold(gym, 4, 2)
            paths = [await snapshot(gym)]
        async with reborn(tmp_path / "cut", **options) as gym:
            gym.cluster.hold_at(4)
            once, _ = await attempt(gym)
            await until(lambda: gym.controller.loop.in_flight() == len(gym.cluster.parked()) > 0)
            paths.append(await snapshot(gym))
            await lose_work(gym)
        async with reborn(tmp_path / "cut", incarnation=3, **options) as gym:
            twice, _ = await attempt(gym)
            await play(gym, 4)
        return compared(first, tmp_path / "cut", options), once, twice, paths

    found, once, twice, paths = run(scenario)
    captures = {path.name.partition("-a")[2].partition(".")[0] for path in Path(paths[1]).rglob("*.lineage.jsonl")}
    agents = {item.name for item in Path(paths[0], "agent").iterdir()}

    assert (2, 8) == (found.restores, found.rollouts)
    assert {(0, 1)} == {(item.source_attempt, item.replacement_attempt) for item in once.rollouts}
    assert {(1, 2)} == {(item.source_attempt, item.replacement_attempt) for item in twice.rollouts}
    assert {"continue"} == {item.mode for item in (*once.rollouts, *twice.rollouts)}
    assert 2 == len(agents)
    assert {"workplace"} == {item.name for item in Path(paths[0], "resources").iterdir()}
    assert captures <= {"", "1"}
    played = read_history(str(tmp_path / "cut" / "run")).played
    assert {1, 2, 3} == {incarnation for _, _, incarnation in played}


def test_a_trainer_step_between_two_snapshots(wholes, tmp_path) -> None:
    """The first belongs to the bootstrap anchor, the second to the step; a restore takes the step's and only that one."""
    options = {"environments": ("workplace",), "prompts": 4}

    async def scenario():
        first = await wholes(4, **options)
        async with born(tmp_path / "cut", **options) as gym:
            await gym.run_whole(2)
            before = await snapshot(gym)
            await gym.controller.finisher.train()
            await hold(gym, 4, 2)
            after = await snapshot(gym)
            await lose_work(gym, 2)
        async with reborn(tmp_path / "cut", **options) as gym:
            result, _ = await attempt(gym)
            await play(gym, 4)
            step = gym.controller.state.trainer.train_step
        return compared(first, tmp_path / "cut", options), result, before, after, step

    found, result, before, after, step = run(scenario)

    assert ("bootstrap", "step_1") == tuple(path.split("/")[-3] for path in (before, after))
    assert ("step_1", after, 1) == (result.anchor, result.snapshot, step)
    assert (2, {"continue": 4}, 8) == (found.kept_groups, modes(result), found.rollouts)


def test_nothing_is_collected_while_a_restore_reads(tmp_path) -> None:
    """Retention needs the lock that the restore holds; afterwards it keeps the snapshot that was restored, which is the newest."""

    async def scenario():
        async with born(tmp_path) as gym:
            await hold(gym, 2, 2)
            paths = [await snapshot(gym) for _ in range(2)]
        async with reborn(tmp_path) as gym:
            found = []

            async def collecting(sent):
                if sent.route == "agent-checkpoint/restore":
                    async with gym.world(pid=1) as (other, _):
                        with pytest.raises(LockHeldError):
                            run_gc(other, gym.config.checkpoint_dir, GcRequest(keep=1), gym.config)
                        with pytest.raises(LockHeldError):
                            await take_snapshot(other, gym.config, SnapshotRequest())
                        found.append(sent.server)

            async with gym.world() as (world, wire):
                wire.before = collecting
                result = await restore(world, gym.config, RestoreRequest())
        return paths, found, result

    paths, found, result = run(scenario)

    assert ["simple_agent"] == found
    assert paths[1] == result.snapshot
    assert all(Path(path).is_dir() for path in paths)
