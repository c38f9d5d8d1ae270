"""Samples of the PAR rules about what participants and the ledger say of each other (66 to 69, 71 to 79, 81, 85)."""

from dataclasses import replace

from ckptctl.domain.ids import agent_folder
from ckptctl.domain.participant import Execution
from ckptctl.domain.rows import LineageRow, StorageReferenceRow
from tests.artifacts import a_reference, continuations_of, references_of, roots_of
from tests.builders import APPEND, DROP
from tests.rules.samples import bad, good
from tests.world import (
    AGENT,
    CALL_5,
    DESK,
    LOST,
    MODEL,
    PENDING,
    SPARE,
    TOOLS,
    a_lineage_row,
    a_model,
    a_pending_record,
    a_record,
    a_sealed_attempt,
    a_session,
    a_world,
    an_attempt,
)

LEDGER = "rollout_recovery.pt"
FOLDER = agent_folder(AGENT)
CONTINUATIONS, ARCHIVE = f"{FOLDER}/continuations.jsonl", f"{FOLDER}/agent-part-000000.tar"
MODEL_FOLDER = f"model-ledger/{MODEL}"
STORAGE, LINEAGE_INDEX = f"{MODEL_FOLDER}/storage-references.jsonl", f"{MODEL_FOLDER}/lineage-index.jsonl"
LINEAGE = f"{MODEL_FOLDER}/lineage-part-000000.tar"
SESSION = "resources/tools/g7_g0.a1.json"
OFFLINE = (*range(8, 12), *range(13, 22), 27, 33)
for number in OFFLINE:
    good(f"PAR{number:03d}", "two agents, one policy model, two resources servers, two continuations")
RECORDS, CUSTODY = f"agents {AGENT} records", f"models {MODEL} custody"
WITHOUT_CALL = {
    "last_committed_model_capture_key": None,
    "last_committed_model_call_id": None,
    "resource_state_revisions": {},
}


# 66
bad(
    "PAR008",
    "a continuation without a boundary record",
    "continuation of `g7_g0` attempt 1 has no boundary record",
    world={
        f"agents {AGENT}": lambda content: replace(
            content, continuations=continuations_of(content), records=content.records[1:]
        ),
        f"resources {TOOLS}": (),
    },
    artifact=CONTINUATIONS,
)
bad(
    "PAR008",
    "a continuation with other resource revisions",
    "tools=3",
    world={f"agents {AGENT}": lambda content: _rows(content, "g7_g0", resource_state_revisions={TOOLS: 3})},
    artifact=CONTINUATIONS,
)
good(
    "PAR008",
    "a continuation whose revisions are unknown",
    world={f"agents {AGENT}": lambda content: _rows(content, "g7_g0", resource_state_revisions=None)},
)


def _rows(content, rollout, **changes):
    """The agent's content with one continuation row changed."""
    import msgspec

    rows = tuple(
        msgspec.structs.replace(row, **changes) if row.rollout_id == rollout else row
        for row in continuations_of(content)
    )
    return replace(content, continuations=rows)


bad(
    "PAR008",
    "a boundary record without a continuation",
    "boundary record of `g8_g0` attempt 0 has a model call but no continuation",
    world={
        f"agents {AGENT}": lambda content: replace(
            content, continuations=tuple(row for row in continuations_of(content) if row.rollout_id == "g7_g0")
        ),
        CUSTODY: lambda custody: {"g7_g0-a1": custody["g7_g0-a1"]},
    },
    artifact=CONTINUATIONS,
)
bad(
    "PAR008",
    "a continuation that names another call than its record",
    "g7_g0-a1/call-8",
    world={f"agents {AGENT}": lambda content: _rows(content, "g7_g0", last_committed_model_call_id="call-8")},
    artifact=CONTINUATIONS,
)

# 67
bad(
    "PAR009",
    "a boundary without a model call",
    "g8_g1",
    world={RECORDS: APPEND(a_record("g8_g1", 0, **WITHOUT_CALL))},
    artifact=ARCHIVE,
)

