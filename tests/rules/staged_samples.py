"""Samples of level full: INV006 to INV010, and what INV002, INV005, INV011 and INV014 see of tensor bytes."""

from array import array
from dataclasses import replace

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.evidence import Part
from ckptctl.domain.finding import Defect
from ckptctl.domain.staged import ROUTES_ENVELOPE, StagedRow, call_digest
from tests.rules.inventory_samples import CONTROLLER, G5_G0, REPLAY, STAGED, replanned, unit_file
from tests.rules.samples import bad, good
from tests.world import CALL_5, CALL_8, CALL_9, PENDING, ROUTED, SEALED_1, SEALED_2, a_call, a_route_plan

FULL = {"level": "full"}
ROWS = {row.key: index for index, row in enumerate((CALL_5, CALL_8, CALL_9, SEALED_1, SEALED_2, PENDING), start=7)}
LEDGER, LINEAGE = "rollout_recovery.pt", "model-ledger/policy_model/lineage-part-000000.tar"
RECEIPT = "ledger groups 0 siblings 1 attempts 0 receipt manifest"
CUSTODY = "models policy_model custody g7_g0-a1"

for rule in ("INV002", "INV005", "INV006", "INV007", "INV008", "INV009", "INV010", "INV011", "INV014"):
    good(rule, "every staged row read", facts=FULL)
    good(rule, "the rows of an anchor's own data plane read", base="anchor", facts=FULL)
for rule in ("INV002", "INV006", "INV007", "INV008", "INV010"):
    good(rule, "every value of a data plane alone read", base="data plane", facts=FULL)


def of(row: StagedRow) -> str:
    """The file that a row of the default world lies in."""
    return unit_file(ROWS[row.key])


def restated(row: StagedRow, **changes) -> dict:
    """Edits of evidence: facts of one staged row that came out otherwise."""
    return {f"staged {row.key} value {name}": value for name, value in changes.items()}


def signed(row: StagedRow, **changes) -> StagedRow:
    """A row that states something else, with the digest that an honest but wrong writer gives it."""
    row = replace(row, **changes)
    return replace(row, digest=call_digest(row))


def exchanged(old: StagedRow, new: StagedRow) -> dict:
    """An edit of the world: one staged row is another; lineage and receipts keep what they say."""
    return {"staged": lambda rows: tuple(new if row == old else row for row in rows)}


# --- identity and digests ---

bad(
    "INV006",
    "an index that was used again",
    "belongs to `g7_g0-a1/call-77`",
    facts=FULL,
    evidence=restated(CALL_8, model_call_id="call-77"),
    artifact=of(CALL_8),
)
bad(
    "INV006",
    "a data plane alone: a row of another rollout",
    "belongs to `g9_g0/call-1`",
    base="data plane",
    facts=FULL,
    evidence=restated(SEALED_1, rollout_id="g9_g0"),
    artifact=of(SEALED_1).removeprefix("data_plane/"),
)
bad(
    "INV007",
    "a token that changed",
    "not the ones that were captured",
    facts=FULL,
    world=exchanged(CALL_9, replace(CALL_9, token_ids=array("q", (15, 17, 902)))),
    artifact=of(CALL_9),
)
bad(
    "INV007",
    "a log probability that changed in the first call of a chain",
    "digest of `g7_g0/call-5`",
    facts=FULL,
    world=exchanged(CALL_5, replace(CALL_5, logprobs=array("f", (0, 0, 0, -0.25)))),
    artifact=of(CALL_5),
)
bad(
    "INV007",
    "a data plane alone: a token that changed",
    "digest of `g7_g0/call-5`",
    base="data plane",
    facts=FULL,
    world=exchanged(CALL_5, replace(CALL_5, token_ids=array("q", (11, 12, 13, 901)))),
    artifact=of(CALL_5).removeprefix("data_plane/"),
)
bad(
    "INV007",
    "a mask of halves",
    "other values than 0 and 1",
    facts=FULL,
    world=exchanged(CALL_9, signed(CALL_9, token_mask=array("f", (0, 0.5, 1)))),
    artifact=of(CALL_9),
)
bad(
    "INV007",
    "another digest version",
    "versions",
    facts=FULL,
    world=exchanged(CALL_9, signed(CALL_9, digest_version=1)),
    artifact=of(CALL_9),
)
bad(
    "INV007",
    "a row whose bytes are no row",
    "not finite",
    facts=FULL,
    evidence={
        f"staged {CALL_9.key}": lambda part: Part(
            part.path, "damaged", None, (Defect("a number of a staged row is not finite", "token_mask_delta"),)
        )
    },
    artifact=of(CALL_9),
)
bad(
    "INV007",
    "a tag with another digest",
    "tag `digest`",
    facts=FULL,
    evidence={f"{STAGED} tags {ROWS[CALL_9.key]} digest": "ab" * 32},
    artifact=CONTROLLER,
)
bad(
    "INV007",
    "a tag with another length",
    "tag `cum_len`",
    facts=FULL,
    evidence={f"{STAGED} tags {ROWS[CALL_9.key]} cum_len": 99},
    artifact=CONTROLLER,
)
good("INV007", "a row without tags", facts=FULL, evidence={f"{STAGED} tags {ROWS[CALL_9.key]}": {}})
good(
    "INV007",
    "a changed row that nothing needs",
    facts=FULL,
    world={
        "staged": lambda rows: tuple(
            replace(row, weight_version=2) if row.rollout_id == "g8_g1" else row for row in rows
        )
    },
)

