"""`inspect --live`: every configured server as it is now, and everything for which a snapshot would refuse, all of it at once.

Asks only what changes nothing in a server that works: capabilities, the controller's status, and of servers that a
checkpoint holds anyway the status of that checkpoint (a policy model that has drained notices it when it is asked, whoever
asks). The refusals are those of the snapshot transaction itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from ckptctl.domain.amounts import duration
from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.fingerprint import topology_fingerprint
from ckptctl.domain.ids import AGENT, MODEL, RESOURCES
from ckptctl.domain.inspection import ControllerView, LiveInspection, LiveProblem, ServerView
from ckptctl.domain.participant import AgentStatus, Capabilities, DiscoveredParticipant, ModelStatus, ResourcesStatus
from ckptctl.domain.topology import topology_of
from ckptctl.errors import (
    CheckpointConflictError,
    CkptctlError,
    ConfigError,
    DiscoveryRefusedError,
    ExitCode,
    LockHeldError,
    TimedOutError,
)
from ckptctl.planning.config_checks import config_problems
from ckptctl.planning.discovery import (
    busy_refusal,
    name_warnings,
    refusals_so_far,
    require_one_actor,
    topology_refusals,
)
from ckptctl.workflows.begin import readiness_refusals, require_anchor
from ckptctl.workflows.discovery import controller_refusals, observe
from ckptctl.workflows.inspect_directory import Control, read_control
from ckptctl.workflows.live_sessions import unclaimed_sessions
from ckptctl.workflows.load_config import require_own
from ckptctl.workflows.waiting import side_by_side
from ckptctl.workflows.world import World

SILENT_HINT = (
    "look whether that process is there; if it is certainly gone, `--break-lock` of the next command takes over"
)
SLOW_HINT = "the server is there, but slow or stuck: its log says more"
Held = ModelStatus | AgentStatus | ResourcesStatus | CkptctlError


@dataclass(slots=True)
class _Look:
    """What was seen."""

    capabilities: dict[str, Capabilities | CkptctlError]
    controller: ControllerStatus | CkptctlError
    control: Control
    held: dict[str, Held] = field(default_factory=dict)

    @property
    def discovered(self) -> tuple[DiscoveredParticipant, ...]:
        """Everybody who answered."""
        return tuple(
            DiscoveredParticipant(server_name=name, capabilities=found)
            for name, found in sorted(self.capabilities.items())
            if isinstance(found, Capabilities)
        )

    @property
    def own_id(self) -> str | None:
        """The checkpoint id of our own unfinished transaction."""
        return next((item.checkpoint_id for item in self.control.unfinished), None)

    @property
    def is_running(self) -> bool:
        """Whether another ckptctl holds the lock and is not provably gone."""
        return self.control.lock is not None and not self.control.lock.is_dead

    def held_by_own(self) -> tuple[str, ...]:
        """Who is held by our own unfinished transaction."""
        if self.own_id is None:
            return ()
        names = [item.server_name for item in self.discovered if item.capabilities.active_checkpoint_id == self.own_id]
        status = self.controller
        if isinstance(status, ControllerStatus) and status.active_checkpoint_id == self.own_id:
            names.append("controller")
        return tuple(names)

    def agent_statuses(self) -> list[AgentStatus | None]:
        """Of each configured agent that answers, as far as it is held."""
        names = [item.server_name for item in self.discovered if item.capabilities.component == AGENT]
        found = [self.held.get(name) for name in names]
        return [item if isinstance(item, AgentStatus) else None for item in found]

    def resources_statuses(self) -> dict[str, ResourcesStatus]:
        """Of the resources servers that are held."""
        return {name: item for name, item in self.held.items() if isinstance(item, ResourcesStatus)}

    def mere_warnings(self) -> tuple[str, ...]:
        """What the control folder says that is no problem of a snapshot."""
        problems = {error.message for error in self.control.obstacles}
        return tuple(text for text in self.control.warnings if text not in problems)

    @property
    def is_whole(self) -> bool:
        """Whether everybody answered."""
        return len(self.discovered) == len(self.capabilities)


async def inspect_live(world: World, config: RunConfig) -> LiveInspection:
    """Describe the live servers. Whatever is wrong with them is in the result, which says the status to end with.

    Raises:
        ConfigError: the configuration does not say where the servers are.
    """
    own = require_own(config)
    look = _Look(await observe(world, own), await _controller(world), read_control(world, config.checkpoint_dir))
    look.held = await _held(world, own, look)
    problems = tuple(_problems(world, config, own, look))
    topology = topology_of(look.discovered)
    status = look.controller
    return LiveInspection(
        config_path=config.path,
        checkpoint_dir=config.checkpoint_dir,
        would_snapshot=not problems,
        exit_code=max((problem.exit_code for problem in problems), default=0),
        problems=problems,
        warnings=(*name_warnings(topology), *look.mere_warnings()),
        servers=tuple(_server(name, look) for name in sorted(look.capabilities)),
        unclaimed_sessions=unclaimed_sessions(world, look.agent_statuses(), look.resources_statuses()),
        topology_fingerprint=topology_fingerprint(look.discovered) if look.is_whole and look.discovered else None,
        controller=_controller_view(status) if isinstance(status, ControllerStatus) else None,
        observed_at=round(world.clock.now_s(), 3),
        unfinished=look.control.unfinished,
        lock=look.control.lock,
        lock_problem=look.control.lock_problem,
    )


async def _controller(world: World) -> ControllerStatus | CkptctlError:
    try:
        return await world.controller.status()
    except CkptctlError as error:
        return error


async def _held(world: World, own: OwnSection, look: _Look) -> dict[str, Held]:
    """The status of the checkpoint that holds a server. Idle servers have none, and would refuse the question."""
    deadline_ts = world.clock.now_s() + own.control_timeout_s

    async def ask(item: DiscoveredParticipant, checkpoint_id: str) -> Held:
        try:
            if item.capabilities.component == MODEL:
                return await world.participants.model_status(
                    item.server_name, checkpoint_id, deadline_ts, wait_paused_s=None
                )
            if item.capabilities.component == RESOURCES:
                return await world.participants.resources_status(item.server_name, checkpoint_id, deadline_ts)
            return await world.participants.agent_status(item.server_name, checkpoint_id)
        except CkptctlError as error:
            return error

    calls = {
        item.server_name: partial(ask, item, item.capabilities.active_checkpoint_id)
        for item in look.discovered
        if item.capabilities.phase != "idle"
        and item.capabilities.active_checkpoint_id is not None
        and item.capabilities.component in {MODEL, AGENT, RESOURCES}
    }
    return await side_by_side(calls)


def _problems(world: World, config: RunConfig, own: OwnSection, look: _Look) -> Iterator[LiveProblem]:
    """Everything that a snapshot would refuse, in the order in which it would."""
    for problem in config_problems(config, "snapshot"):
        yield LiveProblem(
            about=problem.location,
            code=ConfigError.code,
            exit_code=int(ExitCode.REFUSED),
            message=f"`{problem.location}` {problem.problem}",
            hint=problem.hint,
        )
    yield from _transaction_problems(config, look)
    try:
        require_one_actor(own.groups())
    except DiscoveryRefusedError as error:
        yield _problem("topology", error)
    for server, found in sorted(look.capabilities.items()):
        if isinstance(found, CkptctlError):
            yield _problem(server, found)
    yield from _topology_problems(look)
    yield from _controller_problems(world, config, look)
    for server, answer in sorted(look.held.items()):
        if isinstance(answer, CkptctlError):
            yield _problem(server, answer)


def _transaction_problems(config: RunConfig, look: _Look) -> Iterator[LiveProblem]:
    """Another ckptctl at work, our own interrupted transaction, whoever it still holds, or that nobody can tell."""
    for error in look.control.obstacles:
        yield _problem("lock" if error.message == look.control.lock_problem else "journal", error)
    if look.control.lock_problem:
        return  # whatever is unfinished may be at work
    lock = look.control.lock
    if lock is not None and look.is_running:
        message = f"`{config.checkpoint_dir}` is locked by another ckptctl: {lock.owner}"
        if lock.is_at_work:
            yield _busy("lock", LockHeldError.code, message, "wait for it to end")
        else:
            silent = f", silent for {duration(lock.silent_s or 0.0)} by this host's clock"
            yield _busy("lock", LockHeldError.code, f"{message}{silent}", SILENT_HINT)
        return
    names = ", ".join(f"`{name}`" for name in look.held_by_own())
    for item in look.control.unfinished:
        holds = (
            f"still holds {names} under `{item.checkpoint_id}`"
            if names
            else "is not finished; nobody shows its id any more"
        )
        hint = f"`{item.finished_by}` finishes it" + (
            ", and so does the next snapshot" if item.kind == "snapshot" else ""
        )
        yield _busy("transaction", "unfinished-transaction", f"`{item.name}` was interrupted and {holds}", hint)


def _busy(about: str, code: str, message: str, hint: str) -> LiveProblem:
    return LiveProblem(about=about, code=code, exit_code=int(ExitCode.BUSY), message=message, hint=hint)


def _topology_problems(look: _Look) -> Iterator[LiveProblem]:
    topology = topology_of(look.discovered)
    for refusal in topology_refusals(topology) if look.is_whole else refusals_so_far(topology):
        yield _problem("topology", DiscoveryRefusedError(refusal.text, hint=refusal.hint))
    ours = look.own_id
    busy = busy_refusal(
        item for item in look.discovered if ours is None or item.capabilities.active_checkpoint_id != ours
    )
    if busy is not None:
        yield _problem("topology", busy)


def _controller_problems(world: World, config: RunConfig, look: _Look) -> Iterator[LiveProblem]:
    status = look.controller
    if isinstance(status, CkptctlError):
        yield _problem("controller", status)
        return
    for error in (*controller_refusals(world, status, config.checkpoint_dir), *readiness_refusals(status)):
        is_ours = isinstance(error, CheckpointConflictError) and status.active_checkpoint_id == look.own_id
        if not is_ours:
            yield _problem("controller", error)
    try:
        require_anchor(world, config.checkpoint_dir, status)
    except CkptctlError as error:
        yield _problem("anchor", error)


def _problem(about: str, error: CkptctlError) -> LiveProblem:
    hint = SLOW_HINT if type(error) is TimedOutError else error.hint
    return LiveProblem(about=about, code=error.code, exit_code=int(error.exit_code), message=error.message, hint=hint)


def _server(name: str, look: _Look) -> ServerView:
    found, held = look.capabilities[name], look.held.get(name)
    if isinstance(found, CkptctlError):
        return ServerView(server_name=name, is_answering=False)
    return ServerView(
        server_name=name,
        is_answering=True,
        component=found.component,
        participant_name=found.name,
        instance_role=found.instance_role,
        checkpoint_mode=found.checkpoint_mode,
        phase=found.phase,
        active_checkpoint_id=found.active_checkpoint_id,
        deadline_ts=None if found.deadline_ts is None else float(found.deadline_ts),
        workers=found.multi_process.num_workers,
        features=tuple(found.features),
        admission=held.state if isinstance(held, ModelStatus | AgentStatus) else None,
        calls_in_flight=held.inflight_total if isinstance(held, ModelStatus) else None,
        sessions=len(held.per_session) if isinstance(held, ResourcesStatus) else None,
        uncertain_sessions=len(held.uncertain_sessions) if isinstance(held, ResourcesStatus) else None,
        running=held.running if isinstance(held, AgentStatus) else None,
        parked=held.parked if isinstance(held, AgentStatus) else None,
    )


def _controller_view(status: ControllerStatus) -> ControllerView:
    return ControllerView.model_validate({name: getattr(status, name) for name in ControllerView.model_fields})
