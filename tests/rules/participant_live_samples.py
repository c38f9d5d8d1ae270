"""Samples of the PAR rules that need live servers or a discovered topology."""

from ckptctl.domain.evidence import LiveFacts
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import (
    AgentRestoreReply,
    ModelRestoreReply,
    ResourcesRestoreReply,
    SelectedBoundary,
    SessionInventory,
)
from tests.artifacts import a_gym
from tests.builders import DROP
from tests.rules.samples import bad, good
from tests.world import (
    AGENT,
    CALL_5,
    CALL_8,
    CHECKPOINT_ID,
    DESK,
    JUDGE,
    MODEL,
    OTHER_DIGEST,
    PENDING,
    TOOLS,
    a_completion,
    a_pending_record,
    a_topology,
    a_world,
)

OUTER = "manifest.json"
TOPOLOGY = {"capabilities": a_topology()}
RECORDS = f"agents {AGENT} records"
for rule in ("PAR001", "PAR023", "PAR024"):
    good(rule, "the servers that the snapshot was taken with", facts=TOPOLOGY)

# 59
bad(
    "PAR001",
    "a server that exports its state has saved none",
    f"missing `{DESK}`",
    facts=TOPOLOGY,
    world={f"resources {DESK}": DROP},
    artifact=OUTER,
)

# 80
BOUNDARY = SelectedBoundary.model_validate(
    {
        "rollout_id": "g7_g0",
        "attempt_index": 1,
        "boundary_index": 3,
        "turn_index": 2,
        "boundary_kind": "turn_complete",
        "resource_state_revisions": {TOOLS: 4},
    }
)
BOUND = SessionInventory(rollout_id="g7_g0", attempt_index=1, revision=4)
ORPHAN = SessionInventory(rollout_id="g6_g0", attempt_index=0, revision=2)


def prepared(boundaries, **inventories):
    return {"live": LiveFacts(selected_boundaries=tuple(boundaries), inventories=inventories)}


good("PAR022", "sessions and boundaries belong together", facts=prepared([BOUNDARY], tools=(BOUND,), desk=()))
bad(
    "PAR022",
    "a session that no boundary names",
    "1 orphan session on `tools`",
    facts=prepared([BOUNDARY], tools=(BOUND, ORPHAN), desk=()),
)
bad("PAR022", "a boundary whose session is gone", "g7_g0 attempt 1", facts=prepared([BOUNDARY], tools=(), desk=()))

# 81
bad(
    "PAR023",
    "a continuation that depends on a server that nobody knows",
    "unknown server `ghost`",
    facts=TOPOLOGY,
    world={f"{RECORDS} 1": a_pending_record().model_copy(update={"resource_state_revisions": {"ghost": 0}})},
)
good(
    "PAR023",
    "a continuation that depends on the judge",
    facts=TOPOLOGY,
    world={f"{RECORDS} 1": a_pending_record().model_copy(update={"resource_state_revisions": {JUDGE: 0}})},
)

# 82
bad(
    "PAR024",
    "a continuation that depends on the judge",
    f"1 continuation will restart from the task because of `{JUDGE}`",
    facts=TOPOLOGY,
    world={f"{RECORDS} 1": a_pending_record().model_copy(update={"resource_state_revisions": {JUDGE: 0}})},
)


# 83
def cleared(*keys, discarded=(("g7_g0", 1),)):
    return {"live": LiveFacts(discarded=discarded, cleared_keys=keys)}


good("PAR025", "rows that only the discarded continuation needs", facts=cleared(CALL_5.key, CALL_8.key))
bad("PAR025", "a row that a kept continuation needs", "continuation `g8_g0`", facts=cleared(CALL_5.key, PENDING.key))
bad("PAR025", "a row that a sealed receipt needs", "receipt of `g7_g1` attempt 0", facts=cleared("g7_g1/call-1"))

# 86
ENTRIES = {saved.entry.participant: saved.entry.payload for saved in a_gym(a_world())}


def replies(**changes):
    """What every participant says after a restore; `changes` replaces single fields by participant name."""
    found = {}
    for participant, payload in ENTRIES.items():
        if participant.participant_name == MODEL:
            facts = {
                "rollouts": payload.rollouts,
                "rows": payload.rows,
                "checkpoint_id": CHECKPOINT_ID,
                "tombstones": [],
                "source_attempts": [],
                "storage_reference_index": payload.storage_reference_index,
            }
            kind = ModelRestoreReply
        elif participant.component == "responses_api_agents":
            facts = {
                "records": payload.records,
                "source_checkpoint_id": CHECKPOINT_ID,
                "continuation_index": payload.continuation_index,
            }
            kind = AgentRestoreReply
        else:
            facts = {"sessions": payload.sessions, "source_checkpoint_id": CHECKPOINT_ID}
            kind = ResourcesRestoreReply
        found[participant] = kind.model_validate({**facts, **changes.get(participant.participant_name, {})})
    return {
        "live": LiveFacts(
            restore_replies={
                key: reply for key, reply in found.items() if key.participant_name not in changes.get("silent", ())
            }
        )
    }


