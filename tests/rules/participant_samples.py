"""Samples of the PAR rules about single participants' files (60 to 65, 70, 84, 90)."""

from dataclasses import replace

from ckptctl.domain.evidence import Part, SiblingSnapshot
from ckptctl.domain.finding import Defect
from ckptctl.domain.ids import agent_folder
from tests.builders import DROP
from tests.rules.samples import bad, gone, good
from tests.world import (
    AGENT,
    CHECKPOINT_ID,
    DESK,
    MODEL,
    OTHER_DIGEST,
    TOOLS,
    a_receipt,
)

OUTER = "manifest.json"
FOLDER = agent_folder(AGENT)
CONTINUATIONS, INDEX, ARCHIVE = (
    f"{FOLDER}/continuations.jsonl",
    f"{FOLDER}/agent-index.jsonl",
    f"{FOLDER}/agent-part-000000.tar",
)
MODEL_FOLDER = f"model-ledger/{MODEL}"
STORAGE, LINEAGE_INDEX = f"{MODEL_FOLDER}/storage-references.jsonl", f"{MODEL_FOLDER}/lineage-index.jsonl"
LINEAGE = f"{MODEL_FOLDER}/lineage-part-000000.tar"
SESSION = "resources/tools/g7_g0.a1.json"
OFFLINE = (*range(2, 8), 12, 26, 32)
for number in OFFLINE:
    good(f"PAR{number:03d}", "two agents, one policy model, two resources servers, two continuations")
RECORDS, CUSTODY = f"agents {AGENT} records", f"models {MODEL} custody"


def damaged(*defects):
    """An edit of a part: its bytes are those that the manifest names, but they are not what they should be."""
    return lambda part: Part(part.path, "damaged", None, defects, part.size_bytes, part.sha256, opens=True)


# 60
bad(
    "PAR002",
    "a manifest with another digest",
    "digest",
    evidence={"agents 0 manifest sha256": OTHER_DIGEST},
    artifact=f"{FOLDER}/manifest.json",
)
bad(
    "PAR002",
    "a manifest that is not there",
    TOOLS,
    evidence=gone("resources 0 manifest", "resources/tools/manifest.json"),
    artifact="resources/tools/manifest.json",
)
bad(
    "PAR002",
    "a manifest at another place",
    "resources/other",
    evidence={"resources 0 entry manifest relative_path": "resources/other/manifest.json"},
    artifact=OUTER,
)
bad(
    "PAR002",
    "a manifest that does not parse",
    "checkpoint_id",
    evidence={"models 0 manifest": damaged(Defect("`checkpoint_id` is missing", "checkpoint_id"))},
    artifact=f"{MODEL_FOLDER}/manifest.json",
)
bad(
    "PAR002",
    "a name that is no path component",
    "../tools",
    evidence={"resources 0 entry participant participant_name": "../tools"},
    artifact=OUTER,
)

# 61
bad(
    "PAR003",
    "a manifest of another checkpoint",
    "checkpoint_id",
    evidence={"resources 1 manifest value checkpoint_id": "other-1"},
    artifact="resources/desk/manifest.json",
)
bad(
    "PAR003",
    "an agent's manifest of another checkpoint",
    "other-1",
    evidence={"agents 1 manifest value checkpoint_id": "other-1"},
)

# 62
bad(
    "PAR004",
    "a manifest written by another agent",
    "instance_name",
    evidence={"agents 0 manifest value instance_name": "other"},
    artifact=f"{FOLDER}/manifest.json",
)
bad(
    "PAR004",
    "a manifest written by another resources server",
    DESK,
    evidence={"resources 0 manifest value server_name": DESK},
    artifact="resources/tools/manifest.json",
)
bad(
    "PAR004",
    "a model manifest of an older schema",
    "schema",
    evidence={"models 0 manifest value schema_version": 2},
    is_incompatible=True,
)
bad(
    "PAR004",
    "a manifest that is only recognised",
    "schema 1",
    evidence={
        "agents 1 manifest": lambda part: Part(
            part.path, "unsupported", None, (Defect("has manifest schema 1"),), part.size_bytes, part.sha256
        )
    },
    is_incompatible=True,
)

# 63
bad(
    "PAR005",
    "the commit reply counts other lineage rows",
    MODEL,
    evidence={"models 0 entry payload rows": 9},
    artifact=OUTER,
)
bad(
    "PAR005",
    "the agent's manifest counts other records",
    "records",
    evidence={"agents 0 manifest value records": 3},
    artifact=f"{FOLDER}/manifest.json",
)
bad(
    "PAR005",
    "the commit reply counts other sessions",
    "sessions",
    evidence={"resources 0 entry payload sessions": 2},
    artifact=OUTER,
)
bad(
    "PAR005",
    "the commit reply counts other tombstones",
    "excluded_tombstoned",
    evidence={"models 0 entry payload excluded_tombstoned": 0},
    artifact=OUTER,
)

# 64
bad(
    "PAR006",
    "an index with another digest",
    "lineage-index.jsonl",
    evidence={"models 0 lineage_index sha256": OTHER_DIGEST},
    artifact=LINEAGE_INDEX,
)
bad(
    "PAR006",
    "an index of another size",
    "size",
    evidence={"models 0 storage_references size_bytes": 1},
    artifact=STORAGE,
)
bad(
    "PAR006",
    "an index with one row less than its reference says",
    "record count",
    evidence={"agents 0 continuations value 0": DROP},
    artifact=CONTINUATIONS,
)
bad("PAR006", "an index that is not there", "missing", evidence=gone("agents 0 record_index", INDEX), artifact=INDEX)
bad(
    "PAR006",
    "a row that does not parse",
    "line 2",
    evidence={"agents 0 continuations": damaged(Defect("`colour` is not a field of this format", "line 2"))},
    artifact=CONTINUATIONS,
)
bad(
    "PAR006",
    "an index outside the participant's folder",
    "outside",
    evidence={"agents 1 manifest value record_index relative_path": INDEX},
    also=("MAN009",),
)
bad(
    "PAR006",
    "commit reply and manifest name different indexes",
    "sha256",
    evidence={"agents 0 entry payload continuation_index sha256": OTHER_DIGEST},
    artifact=OUTER,
)