# --- extras and routes ---

ROUTES = TensorValue("int16", (3, 1, 2), bytes(range(12)))
WITH_ROUTES = a_call(
    "g6_g0", "call-1", (51, 52, 940), routed_experts=ROUTES, routed_experts_encoding=ROUTES_ENVELOPE, extras={"turn": 1}
)


def routed(**changes) -> dict:
    """Edits of the world: sample `g6_g0` has a call with routed experts, and a plan that fits them unless told otherwise."""
    span = {**a_route_plan(WITH_ROUTES)["spans"][0], "staged_route_len": 3, **changes}
    return {**exchanged(ROUTED[0], WITH_ROUTES), **replanned(spans=[span])}


for rule in ("INV005", "INV008", "INV011"):
    good(rule, "routed experts of a deferred route", facts=FULL, world=routed())
bad(
    "INV008",
    "a route that changed",
    "extras of `g6_g0/call-1`",
    facts=FULL,
    world={
        **routed(),
        **exchanged(ROUTED[0], replace(WITH_ROUTES, routed_experts=ROUTES._replace(data=bytes(12)))),
    },
    artifact=unit_file(14),
)
bad(
    "INV008",
    "extras that changed",
    "extras of `g7_g0-a1/call-9`",
    facts=FULL,
    world=exchanged(CALL_9, replace(CALL_9, extras={"turn": 2})),
    artifact=of(CALL_9),
)
bad(
    "INV008",
    "extras that have no digest",
    "64 bits",
    facts=FULL,
    world=exchanged(CALL_9, replace(CALL_9, extras={"turn": 2**63})),
    artifact=of(CALL_9),
)
for state, word, artifact in (
    ("missing", "storage unit has no row", unit_file(14)),
    ("unproduced", "never produced", CONTROLLER),
):
    bad(
        "INV005",
        f"routed experts that are {state}",
        word,
        facts=FULL,
        world=routed(),
        evidence=restated(WITH_ROUTES, routes=state, extras_found=None),
        artifact=artifact,
    )
bad(
    "INV011",
    "a span with another extras digest",
    "`extras_digest`",
    facts=FULL,
    world=routed(extras_digest="ab" * 32),
    artifact=REPLAY,
)
bad(
    "INV011",
    "a span with another route length",
    "`staged_route_len`",
    facts=FULL,
    world=routed(staged_route_len=2),
    artifact=REPLAY,
)

# --- values that cannot be read ---

bad(
    "INV002",
    "a sample whose bytes end too early",
    "field `input_ids` of `g5_g0`",
    facts=FULL,
    evidence={
        "unreadable_values": {
            ("su_0_TQ_STORAGE_UNIT_00000000.pkl", "input_ids", G5_G0): Part(
                unit_file(G5_G0), "damaged", None, (Defect("the file became shorter while it was read"),)
            )
        }
    },
    artifact=unit_file(G5_G0),
)

# --- receipts and lineage ---

for name, value in (("digest", "ab" * 32), ("weight_version", 2), ("mode", "token_in"), ("parent_call_id", "call-0")):
    bad(
        "INV009",
        f"a receipt row with another {name}",
        f"staged row `g7_g1/call-1` differ in `{name}`",
        facts=FULL,
        world={f"{RECEIPT} 0 {name}": value},
        artifact=LEDGER,
    )