OTHER_INDEX = ArtifactReference(schema_version=1, relative_path="x", sha256=OTHER_DIGEST, records=0, bytes=0)
good("PAR028", "everybody restored what was saved", facts=replies())
bad(
    "PAR028",
    "a participant restored another checkpoint",
    "`other-1`",
    facts=replies(tools={"source_checkpoint_id": "other-1"}),
)
bad("PAR028", "a model that cannot say what it restored", "None", facts=replies(policy_model={"checkpoint_id": None}))
bad(
    "PAR028",
    "an agent restored another index",
    "continuations.jsonl",
    facts=replies(policy_agent={"continuation_index": OTHER_INDEX}),
)
bad("PAR028", "a server restored fewer sessions", "0 sessions", facts=replies(tools={"sessions": 0}))
bad("PAR028", "a participant did not answer", "did not answer", facts=replies(silent=(DESK,)))
bad(
    "PAR028",
    "a participant gave another component's reply",
    "another component",
    facts={
        "live": LiveFacts(
            restore_replies={
                **replies()["live"].restore_replies,
                next(iter(ENTRIES)): ResourcesRestoreReply(sessions=0, source_checkpoint_id=CHECKPOINT_ID),
            }
        )
    },
)

# 87
SENT = (a_completion("g5_g0"), a_completion("g5_g1"))
good(
    "PAR029",
    "exactly what was sent, in another order",
    facts={"live": LiveFacts(acknowledged=((AGENT, SENT, SENT[::-1]),))},
)
bad(
    "PAR029",
    "one receipt is missing in the echo",
    "not `g5_g1 attempt 0`",
    facts={"live": LiveFacts(acknowledged=((AGENT, SENT, SENT[:1]),))},
)
bad(
    "PAR029",
    "a receipt of another generation",
    AGENT,
    facts={"live": LiveFacts(acknowledged=((AGENT, SENT[:1], (a_completion("g5_g0", execution_generation=2),)),))},
)

# 88
good("PAR030", "all servers are idle", facts={**TOPOLOGY, "live": LiveFacts(refusals=())})
BUSY = (
    *a_topology()[:-1],
    a_topology()[-1].model_copy(
        update={
            "capabilities": a_topology()[-1].capabilities.model_copy(
                update={"phase": "prepared", "active_checkpoint_id": "ck-9"}
            )
        }
    ),
)
bad("PAR030", "a server that is still prepared", "ck-9", facts={"capabilities": BUSY, "live": LiveFacts(refusals=())})
bad(
    "PAR030",
    "a server that has already worked",
    "unsafe_resources_restore",
    facts={**TOPOLOGY, "live": LiveFacts(refusals=((TOOLS, "unsafe_resources_restore", "served traffic"),))},
)

# 89
ONCE = (("g7_g0", 2), ("g8_g0", 1), ("g8_g1", 1))


def dispatched(*executions, **facts):
    return {"live": LiveFacts(dispatches=executions, **facts)}


good("PAR031", "every unfinished rollout once, at its attempt plus one", facts=dispatched(*ONCE))
good(
    "PAR031", "a discarded continuation restarts at the same number", facts=dispatched(*ONCE, discarded=(("g8_g0", 0),))
)
bad(
    "PAR031",
    "a replacement that skips a number",
    "`g7_g0` was dispatched as attempt 3, its continuation waits at 2",
    facts=dispatched(("g7_g0", 3), *ONCE[1:]),
)
bad("PAR031", "the saved attempt is dispatched again", "attempt 1", facts=dispatched(("g7_g0", 1), *ONCE))
bad("PAR031", "a replacement that is dispatched twice", "2 times", facts=dispatched(*ONCE, ONCE[0]))
bad("PAR031", "a continuation that nobody dispatches", "0 times", facts=dispatched(*ONCE[1:]))
bad("PAR031", "a finished sample is generated again", "`g5_g0`", facts=dispatched(*ONCE, ("g5_g0", 1)))
bad("PAR031", "a sealed sibling is generated again", "`g7_g1`", facts=dispatched(*ONCE, ("g7_g1", 1)))