# 65
MEMBERS = "agents 0 archives agent-part-000000.tar value"
bad(
    "PAR007",
    "an archive with another digest",
    "digest",
    evidence={"agents 0 archives agent-part-000000.tar sha256": OTHER_DIGEST},
    artifact=ARCHIVE,
)
bad("PAR007", "a member under another name", "x.a1.json", evidence={f"{MEMBERS} 0 name": "x.a1.json"}, artifact=ARCHIVE)
bad(
    "PAR007",
    "members in another order than the index",
    "order",
    evidence={MEMBERS: lambda members: members[::-1]},
    artifact=ARCHIVE,
)
bad("PAR007", "a member that is a link", "regular", evidence={f"{MEMBERS} 0 is_regular": False}, artifact=ARCHIVE)
bad(
    "PAR007",
    "a member with another digest",
    "g7_g0.a1.json",
    evidence={f"{MEMBERS} 0 sha256": OTHER_DIGEST},
    artifact=ARCHIVE,
)
bad(
    "PAR007",
    "a member count that is not the manifest's",
    "the manifest says 3",
    evidence={"agents 0 manifest value archives 0 members": 3},
    artifact=ARCHIVE,
)
bad(
    "PAR007",
    "a record with NaN",
    "NaN",
    evidence={"agents 0 records *": damaged(Defect("NaN is no JSON", "line 3"))},
    artifact=ARCHIVE,
)
bad(
    "PAR007",
    "a turn_complete boundary with a pending response",
    "turn_complete",
    world={f"{RECORDS} 1 boundary_kind": "turn_complete"},
    artifact=ARCHIVE,
)
bad(
    "PAR007",
    "a pending_model boundary without a response",
    "null",
    world={f"{RECORDS} 1 pending_model": None},
    artifact=ARCHIVE,
)
bad(
    "PAR007",
    "a record of another attempt than its row",
    "attempt 7",
    evidence={"agents 0 records * value attempt_index": 7},
    artifact=ARCHIVE,
)

# 70
MODEL_MEMBERS = "models 0 archives lineage-part-000000.tar value"
bad(
    "PAR012",
    "an archive with another digest",
    "digest",
    evidence={"models 0 archives lineage-part-000000.tar sha256": OTHER_DIGEST},
    artifact=LINEAGE,
)
bad(
    "PAR012",
    "a member with another digest",
    "digest",
    evidence={f"{MODEL_MEMBERS} 0 sha256": OTHER_DIGEST},
    artifact=LINEAGE,
)
good("PAR012", "members in another order than the index", evidence={MODEL_MEMBERS: lambda members: members[::-1]})
bad(
    "PAR012",
    "a member that is not there",
    "g7_g0-a1.lineage.jsonl",
    evidence={
        MODEL_MEMBERS: lambda members: tuple(member for member in members if not member.name.startswith("g7")),
        "models 0 manifest value archives 0 members": 1,
    },
    artifact=LINEAGE,
)
bad(
    "PAR012",
    "a member with fewer rows than the index says",
    "rows",
    evidence={"models 0 lineage *": lambda part: replace(part, value=part.value[:-1])},
    artifact=LINEAGE,
)
bad(
    "PAR012",
    "a line that does not parse",
    "is no object",
    evidence={"models 0 lineage *": damaged(Defect("is no object", "line 1"))},
    artifact=LINEAGE,
)

# 84
bad(
    "PAR026",
    "a listed session that is not there",
    "missing",
    evidence=gone("resources 0 sessions g7_g0.a1.json", SESSION),
    artifact=SESSION,
)
bad(
    "PAR026",
    "a session with another digest",
    "digest",
    evidence={"resources 0 sessions g7_g0.a1.json sha256": OTHER_DIGEST},
    artifact=SESSION,
)
bad(
    "PAR026",
    "a session of another attempt than its name says",
    "attempt 0",
    evidence={"resources 0 sessions g7_g0.a1.json value attempt_index": 0},
    artifact=SESSION,
)
bad(
    "PAR026",
    "a state that is a list",
    "state",
    evidence={"resources 0 sessions g7_g0.a1.json": damaged(Defect("`state` must be an object", "state"))},
    artifact=SESSION,
)
bad(
    "PAR026",
    "two receipts of one request",
    "two receipts",
    world={f"resources {TOOLS} 0 mutation_receipts": lambda receipts: [*receipts, receipts[0]]},
    artifact=SESSION,
)
bad(
    "PAR026",
    "more receipts than a server keeps",
    "1025 receipts",
    world={f"resources {TOOLS} 0 mutation_receipts": [a_receipt(f"r{at}") for at in range(1025)]},
    artifact=SESSION,
)
bad(
    "PAR026",
    "a request id with a control character",
    "ASCII",
    world={f"resources {TOOLS} 0 mutation_receipts 0 request_id": "a\x1bb"},
    artifact=SESSION,
)

# 90
TWIN = SiblingSnapshot(
    anchor="step_2", name="snapshot_000001", number=1, has_manifest=True, checkpoint_id=CHECKPOINT_ID
)
bad(
    "PAR032",
    "the checkpoint id of another anchor's snapshot",
    "step_2/snapshot_000001",
    evidence={"anchor other_snapshots": (TWIN,)},
    artifact=OUTER,
)