bad(
    "INV009",
    "a receipt row without a hash",
    "differ in `chain_hash`",
    facts=FULL,
    world={f"{RECEIPT} 1": lambda row: {key: value for key, value in row.items() if key != "chain_hash"}},
    artifact=LEDGER,
)
bad(
    "INV009",
    "a lineage row with another staging digest",
    "lineage of `g7_g0-a1` and staged row `g7_g0-a1/call-9` differ in `staging_digest`",
    facts=FULL,
    world={f"{CUSTODY} 1 staging_digest": "ab" * 32},
    artifact=LINEAGE,
)
bad(
    "INV009",
    "a lineage row with another length",
    "differ in `cum_len`",
    facts=FULL,
    world={f"{CUSTODY} 1 cum_len": 99},
    artifact=LINEAGE,
)
good(
    "INV009",
    "lineage with the columns only that checkpoints use",
    facts=FULL,
    world={
        CUSTODY: lambda rows: tuple(
            type(row)(
                model_call_id=row.model_call_id,
                staging_key=row.staging_key,
                staging_chain=row.staging_chain,
                failure_reason=row.failure_reason,
            )
            for row in rows
        )
    },
)

# --- chains ---


TOLD = {
    SEALED_1.key: f"{RECEIPT} 0",
    SEALED_2.key: f"{RECEIPT} 1",
    CALL_9.key: f"{CUSTODY} 1",
    PENDING.key: "models policy_model custody g8_g0 0",
}
"""Where else the world speaks of a row."""


def rechained(old: StagedRow, **changes) -> dict:
    """Edits of the world: a call states something else of its chain; its digest, receipt and lineage agree with that."""
    new = signed(old, **changes)
    place = TOLD[old.key]
    digest = "digest" if place.startswith("ledger") else "staging_digest"
    return {
        **exchanged(old, new),
        **{f"{place} {name}": value for name, value in {digest: new.digest, **changes}.items()},
    }


bad(
    "INV010",
    "a chain hash that does not follow from the parent's",
    "call chain of `g7_g1/call-2` breaks at `g7_g1/call-1`",
    facts=FULL,
    world=rechained(SEALED_2, chain_hash="ab" * 32),
    artifact=of(SEALED_2),
)
bad(
    "INV010",
    "the chain hash of a root",
    "call chain of `g8_g0/call-2` breaks at `g8_g0/call-2`",
    facts=FULL,
    world=rechained(PENDING, chain_hash="ab" * 32),
    artifact=of(PENDING),
)
bad(
    "INV010",
    "a cumulative hash over other ids",
    "cumulative hash",
    facts=FULL,
    world=rechained(CALL_9, cumulative_hash="ab" * 32),
    artifact=of(CALL_9),
)
bad(
    "INV010",
    "a call that begins before its parent ends",
    "the child begins at 2, this call ends at 3",
    facts=FULL,
    world=rechained(SEALED_2, prev_len=2, cum_len=4),
    artifact=of(SEALED_2),
)
bad(
    "INV010",
    "an ancestor that was never staged",
    "this ancestor has no staged row",
    facts=FULL,
    world=rechained(SEALED_2, parent_call_id="call-0"),
    artifact=of(SEALED_2),
)
bad(
    "INV010",
    "lineage lists the chain in another order",
    "another chain than the lineage lists",
    facts=FULL,
    world={f"{CUSTODY} 1 staging_chain": (CALL_8.key, CALL_5.key, CALL_9.key)},
    artifact=LINEAGE,
)
bad(
    "INV010",
    "lineage leaves an ancestor out, so nothing keeps it",
    "nothing keeps this ancestor",
    facts=FULL,
    world={f"{CUSTODY} 1 staging_chain": (CALL_5.key, CALL_9.key)},
)
bad(
    "INV010",
    "a data plane alone: a chain hash that does not follow",
    "breaks at `g7_g0/call-5`",
    base="data plane",
    facts=FULL,
    world=exchanged(CALL_8, signed(CALL_8, chain_hash="ab" * 32)),
)
good(
    "INV010",
    "a data plane alone: an ancestor that lies elsewhere",
    base="data plane",
    facts=FULL,
    world={"staged": lambda rows: tuple(row for row in rows if row != CALL_5)},
)

# --- weights ---

bad(
    "INV014",
    "a staged row whose tag hides newer weights",
    "staging row `g7_g0-a1/call-9` carries weight version 4",
    facts=FULL,
    world={f"{CUSTODY} 1 weight_version": None},
    evidence={**restated(CALL_9, weight_version=4), f"{STAGED} tags {ROWS[CALL_9.key]}": {}},
    artifact=of(CALL_9),
)