# 68
bad(
    "PAR010",
    "the capture key of another rollout",
    "`g9_g9` does not belong to `g7_g0`",
    world={
        f"{RECORDS} 0 last_committed_model_capture_key": "g9_g9",
        CUSTODY: lambda custody: {"g9_g9": custody["g7_g0-a1"], "g8_g0": custody["g8_g0"]},
    },
    artifact=CONTINUATIONS,
)
bad(
    "PAR010",
    "the capture key of a later attempt",
    "g7_g0-a2",
    world={
        f"{RECORDS} 0 last_committed_model_capture_key": "g7_g0-a2",
        CUSTODY: lambda custody: {"g7_g0-a2": custody["g7_g0-a1"], "g8_g0": custody["g8_g0"]},
    },
    artifact=CONTINUATIONS,
)
good(
    "PAR010",
    "the capture key of an older attempt, after a restore without a new call",
    world={
        f"{RECORDS} 0": a_record(last_committed_model_capture_key="g7_g0", last_committed_model_call_id="call-5"),
        CUSTODY: lambda custody: {"g7_g0": (a_lineage_row(CALL_5),), "g8_g0": custody["g8_g0"]},
    },
)

# 69
bad(
    "PAR011",
    "a continuation that is listed twice",
    "g8_g0",
    world={
        f"agents {AGENT}": lambda content: replace(
            content, continuations=(*continuations_of(content), continuations_of(content)[1])
        )
    },
    artifact=CONTINUATIONS,
)
bad(
    "PAR011",
    "a rollout with continuations at two agents",
    "g7_g0",
    world={
        f"agents {SPARE} records": APPEND(
            a_record(
                last_committed_model_capture_key="g7_g0",
                last_committed_model_call_id="call-5",
                resource_state_revisions={},
            )
        ),
        CUSTODY: lambda custody: {**custody, "g7_g0": (a_lineage_row(CALL_5),)},
    },
)

# 71
bad(
    "PAR013",
    "the boundary call has two rows",
    "ambiguous",
    world={f"{CUSTODY} g8_g0": lambda lines: (*lines, *lines)},
    artifact=LINEAGE,
)
bad(
    "PAR013",
    "lineage of a rollout that has no continuation",
    "g9_g9",
    world={CUSTODY: lambda custody: {**custody, "g9_g9": custody["g8_g0"]}},
    artifact=LINEAGE,
)
bad(
    "PAR013",
    "two policy models with different lineage",
    "differs between",
    world={
        "models": lambda models: {
            **models,
            "second_model": replace(
                a_model(), custody={**a_model().custody, "g8_g0": (a_lineage_row(PENDING, weight_version=2),)}
            ),
        }
    },
)
good(
    "PAR013",
    "two policy models with the same lineage",
    world={"models": lambda models: {**models, "second_model": a_model()}},
)
bad(
    "PAR013",
    "the boundary call failed",
    "missing",
    world={f"{CUSTODY} g8_g0": (LineageRow(model_call_id="call-2", failure_reason="timeout"),)},
    artifact=LINEAGE,
)
bad(
    "PAR013",
    "a continuation without lineage",
    "has no lineage of it",
    world={CUSTODY: lambda custody: {"g7_g0-a1": custody["g7_g0-a1"]}},
    artifact=LINEAGE_INDEX,
)

# 72


def stored(change):
    """An edit of the model: its storage references."""
    return {
        f"models {MODEL}": lambda model: replace(model, storage=tuple(change(list(references_of(a_world(), model)))))
    }


bad(
    "PAR014",
    "a key of the chain is left out",
    "`g7_g0/call-5`",
    world=stored(lambda rows: [row for row in rows if row.key != CALL_5.key]),
    artifact=STORAGE,
)
bad(
    "PAR014",
    "a key that its continuation does not need",
    "1 key extra",
    world=stored(lambda rows: [*rows, a_reference(LOST.key, roots_of(a_world())[1])]),
    artifact=STORAGE,
)

# 73
bad(
    "PAR015",
    "a reference to a capture key without a continuation",
    "g8_g1",
    world=stored(lambda rows: [*rows, StorageReferenceRow(1, "g8_g1", "call-0", "token_capture_staging", LOST.key)]),
    artifact=STORAGE,
)
bad(
    "PAR015",
    "a reference to another call of the continuation",
    "call-8",
    world=stored(lambda rows: [_of_call(row, "call-8") if row.key == CALL_5.key else row for row in rows]),
    artifact=STORAGE,
)
bad("PAR015", "a key that is listed twice", "twice", world=stored(lambda rows: [*rows, rows[0]]), artifact=STORAGE)
bad(
    "PAR015",
    "two models that list a key for different continuations",
    "differs from the row of",
    world={
        "models": lambda models: {
            **models,
            "second_model": replace(
                a_model(),
                storage=tuple(
                    _of_root(row, 1) if row.key == CALL_5.key else row for row in references_of(a_world(), a_model())
                ),
            ),
        }
    },
)
bad(
    "PAR015",
    "a continuation without staged rows",
    "holds no staged rows",
    world={f"{CUSTODY} g8_g0": (a_lineage_row(PENDING, staging_key=None, staging_chain=None),)},
    artifact=CONTINUATIONS,
    is_warning=True,
)


