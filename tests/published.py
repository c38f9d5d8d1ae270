"""A snapshot as ckptctl itself publishes it, from a valid world: checksum file, journal, everything by the program's own steps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ckptctl.adapters.journal import FileJournal
from ckptctl.adapters.local_store import LocalStore
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.publication import Publication
from ckptctl.workflows.transaction import Recorder, execute
from tests.builders import a_run_files, a_world, write_tree
from tests.fakes.small_world import a_world as a_small_world
from tests.runs import ShiftedClock
from tests.world import World


class Owned:
    """A lock that is ours."""

    def is_owner(self) -> bool:
        return True


def publish_in(root: Path, staged: str, final: str, level="standard", **changes) -> Publication:
    """Steps 7 and 8 of `publish STAGED`; paths relative to the checkpoint directory `root`."""
    clock = ShiftedClock()
    world = a_small_world(
        **{
            "store": LocalStore(str(root)),
            "lock": Owned(),
            "journal": FileJournal(str(root), clock),
            "clock": clock,
            **changes,
        }
    )
    work = Publication(
        world=world,
        checkpoint_dir=str(root),
        anchor=staged.partition("/")[0],
        staged=staged,
        final=final,
        level=level,
        keep_latest_k=9,
    )
    begin = {"schema_version": 1, "tool_version": "0.1.0", "staged": staged, "final": final}
    recorder = Recorder(world, world.journal.begin("publish", begin))
    plan = steps.plan_publish(None, staged, final)
    try:
        asyncio.run(execute(plan, work.actions(), recorder, done=(steps.WRITE_MANIFEST,)))
    finally:
        recorder.finish("published" if (root / final).exists() else "refused")
    return work


def a_published_run(root: Path, world: World | None = None, *, before=lambda staged: None, **changes) -> Path:
    """A checkpoint directory with one published snapshot; the path of the snapshot. `before` gets the staged directory first."""
    world = world or a_world()
    write_tree(root, a_run_files(world))
    folder = f"{world.anchor}/rollout_snapshots"
    (root / folder / world.name).rename(root / folder / f"tmp_{world.name}")
    before(root / folder / f"tmp_{world.name}")
    publish_in(root, f"{folder}/tmp_{world.name}", f"{folder}/{world.name}", **changes)
    return root / folder / world.name
