"""A large valid snapshot by our own writers, its storage units in the form that TransferQueue writes: chains of four calls."""

import random
from array import array
from pathlib import Path

from tests.artifacts import a_data_plane
from tests.builders import a_run_files, a_world, write_tree
from tests.queue_pickles import a_queue_unit
from tests.world import (
    AGENT,
    DESK,
    MODEL,
    SPARE,
    TOOLS,
    AgentContent,
    ModelContent,
    World,
    a_call,
    a_group,
    a_ledger,
    a_lineage_row,
    a_record,
    a_replay,
    a_replay_group,
    a_sample,
    an_attempt,
)

CHAIN = 4


def a_large_world(rows: int, tokens: int) -> World:
    """`rows` staged calls of `tokens` tokens each; every fourth is the boundary of a continuation."""
    choice = random.Random(1)
    ids = array("q", (choice.randrange(150_000) for _ in range(2 * tokens)))
    logprobs = array("f", (-choice.random() for _ in range(2 * tokens)))
    carried = tokens // 4
    mask = array("f", bytes(4 * carried)) + array("f", [1.0]) * (tokens - carried)
    staged, records, custody = [], [], {}
    groups_count = rows // CHAIN // 2
    for number in range(2 * groups_count):
        rollout, chain = f"g{100 + number // 2}_g{number % 2}", []
        for call in range(CHAIN):
            at = choice.randrange(tokens)
            generated = array("f", bytes(4 * carried)) + logprobs[at + carried : at + tokens]
            columns = {"token_mask": mask, "logprobs": generated}
            chain.append(a_call(rollout, f"call-{call}", ids[at : at + tokens], *chain, **columns))
        staged += chain
        last = {"last_committed_model_call_id": f"call-{CHAIN - 1}", "resource_state_revisions": {}}
        records.append(a_record(rollout, 0, **last))
        custody[rollout] = tuple(a_lineage_row(call, *chain[:at]) for at, call in enumerate(chain))
    groups = [
        a_group(f"g{100 + number}", str(100 + number), [[an_attempt(0)], [an_attempt(0)]])
        for number in range(groups_count)
    ]
    return a_world(
        agents={AGENT: AgentContent(tuple(records)), SPARE: AgentContent()},
        models={MODEL: ModelContent(custody=custody)},
        resources={TOOLS: (), DESK: ()},
        ledger=a_ledger(groups=groups),
        replay=a_replay([a_replay_group("g5", [{"weight_version": 3}] * 2)], saved_capacity=rows),
        samples={f"g5_g{index}": a_sample(7 + 2 * index) for index in range(2)},
        staged=tuple(staged),
    )


def write_large(folder: Path, rows: int, tokens: int) -> Path:
    """Its snapshot on disk."""
    world = a_large_world(rows, tokens)
    snapshot = write_tree(folder, a_run_files(world)) / world.anchor / "rollout_snapshots" / world.name
    plane = a_data_plane(world)
    for position, unit in enumerate(plane.units):
        path = snapshot / "data_plane/simple_storage" / plane.unit(position).file_name
        path.write_bytes(a_queue_unit(unit.storage_unit_id, plane.rows[position], plane.active(position)))
    return snapshot
