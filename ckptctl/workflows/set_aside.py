"""`publish --set-aside TRANSACTION --reason TEXT`: take a journal that cannot be read out of the way, and keep it.

Only one that blocks everything else may go: whatever can be read is finished by `publish`. Nothing is guessed from what
is left of the file; who is still held, and under which id, is what the servers themselves say.
"""

from __future__ import annotations

from ckptctl import __version__
from ckptctl.domain.config import RunConfig
from ckptctl.domain.transaction import PublishRequest, TransactionResult
from ckptctl.errors import JournalDamagedError, NothingThereError, RefusedError, UsageError
from ckptctl.workflows.find_unfinished import HOLDING, find_unfinished
from ckptctl.workflows.held import observe_held
from ckptctl.workflows.load_config import require_own
from ckptctl.workflows.world import World


async def set_aside(world: World, config: RunConfig, request: PublishRequest) -> TransactionResult:
    """Set the journal of one transaction aside, and say who is held.

    Raises:
        UsageError, NothingThereError: there is no such transaction, or no reason.
        RefusedError: its journal can be read.
    """
    name = (request.set_aside or "").rpartition("/")[2].removesuffix(".jsonl")
    reason = (request.reason or "").strip()
    if not name or not reason:
        raise UsageError(
            "`--set-aside TRANSACTION` needs a name and `--reason TEXT`", hint="the reason is kept in the journal"
        )
    if name not in world.journal.transactions():
        raise NothingThereError(f"there is no transaction `{name}`", hint="they lie in `.ckptctl/journal/`")
    problem = _problem(world)
    if problem is None or problem.transaction != name:
        raise RefusedError(
            f"the journal of `{name}` blocks nothing" if name.endswith(HOLDING) else f"nobody waits for `{name}`",
            hint="what can be read, or has ended, stays: `ckptctl publish` finishes what an interrupted run left",
        )
    facts = {"schema_version": 1, "tool_version": __version__, "set_aside": name, "reason": reason}
    writer = world.journal.begin("aside", facts)
    path = world.journal.set_aside(name)
    writer.append({"event": "finish", "outcome": "set_aside", "path": path}, sync=True)
    held, silent = await observe_held(world, require_own(config))
    for item in held:
        world.notice(f"{item.told()}; {item.way()}")
    if silent:
        world.notice(f"these do not answer, and may be held too: {', '.join(f'`{name}`' for name in silent)}")
    return TransactionResult(outcome="set_aside", reason=f"{reason}; the journal is kept as `{path}`")


def _problem(world: World) -> JournalDamagedError | None:
    try:
        find_unfinished(world)
    except JournalDamagedError as error:
        return error
    return None
