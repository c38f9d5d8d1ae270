"""Which snapshot formats there are, which of them ckptctl reads, and what it says of the others (snapshot-layout section 3.1).

Decides from the schema number and the names in and beside a snapshot. Contradictions inside a supported schema (a `COMMITTED`
file beside schema 4, Gym state in schema 3, cut proofs) are the rules' business, and so is whether a refusal means *incompatible*
(every number, known or not, and every foreign layout) or *invalid* (no number at all): ask `is_schema_number`.
"""

from __future__ import annotations

from collections.abc import Collection

from ckptctl.domain.safe_text import shown

READ_SCHEMAS = (3, 4)
WRITTEN_SCHEMA = 4
KNOWN_SCHEMAS = (1, 2, 3, 4, 5, 6)

GENERATION_B_FILE, GENERATION_B_FOLDER = "gym_checkpoint.json", "gym-instances"
AGGREGATE_GYM_FILE = "nemo_gym_checkpoint_manifest.json"
FOREIGN_LAYOUT = (GENERATION_B_FILE, GENERATION_B_FOLDER, AGGREGATE_GYM_FILE)
COMMITTED_MARKER, LATEST_MARKER = "COMMITTED", "LATEST"
OLD_MARKERS = (COMMITTED_MARKER, LATEST_MARKER)
"""`COMMITTED` in a snapshot and `LATEST` beside it belong to schemas 1 and 2."""

_READS = "ckptctl reads schemas 3 and 4"
_OLD_NEXT_STEP = (
    "Experimental formats are not carried forward: "
    "begin again at its trainer checkpoint, or go back to the NeMo-RL build that made it"
)
_FOREIGN_NEXT_STEP = "Only the NeMo-RL and Gym builds that made it can restore it"
_CUT_NEXT_STEP = "A NeMo-RL build that knows prefix cuts can restore it"
_NEWER_NEXT_STEP = "Use a newer ckptctl, or the NeMo-RL build that made it"


def is_schema_number(found: object) -> bool:
    """Whether a manifest names a schema at all: an integer, and `true` is none."""
    return type(found) is int


def foreign_marker(names: Collection[str]) -> str | None:
    """The entry that tells a foreign layout, whatever the number says; None in a layout of ours."""
    return next((name for name in FOREIGN_LAYOUT if name in names), None)


def schema_refusal(schema_found: object, names: Collection[str] = (), *, is_null: bool = False) -> str | None:
    """Why a snapshot is not read, in one or two sentences; None when it is.

    `names` are those of the entries directly in the snapshot and of the markers beside it; of a foreign layout they say more than
    the number does. `is_null`: the manifest has a `schema_version`, and it is null.
    """
    if GENERATION_B_FILE in names or GENERATION_B_FOLDER in names:
        marker = GENERATION_B_FILE if GENERATION_B_FILE in names else f"{GENERATION_B_FOLDER}/"
        return (
            f"`{marker}`: Gym state of control protocol generation B; ckptctl reads generation A. {_FOREIGN_NEXT_STEP}"
        )
    if AGGREGATE_GYM_FILE in names:
        what = f"`{AGGREGATE_GYM_FILE}`: one aggregate manifest for all Gym servers, as an early Gym wrote it"
        return f"{what}; ckptctl reads one manifest per participant. {_FOREIGN_NEXT_STEP}"
    if not is_schema_number(schema_found):
        is_absent = schema_found is None and not is_null
        what = "lacks `schema_version`" if is_absent else f"has {shown(schema_found)} as `schema_version`"
        return (
            f"`manifest.json` {what}, where an integer must be; {_READS}. Take it from a copy, or use an older snapshot"
        )
    if schema_found in READ_SCHEMAS:
        return None
    what = f"`manifest.json` is of snapshot schema {shown(schema_found)}, {_about(schema_found)}"
    return f"{what}; {_READS}. {_next_step(schema_found)}"


def _about(schema: object) -> str:
    return {
        1: "partial rollouts as they were before they were given up",
        2: "a draft that never became the main line",
        5: "which keeps proofs of generation cuts in its manifest",
        6: "which keeps generation cuts in the lineage of the Gym model",
    }.get(
        int(str(schema)),
        f"which this ckptctl does not know (it recognises {KNOWN_SCHEMAS[0]} to {KNOWN_SCHEMAS[-1]})",
    )


def _next_step(schema: object) -> str:
    if schema in {1, 2}:
        return _OLD_NEXT_STEP
    return _CUT_NEXT_STEP if schema in {5, 6} else _NEWER_NEXT_STEP