def _of_call(row, call):
    return StorageReferenceRow(1, row.capture_key, call, row.kind, row.key)


def _of_root(row, at):
    return a_reference(row.key, roots_of(a_world())[at])


# 74
bad(
    "PAR016",
    "a model that was committed against fewer continuations",
    "another set",
    world={f"models {MODEL}": lambda model: replace(model, roots=roots_of(a_world())[:1])},
    artifact=f"{MODEL_FOLDER}/manifest.json",
)
bad(
    "PAR016",
    "a model that was committed against other revisions",
    "another set",
    world={f"models {MODEL}": lambda model: replace(model, roots=roots_of(a_world())[:1] * 2)},
    artifact=f"{MODEL_FOLDER}/manifest.json",
)

# 75
bad(
    "PAR017",
    "an aborted attempt with a continuation",
    "was aborted",
    world={f"models {MODEL} tombstones": APPEND(Execution(rollout_id="g8_g0", attempt_index=0))},
    artifact=CONTINUATIONS,
)
good(
    "PAR017",
    "an older attempt of the rollout was aborted",
    world={f"models {MODEL} tombstones": APPEND(Execution(rollout_id="g7_g0", attempt_index=0))},
)

# 76
G7_G0 = "ledger groups 0 siblings 0 attempts"
bad(
    "PAR018",
    "the ledger is one attempt ahead",
    "is at attempt 2",
    world={G7_G0: [an_attempt(0, "abandoned"), an_attempt(1, "abandoned"), an_attempt(2)]},
    artifact=LEDGER,
)
bad("PAR018", "the ledger is one attempt behind", "is at attempt 0", world={G7_G0: [an_attempt(0)]}, artifact=LEDGER)
bad("PAR018", "the ledger has no such group", "no such sibling", world={"ledger groups 1": DROP}, artifact=LEDGER)
bad(
    "PAR018",
    "the ledger has sealed the attempt",
    "has sealed it",
    world={"ledger groups 1 siblings 0 attempts": [a_sealed_attempt("g8_g0", (PENDING,))]},
    artifact=LEDGER,
)
bad(
    "PAR018",
    "the ledger calls the attempt failed",
    "calls it failed",
    world={"ledger groups 1 siblings 0 attempts 0 status": "failed"},
    artifact=LEDGER,
)

# 77
bad(
    "PAR019",
    "a boundary of a rollout that the ledger does not know",
    "no such sibling",
    world={RECORDS: APPEND(a_record("g9_g9", 0, **WITHOUT_CALL))},
    artifact=ARCHIVE,
    also=("PAR009",),
)

# 78
bad("PAR020", "an unfinished rollout without a boundary", "g8_g1", artifact=LEDGER)

# 79
bad(
    "PAR021",
    "a boundary whose session was not exported",
    "g7_g0",
    world={f"resources {TOOLS}": ()},
    artifact="resources/tools/manifest.json",
)
bad(
    "PAR021",
    "a session without a boundary",
    "orphan",
    world={f"resources {DESK}": (a_session("g8_g1", 0),)},
    artifact="resources/desk/g8_g1.a0.json",
)
bad(
    "PAR021",
    "a session at another revision",
    "revision 4",
    world={f"resources {TOOLS} 0 state_revision": 3},
    artifact=SESSION,
)

# 85
bad(
    "PAR027",
    "boundary and session of different attempts",
    "attempts 1 and 0",
    world={f"resources {TOOLS}": (a_session("g7_g0", 0),)},
    artifact="resources/tools/g7_g0.a0.json",
)
bad(
    "PAR027",
    "two servers with different attempts",
    "attempts 1 and 0",
    world={f"resources {DESK}": (a_session("g7_g0", 0),)},
    artifact="resources/desk/g7_g0.a0.json",
)

# 81
bad(
    "PAR033",
    "a continuation that depends on a server without state",
    "judge",
    world={f"{RECORDS} 1": a_pending_record().model_copy(update={"resource_state_revisions": {"judge": 0}})},
    artifact=CONTINUATIONS,
)
