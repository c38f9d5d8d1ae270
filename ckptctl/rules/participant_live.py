"""What only live servers or a discovered topology can show. Invariants 59, 80 to 83 and 86 to 89.

Workflows run these rules by id at the stage where their facts exist; a stage that was not reached is skipped. Refusals that a
server states itself (codes of participant-protocol section 13) are errors of the client and not repeated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.document import Document
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import RESOURCES
from ckptctl.domain.manifest import AgentPayload, ArtifactReference, ModelPayload, ParticipantEntry, ResourcesPayload
from ckptctl.domain.participant import AgentRestoreReply, CompletionReceipt, ModelRestoreReply, ResourcesRestoreReply
from ckptctl.rules._model import CannotRunError, Need, NotAskedError, Rule
from ckptctl.rules._views import (
    OUTER_MANIFEST,
    continuation_roots,
    continuation_rows,
    first,
    optional_replay,
    required_ledger,
    staging_needs,
)
from ckptctl.rules.participant_storage import needed_by_root

_NOT_FRESH = frozenset({"unsafe_resources_restore", "ledger_mismatch", "not_fresh"})


def _entries(evidence: Evidence) -> tuple[ParticipantEntry, ...]:
    manifest = evidence.manifest.manifest
    if manifest is None or manifest.gym_checkpoint is None:
        raise CannotRunError("the Gym part of the manifest cannot be read", because=("MAN003", "MAN004", "MAN005"))
    return manifest.gym_checkpoint.participants


def check_participant_set(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 59."""
    saved = {_identity(entry) for entry in _entries(evidence)}
    discovered = {
        (server.server_name, server.capabilities.component, server.capabilities.name)
        for server in evidence.capabilities or ()
        if server.capabilities.checkpoint_mode == "export_restore"
    }
    if saved != discovered:
        words = (("missing", discovered - saved), ("unexpected", saved - discovered))
        parts = [f"{word} {first(name for _, _, name in found)}" for word, found in words if found]
        message = f"participants: {', '.join(parts)}"
        yield Violation(
            message,
            OUTER_MANIFEST,
            "gym_checkpoint.participants",
            plural(len(discovered), "participant"),
            str(len(saved)),
        )


def _identity(entry: ParticipantEntry) -> tuple[str, str, str]:
    participant = entry.participant
    return participant.server_name, participant.component, participant.participant_name


