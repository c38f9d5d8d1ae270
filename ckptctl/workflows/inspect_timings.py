"""`inspect --timings`: how long past snapshots took, from the journals of a checkpoint directory.

Which journals belong to a path is decided here; what they say is `planning.timings`' business. A journal that cannot be read
is a warning: nothing depends on these figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptctl.domain.ids import CONTROL_FOLDER
from ckptctl.domain.timings import TimingsInspection
from ckptctl.errors import CkptctlError, NothingThereError
from ckptctl.planning.timings import Timed, read_times, spread, spread_steps
from ckptctl.workflows.own_folders import JOURNAL_FOLDER, demand_no_link
from ckptctl.workflows.world import World

MOST = 1000
"""Journals that are read, the newest ones."""
KIND = "-snapshot"
PUBLISHED = "published"


def inspect_timings(world: World, checkpoint_dir: str, path: str) -> TimingsInspection:
    """The times of every snapshot of `path`: a checkpoint directory, an anchor in it or one snapshot.

    Raises:
        NothingThereError: no journal tells of one.
        RefusedError: a link lies where the journals should.
        StorageError: the journals cannot be listed.
    """
    demand_no_link(world.store, checkpoint_dir, (CONTROL_FOLDER, JOURNAL_FOLDER))
    inside = path.removeprefix(checkpoint_dir).strip("/")
    names = [name for name in world.journal.transactions() if name.endswith(KIND)]
    warnings: list[str] = []
    timed = [item for item in _read(world, names[-MOST:], warnings) if _belongs(item, inside)]
    if not timed:
        raise NothingThereError(
            f"no journal tells of a snapshot of `{path}`",
            hint="the journals lie in `.ckptctl/journal` of the checkpoint directory in which the snapshots were taken",
        )
    done = [item for item in timed if item.times.outcome == PUBLISHED]
    return TimingsInspection(
        path=path,
        outcomes=dict(Counter(item.times.outcome for item in timed)),
        left_out=max(0, len(names) - MOST),
        admission_closed_s=spread(item.times.admission_closed_s for item in done),
        own_s=spread(item.times.own_s for item in done),
        requests=spread(item.times.requests for item in done),
        bytes=spread(item.times.bytes for item in done),
        steps=spread_steps(done),
        last=timed[-1].times,
        last_steps=timed[-1].steps,
        transactions=tuple(item.times for item in timed),
        warnings=tuple(warnings),
    )


def _read(world: World, names: list[str], warnings: list[str]) -> Iterator[Timed]:
    for name in names:
        try:
            found = read_times(name, (item.record for item in world.journal.read(name)))
        except CkptctlError as error:
            warnings.append(error.message)
            continue
        if found is not None:
            yield found


def _belongs(item: Timed, inside: str) -> bool:
    return not inside or f"{item.times.snapshot}/".startswith(f"{inside}/")
