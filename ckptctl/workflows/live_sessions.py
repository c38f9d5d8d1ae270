"""Sessions on live resources servers that no rollout claims, as far as anybody tells without being changed.

Servers that a checkpoint holds say which sessions they have, and agents that are ready to commit which they need: what no
boundary names is nobody's. Servers that work are not asked, for they would refuse; of those the journals tell what the last
restore left unclaimed, until a snapshot was published since, which has none left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ckptctl.domain.inspection import UnclaimedSession
from ckptctl.domain.participant import AgentStatus, HeldSession, ResourcesStatus, SessionInventory
from ckptctl.domain.redispatch import SessionFacts
from ckptctl.errors import CkptctlError
from ckptctl.planning.orphans import find_orphans
from ckptctl.planning.snapshot import RETIRE_ORPHANS
from ckptctl.workflows.measure import Now
from ckptctl.workflows.world import World

PUBLISHED, RESTORED = "published", "restored"
Session = tuple[str, str, int]
"""Server, rollout, attempt."""


def unclaimed_sessions(
    world: World, agents: Iterable[AgentStatus | None], resources: Mapping[str, ResourcesStatus]
) -> tuple[UnclaimedSession, ...]:
    """Every session that nobody claims. `agents`: the status of each, None for one that is not held or did not answer."""
    left = _left_by_the_last_restore(world)
    statuses = tuple(agents)
    known = [item for item in statuses if item is not None and item.ready_to_commit]
    if not resources or not known or len(known) < len(statuses):
        return tuple(_told_by_journal(world, left))
    boundaries = [item for status in known for item in status.selected_boundaries]
    sessions = {
        (server, item.rollout_id, item.attempt_index): item
        for server, status in resources.items()
        for item in status.per_session
    }
    inventories: dict[str, list[SessionInventory]] = {}
    for server, rollout, attempt in sessions:
        session = SessionInventory(rollout_id=rollout, attempt_index=attempt, revision=0)
        inventories.setdefault(server, []).append(session)
    return tuple(
        _unclaimed(world, item, sessions[_key(item)], left.get(_key(item)))
        for item in find_orphans(inventories, boundaries)
    )


def _unclaimed(world: World, item: SessionFacts, session: HeldSession, since: float | None) -> UnclaimedSession:
    return UnclaimedSession(
        server_name=item.server_name,
        rollout_id=item.rollout_id,
        attempt_index=item.attempt_index,
        revision=session.revision,
        since=since,
        age_s=None if since is None else Now(world.clock.now_s()).age_s(since),
        told_by="servers",
    )


def _told_by_journal(world: World, left: Mapping[Session, float]) -> Iterator[UnclaimedSession]:
    now = Now(world.clock.now_s())
    for (server, rollout, attempt), since in sorted(left.items()):
        yield UnclaimedSession(
            server_name=server,
            rollout_id=rollout,
            attempt_index=attempt,
            revision=None,
            since=since,
            age_s=now.age_s(since),
            told_by="journal",
        )


def _left_by_the_last_restore(world: World) -> dict[Session, float]:
    """What the newest restore left, without what was retired since; nothing once a snapshot was published. Read newest first."""
    retired: set[Session] = set()
    try:
        for name in reversed(world.journal.transactions()):
            if not name.endswith(("-snapshot", "-restore")):
                continue
            records = [item.record for item in world.journal.read(name)]
            finish = next((record for record in records if record.get("event") == "finish"), {})
            if finish.get("outcome") == RESTORED:
                found = dict.fromkeys(_sessions(finish.get("unclaimed_sessions")), _at(finish))
                return {key: at for key, at in found.items() if key not in retired}
            if finish.get("outcome") == PUBLISHED:
                return {}
            for record in records:
                if record.get("event") == "outcome" and record.get("step") == RETIRE_ORPHANS:
                    retired.update(_sessions(record.get("retired")))
    except CkptctlError:
        return {}  # a journal that cannot be read is a problem of its own, and told as that
    return {}


def _at(record: Mapping[str, Any]) -> float:
    at = record.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _sessions(found: Any) -> Iterator[Session]:
    for item in found if isinstance(found, list) else ():
        try:
            yield _key(SessionFacts.model_validate(item))
        except ValueError:
            continue  # of another version of ckptctl


def _key(item: SessionFacts) -> Session:
    return item.server_name, item.rollout_id, item.attempt_index
