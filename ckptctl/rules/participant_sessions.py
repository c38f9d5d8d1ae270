"""Do agents' boundaries and resources servers' sessions belong together? Invariants 79, 81 (offline) and 85.

Gym compares them only at restore, per server, and then refuses the whole snapshot; at commit nobody looks. A session of a rollout
that failed or was given up stays bound and is exported by every later checkpoint (an orphan).
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence, ResourcesEvidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import record_file_name
from ckptctl.domain.participant_files import SessionRecord
from ckptctl.rules._model import NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import Pair, boundary_records, continuation_rows, first, participant_manifest

_UNEQUAL_HINT = (
    "Use an older snapshot; the server and the agent committed different states, or the server lost a session: "
    "look at its log, and report its build."
)
_ORPHAN_HINT = (
    "Use an older snapshot; `ckptctl snapshot` retires orphans before it commits, so the next one is without them."
)


def sessions_of(server: ResourcesEvidence) -> dict[Pair, SessionRecord]:
    """The listed sessions of one server by execution.

    Raises:
        CannotRunError: a session cannot be read.
    """
    parts = [server.sessions.get(name) for name in participant_manifest(server.manifest).files]
    found = [value_of(part, "PAR026") for part in parts if part is not None]
    return {(session.rollout_id, session.attempt_index): session for session in found}


def check_boundary_sessions(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 79."""
    revisions: dict[str, list[tuple[Pair, int]]] = {}
    for _, _, record in boundary_records(evidence):
        for name, revision in record.resource_state_revisions.items():
            revisions.setdefault(name, []).append(((record.rollout_id, record.attempt_index), revision))
    for server in evidence.resources:
        name = server.entry.participant.participant_name
        sessions = sessions_of(server)
        wanted = revisions.get(name, [])
        for (rollout, attempt), revision in wanted:
            session = sessions.get((rollout, attempt))
            what = f"resources `{name}`: boundary of `{rollout}` attempt {attempt}"
            where = f"{rollout} attempt {attempt}"
            if session is None:
                message = f"{what} needs a session that was not exported"
                yield Violation(
                    message, server.manifest.path, where, f"revision {revision}", "no session", hint=_UNEQUAL_HINT
                )
            elif session.state_revision != revision:
                message = f"{what} is at revision {revision}, the session at {session.state_revision}"
                path = f"{server.folder}/{record_file_name(rollout, attempt)}"
                expected, actual = str(revision), str(session.state_revision)
                yield Violation(message, path, "state_revision", expected, actual, hint=_UNEQUAL_HINT)
        for rollout, attempt in sorted(sessions.keys() - {pair for pair, _ in wanted}):
            message = (
                f"resources `{name}`: session `{rollout}` attempt {attempt} has no agent boundary (orphan): "
                "Gym will refuse to restore this snapshot"
            )
            path = f"{server.folder}/{record_file_name(rollout, attempt)}"
            yield Violation(message, path, "", "a boundary that names this server", "none", hint=_ORPHAN_HINT)


def check_one_attempt(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 85. That a pair is unique per agent and per server is seen by PAR007 and follows from the file names."""
    attempts: dict[str, int] = {}
    for rollout, attempt, path in _executions(evidence):
        known = attempts.setdefault(rollout, attempt)
        if known != attempt:
            message = f"`{rollout}` appears with attempts {known} and {attempt}"
            yield Violation(message, path, rollout, f"attempt {known}", f"attempt {attempt}")


def _executions(evidence: Evidence) -> Iterator[tuple[str, int, str]]:
    for agent in evidence.agents:
        for row in value_of(agent.record_index, "PAR006"):
            yield row.rollout_id, row.attempt_index, agent.record_index.path
    for server in evidence.resources:
        for rollout, attempt in sessions_of(server):
            yield rollout, attempt, f"{server.folder}/{record_file_name(rollout, attempt)}"


def check_stateless_names(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 81, offline: the manifest does not list restart_only servers, so an unknown name is only told."""
    if evidence.capabilities is not None:
        raise NotAskedError("the topology is known: PAR023 and PAR024 speak of these servers")
    saved = {server.entry.participant.participant_name for server in evidence.resources}
    depending: dict[str, list[str]] = {}
    path = ""
    for agent, _, row in continuation_rows(evidence):
        for name in (row.resource_state_revisions or {}).keys() - saved:
            depending.setdefault(name, []).append(row.rollout_id)
            path = path or agent.continuations.path
    for name, rollouts in sorted(depending.items()):
        noun = plural(len(rollouts), "continuation depends", "continuations depend")
        message = f"{noun} on `{name}`, which saved no state: it will restart, and so will {first(rollouts)}"
        yield Violation(message, path, name)


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR021",
        invariant=79,
        name="session-boundary-mismatch",
        summary="The sessions of each resources server are those that agent boundaries name, at the same revisions.",
        why="Gym compares them at restore and refuses the whole snapshot: an orphan session is enough.",
        hint="Use an older snapshot. Of orphans the next one is without: `ckptctl snapshot` retires them before it commits. "
        "A missing session or another revision means that server and agent committed different states.",
        severity="error",
        level="standard",
        check=check_boundary_sessions,
        requires=("MAN005", "PAR002", "PAR007", "PAR026", "PAR027"),
        needs=("gym",),
    ),
    Rule(
        id="PAR027",
        invariant=85,
        name="several-attempts-of-a-rollout",
        summary="All boundaries and sessions of a rollout are of one attempt.",
        why="One attempt at a time is alive; state of two would be joined in the replacement.",
        hint="Use an older snapshot; participants were committed at different moments.",
        severity="error",
        level="standard",
        check=check_one_attempt,
        requires=("MAN005", "PAR002", "PAR006", "PAR026"),
        needs=("gym",),
    ),
    Rule(
        id="PAR033",
        invariant=81,
        name="resources-server-without-state",
        summary="Resources servers that continuations depend on and that saved nothing are named.",
        why="Such a server restarts empty; what depends on it restarts from the task.",
        hint="Give `--capabilities FILE` to have the names compared with the topology.",
        severity="information",
        level="standard",
        check=check_stateless_names,
        requires=("MAN005", "PAR002", "PAR006"),
        needs=("gym",),
    ),
)