def check_orphans(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 80."""
    boundaries, inventories = evidence.live.selected_boundaries, evidence.live.inventories
    if boundaries is None or inventories is None:
        raise NotAskedError("no resources server was prepared")
    wanted: dict[str, set[tuple[str, int]]] = {}
    for boundary in boundaries:
        for name in boundary.resource_state_revisions or {}:
            wanted.setdefault(name, set()).add((boundary.rollout_id, boundary.attempt_index))
    for name, inventory in inventories.items():
        bound = {(session.rollout_id, session.attempt_index) for session in inventory}
        orphans, lacking = bound - wanted.get(name, set()), wanted.get(name, set()) - bound
        if orphans:
            texts = first(f"{rollout} attempt {attempt}" for rollout, attempt in orphans)
            message = (
                f"{plural(len(orphans), 'orphan session')} on `{name}`: retire them before commit "
                f"or this snapshot cannot be restored: {texts}"
            )
            yield Violation(message, "", name, "no orphan", str(len(orphans)))
        if lacking:
            texts = first(f"{rollout} attempt {attempt}" for rollout, attempt in lacking)
            message = f"{plural(len(lacking), 'boundary lacks', 'boundaries lack')} a session on `{name}`: {texts}"
            yield Violation(message, "", name, "a session each", f"{len(lacking)} lacking")


def check_known_servers(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 81, where the topology is known."""
    known = {
        entry.participant.participant_name for entry in _entries(evidence) if entry.participant.component == RESOURCES
    }
    known |= {
        server.capabilities.name for server in evidence.capabilities or () if server.capabilities.component == RESOURCES
    }
    for agent, line, row in continuation_rows(evidence):
        for name in sorted((row.resource_state_revisions or {}).keys() - known):
            message = f"continuation `{row.capture_key}` depends on unknown server `{name}`"
            yield Violation(message, agent.continuations.path, f"line {line}", "a server of the topology", name)


def check_dependants(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 82."""
    servers = [
        server.capabilities for server in evidence.capabilities or () if server.capabilities.component == RESOURCES
    ]
    restarting = {server.name for server in servers if server.checkpoint_mode == "restart_only"}
    exporting = {server.name for server in servers if server.checkpoint_mode == "export_restore"}
    if not restarting:
        return
    count, causes, bound, path = 0, set(), set(), ""
    for agent, _, row in continuation_rows(evidence):
        revisions = row.resource_state_revisions
        named = restarting & revisions.keys() if revisions is not None else restarting
        if named:
            count, path = count + 1, path or agent.continuations.path
            causes |= named
            bound |= exporting & revisions.keys() if revisions is not None else exporting
    if count:
        tail = f"; their sessions on {first(bound)} stay bound" if bound else ""
        noun = plural(count, "continuation")
        yield Violation(f"{noun} will restart from the task because of {first(causes)}{tail}", path)


def check_cleared(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 83."""
    discarded, cleared = evidence.live.discarded, evidence.live.cleared_keys
    if discarded is None or cleared is None:
        raise NotAskedError("nothing was cleared")
    gone = set(discarded)
    roots = continuation_roots(evidence)
    kept = {key: row for key, row in roots.items() if (row.rollout_id, row.attempt_index) not in gone}
    needed: dict[str, str] = {}
    for model in evidence.models:
        if not model.is_foreign:
            for capture_key, keys in needed_by_root(model, kept).items():
                needed.update(dict.fromkeys(keys, f"continuation `{capture_key}`"))
    for need in staging_needs(evidence):
        if need.kind != "continuation" or need.owner in kept:
            needed.setdefault(need.key, need.text)
    for key in cleared:
        if key in needed:
            message = f"staging row `{key}` is shared with {needed[key]}: not to be cleared"
            yield Violation(message, "", key, "kept", "cleared")


def check_restore_replies(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 86."""
    replies = evidence.live.restore_replies
    if replies is None:
        raise NotAskedError("no participant was restored")
    gym = evidence.manifest.manifest.gym_checkpoint if evidence.manifest.manifest is not None else None
    wanted = gym.checkpoint_id if gym is not None else ""
    for entry in _entries(evidence):
        name = entry.participant.participant_name
        reply = replies.get(entry.participant)
        if reply is None:
            yield Violation(f"`{name}` did not answer the restore", "", name, "a reply", "none")
            continue
        for what, expected, actual in _reply_faults(entry, reply, wanted):
            yield Violation(f"`{name}` {what}", "", name, expected, actual)


def _reply_faults(entry: ParticipantEntry, reply: Document, wanted: str) -> Iterator[tuple[str, str, str]]:
    payload = entry.payload
    counts: tuple[tuple[str, int, int], ...]
    reference: tuple[ArtifactReference, ArtifactReference] | None = None
    source: str | None
    if isinstance(reply, ModelRestoreReply) and isinstance(payload, ModelPayload):
        source, reference = reply.checkpoint_id, (payload.storage_reference_index, reply.storage_reference_index)
        counts = (("rollouts", payload.rollouts, reply.rollouts), ("rows", payload.rows, reply.rows))
    elif isinstance(reply, AgentRestoreReply) and isinstance(payload, AgentPayload):
        source, reference = reply.source_checkpoint_id, (payload.continuation_index, reply.continuation_index)
        counts = (("records", payload.records, reply.records),)
    elif isinstance(reply, ResourcesRestoreReply) and isinstance(payload, ResourcesPayload):
        source = reply.source_checkpoint_id
        counts = (("sessions", payload.sessions, reply.sessions),)
    else:
        yield "gave the reply of another component", entry.participant.component, type(reply).__name__
        return
    if source != wanted:
        yield f"restored checkpoint `{source}`, expected `{wanted}`", wanted, str(source)
    if reference is not None and reference[0] != reference[1]:
        saved, found = reference
        yield f"restored another `{saved.relative_path}`", saved.sha256, found.sha256
    for what, expected, actual in counts:
        if expected != actual:
            yield f"restored {actual} {what}, saved were {expected}", str(expected), str(actual)


def check_echo(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 87."""
    if evidence.live.acknowledged is None:
        raise NotAskedError("nothing was acknowledged")
    for agent, sent, echoed in evidence.live.acknowledged:
        asked, answered = Counter(map(_receipt, sent)), Counter(map(_receipt, echoed))
        if asked == answered:
            continue
        words = (("not", asked - answered), ("besides", answered - asked))
        parts = [f"{word} {first(f'{key[0]} attempt {key[1]}' for key in found)}" for word, found in words if found]
        message = f"`{agent}` acknowledged something else than was sent: {', '.join(parts)}"
        yield Violation(message, "", agent, plural(len(sent), "receipt"), plural(len(echoed), "receipt"))


def _receipt(receipt: CompletionReceipt) -> tuple[str, int, str]:
    """A whole receipt as a value that can be counted."""
    return receipt.rollout_id, receipt.attempt_index, receipt.model_dump_json()


def check_fresh(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 88."""
    refusals = evidence.live.refusals
    if refusals is None:
        raise NotAskedError("no restore was tried")
    for server in evidence.capabilities or ():
        phase = server.capabilities.phase
        if phase != "idle":
            held = server.capabilities.active_checkpoint_id
            message = f"`{server.server_name}` is not fresh (`{phase}` under `{held}`): restart it before restoring"
            yield Violation(message, "", server.server_name, "idle", phase)
    for name, code, detail in refusals:
        if code in _NOT_FRESH:
            message = f"`{name}` is not fresh: restart it before restoring ({code}: {detail})"
            yield Violation(message, "", name, "a fresh process", code)


def check_replacements(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 89."""
    dispatches = evidence.live.dispatches
    if dispatches is None:
        raise NotAskedError("nothing was dispatched")
    counted = Counter(dispatches)
    attempts: dict[str, list[int]] = {}
    for rollout, attempt in sorted(counted):
        attempts.setdefault(rollout, []).append(attempt)
    gone = set(evidence.live.discarded or ())
    for _, _, row in continuation_rows(evidence):
        rollout, wanted = row.rollout_id, row.attempt_index + 1
        others = [attempt for attempt in attempts.get(rollout, ()) if attempt <= row.attempt_index]
        is_kept = (rollout, row.attempt_index) not in gone
        if others or (is_kept and attempts.get(rollout) and attempts[rollout][0] != wanted):
            found = attempts[rollout][0]
            message = f"`{rollout}` was dispatched as attempt {found}, its continuation waits at {wanted}"
            yield Violation(message, "", rollout, f"attempt {wanted}", f"attempt {found}")
        elif is_kept and counted[rollout, wanted] != 1:
            times = counted[rollout, wanted]
            message = f"`{rollout}` attempt {wanted} was dispatched {times} times, its continuation waits for one"
            yield Violation(message, "", rollout, "once", str(times))
    for rollout in sorted(_finished(evidence) & attempts.keys()):
        message = f"`{rollout}` was dispatched as attempt {attempts[rollout][0]}, but it is finished"
        yield Violation(message, "", rollout, "not dispatched", f"attempt {attempts[rollout][0]}")


def _finished(evidence: Evidence) -> set[str]:
    """Rollouts whose result is kept: samples of the replay metadata, and sealed siblings not given up with their group."""
    replay = optional_replay(evidence)
    finished = {sample for group in replay.groups for sample in group.meta.sample_ids} if replay is not None else set()
    for rollout, (group, sibling) in required_ledger(evidence).siblings().items():
        given_up = group.recovery_granularity == "prompt_group" and group.status == "generating"
        if sibling.current.status == "sealed" and not given_up:
            finished.add(rollout)
    return finished


_NEEDS_LIVE: tuple[Need, ...] = ("gym", "live")
RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR001",
        invariant=59,
        name="participant-set-differs",
        summary="The saved participants are exactly the discovered ones that export their state.",
        why="A server without its state starts empty, a saved state without its server is lost.",
        hint="Start the same servers that the snapshot was taken with.",
        severity="error",
        level="standard",
        check=check_participant_set,
        requires=("FPR004", "MAN005"),
        needs=("gym", "capabilities"),
    ),
    Rule(
        id="PAR022",
        invariant=80,
        name="orphan-session",
        summary="The sessions of each prepared resources server are those that the selected boundaries name.",
        why="An orphan commits without a word and makes the snapshot unrestorable; it can be retired only now.",
        hint="Run the snapshot again; where a boundary lacks its session, restart that server and restore.",
        severity="error",
        level="standard",
        check=check_orphans,
        needs=("live",),
    ),
    Rule(
        id="PAR023",
        invariant=81,
        name="unknown-resources-server",
        summary="Every resources server that a continuation depends on is saved or is part of the topology.",
        why="NeMo-RL stops the restore at a name that it does not know, but only when some server is restart_only.",
        hint="Start that server, or restore with the topology that the snapshot was taken with.",
        severity="error",
        level="standard",
        check=check_known_servers,
        requires=("FPR004", "MAN005", "PAR002", "PAR006"),
        needs=("gym", "capabilities"),
    ),
    Rule(
        id="PAR024",
        invariant=82,
        name="restart-only-dependants",
        summary="Continuations that restart because a restart_only server lost its state are counted.",
        why="Their work is done again, and sessions that they hold elsewhere stay bound.",
        hint="Nothing to do; the next snapshot retires sessions that are still orphans then.",
        severity="information",
        level="standard",
        check=check_dependants,
        requires=("MAN005", "PAR002", "PAR006"),
        needs=("gym", "capabilities"),
    ),
    Rule(
        id="PAR025",
        invariant=83,
        name="shared-row-cleared",
        summary="No staging key that is cleared for a discarded continuation is needed by anything that is kept.",
        why="A shared key is listed under one capture key only: clearing it removes a row that another rollout needs.",
        hint="Clear only keys that nothing else needs.",
        severity="error",
        level="standard",
        check=check_cleared,
        requires=("LED001", "MAN005", "PAR002", "PAR006", "PAR013"),
        needs=_NEEDS_LIVE,
    ),
    Rule(
        id="PAR028",
        invariant=86,
        name="restore-reply-mismatch",
        summary="Every saved participant restored the saved checkpoint, artifacts and counts.",
        why="A participant that restored something else must not be resumed.",
        hint="Restart the Gym servers and restore again.",
        severity="error",
        level="standard",
        check=check_restore_replies,
        requires=("MAN005",),
        needs=_NEEDS_LIVE,
    ),
    Rule(
        id="PAR029",
        invariant=87,
        name="acknowledgement-echo-mismatch",
        summary="Each agent acknowledged exactly the receipts that were sent to it.",
        why="A result counted as acknowledged that the agent still holds blocks it for ever, or is lost.",
        hint="Compare the agent's completed results with the controller's outbox.",
        severity="error",
        level="standard",
        check=check_echo,
        needs=("live",),
    ),
    Rule(
        id="PAR030",
        invariant=88,
        name="stale-server-process",
        summary="All servers are fresh processes before they restore.",
        why="A server that already worked would mix its own state with the restored one, or refuses.",
        hint="Restart the named servers, then restore.",
        severity="error",
        level="standard",
        check=check_fresh,
        needs=("capabilities", "live"),
    ),
    Rule(
        id="PAR031",
        invariant=89,
        name="wrong-replacement-attempt",
        summary="After a restore each kept continuation is dispatched once, as its attempt plus one, and nothing finished is.",
        why="Any other attempt starts from scratch without an error, and the continuation is stranded.",
        hint="Stop the run and restore again; the controller dispatched other attempts than the plan says.",
        severity="error",
        level="standard",
        check=check_replacements,
        requires=("LED002", "MAN005", "PAR002", "PAR006"),
        needs=_NEEDS_LIVE,
    ),
)
