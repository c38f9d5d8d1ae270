"""The resources servers of the embedded cluster, and the environments that rollouts play on them.

A server's logic is pure state logic: sessions, locks, revisions, receipts and control routes are the generic server's
(`resources`), turns and boundaries the agent's. `SERVERS` says what a server is, `KINDS` how an environment is played.

    counter    export_restore   a wrong count, or a ticket twice, gives reward 0
    workplace  export_restore   tables; one sentinel event exactly once; people are looked up in `directory`
    genrm      restart_only     registers answers in the last turn, scores a group when all siblings have
    directory  stateless        no environment of its own: the others ask it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ckptctl.domain.ledger import Granularity
from ckptctl.sim import counter, genrm, workplace
from ckptctl.sim.directory import LOOKUP, Directory
from ckptctl.sim.outcome import Call, Outcome, RouteKind
from ckptctl.sim.policy_text import Script
from ckptctl.sim.sessions import MAX_RECEIPTS

DIRECTORY = "directory"


class Environment(Protocol):
    """The state logic of one resources server."""

    @property
    def routes(self) -> Mapping[str, RouteKind]:
        """Route name (path without the leading slash) -> what kind of request it is."""
        ...

    def call(self, call: Call) -> Outcome:
        """Handle one request of a session. An exception makes the session uncertain: nobody knows what has happened."""
        ...

    def forget(self, rollout_id: str, state: dict[str, Any] | None) -> None:
        """A session was retired."""
        ...


@dataclass(frozen=True, slots=True)
class ServerKind:
    """What a resources server is."""

    checkpoint_mode: Literal["export_restore", "restart_only", "stateless"]
    create: Callable[[], Environment]


@dataclass(frozen=True, slots=True)
class EnvironmentKind:
    """How an environment is played; its resources server is called the same."""

    name: str
    script: Script
    asks: str
    """Name of the parameter that says how much a rollout is asked to do."""
    reads: frozenset[str] = field(default_factory=frozenset)
    """Actions that only read; the agent sends them as GET."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Actions that another server answers."""
    seeds: bool = True
    """Whether a rollout starts a session before its first turn."""
    ends_with: str | None = None
    """The action after which a rollout is over; None: it is over when the policy says something and acts no more."""
    awaits: str | None = None
    """A read that must say `ready` before the rollout is verified."""
    granularity: Granularity | None = None
    """What a restart keeps of an unfinished group, where the environment leaves no choice."""
    most_steps: int | None = None
    """More would not fit into a session: it keeps a receipt of every mutation for as long as it is bound, and starting and
    verifying need two of the 1,024. No route retires a single receipt."""


SERVERS: dict[str, ServerKind] = {
    "counter": ServerKind("export_restore", counter.CounterEnvironment),
    DIRECTORY: ServerKind("stateless", Directory),
    "genrm": ServerKind("restart_only", genrm.Judge),
    "workplace": ServerKind("export_restore", workplace.WorkplaceEnvironment),
}

KINDS: dict[str, EnvironmentKind] = {
    "counter": EnvironmentKind("counter", counter.respond, asks="increments", most_steps=MAX_RECEIPTS - 2),
    "genrm": EnvironmentKind(
        "genrm",
        genrm.respond,
        asks="steps",
        reads=frozenset({LOOKUP}),
        elsewhere={LOOKUP: DIRECTORY},
        seeds=False,
        ends_with=genrm.REGISTER,
        awaits=genrm.VERDICT,
        # A sealed sibling would never register again, and its group never be scored.
        granularity="prompt_group",
    ),
    "workplace": EnvironmentKind(
        "workplace",
        workplace.respond,
        asks="steps",
        reads=frozenset({LOOKUP, workplace.SEARCH}),
        elsewhere={LOOKUP: DIRECTORY},
        most_steps=MAX_RECEIPTS - 2,
    ),
}


def require_kind(name: str) -> EnvironmentKind:
    """The environment of that name. Raises ValueError."""
    if name not in KINDS:
        raise ValueError(f"no environment `{name}`; there are: {', '.join(sorted(KINDS))}")
    return KINDS[name]


def require_server(name: str) -> ServerKind:
    """The kind of resources server of that name. Raises ValueError."""
    if name not in SERVERS:
        raise ValueError(f"no resources server `{name}`; there are: {', '.join(sorted(SERVERS))}")
    return SERVERS[name]


def servers_of(environments: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the resources servers that these environments need, each once: their own first."""
    needed = [*environments, *(name for item in environments for name in require_kind(item).elsewhere.values())]
    return tuple(dict.fromkeys(needed))
