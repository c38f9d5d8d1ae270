"""Samples of the LED rules."""

from ckptctl.domain.controller import Acknowledgement
from ckptctl.domain.evidence import Part
from ckptctl.domain.finding import Defect
from tests.builders import APPEND, DROP
from tests.rules.samples import bad, good
from tests.world import AGENT, SEALED_1, a_completion, a_group, a_replay, a_sealed_attempt, an_attempt

LEDGER = "rollout_recovery.pt"
EVERY = tuple(f"LED{number:03d}" for number in range(1, 12))
for rule in EVERY:
    good(rule, "two unfinished groups, one sibling sealed, one restored once")
    good(rule, "the ledger of an anchor", **({"base": "anchor"} if rule != "LED007" else {}))

SEALED_GROUP = a_group(
    "g9",
    "19",
    [
        [a_sealed_attempt("g9_g0", (SEALED_1,), receipt=None, staging_keys=[])],
        [a_sealed_attempt("g9_g1", (SEALED_1,), receipt=None, staging_keys=[])],
    ],
    resolved_agent_name=AGENT,
    status="ready_to_finalize",
)
good(
    "LED004",
    "a group whose siblings are all sealed is ready to finalize",
    world={"ledger groups": APPEND(SEALED_GROUP)},
)
good("LED003", "a sealed attempt without a receipt has no staging keys", world={"ledger groups": APPEND(SEALED_GROUP)})


def _unknown_field(part):
    defect = Defect(
        "`groups.1.colour` is not a field of this format (group `g8`)", "groups.1.colour", "no such field", "1"
    )
    return Part(part.path, "damaged", None, (defect,), part.size_bytes, part.sha256, opens=True)


bad(
    "LED001",
    "a group has a field that the format does not know",
    "g8",
    evidence={"ledger": _unknown_field},
    artifact=LEDGER,
)
bad(
    "LED001",
    "a ledger of schema 3 has the field of schema 4",
    "restore_level",
    evidence={"ledger value groups 0": lambda group: group.model_copy(update={"restore_level": "turn"})},
    artifact=LEDGER,
)

bad(
    "LED002",
    "a group is listed twice",
    "g8",
    world={"ledger groups": lambda groups: [*groups, groups[1]]},
    artifact=LEDGER,
)
bad(
    "LED002",
    "a gap in generation_index",
    "generation_index",
    world={"ledger groups 1 siblings 1 generation_index": 2},
    artifact=LEDGER,
)
bad("LED002", "a sibling is missing", "g8", world={"ledger groups 1 siblings 1": DROP}, artifact=LEDGER)
bad(
    "LED002",
    "two attempts of a sibling have one number",
    "attempt_index",
    world={"ledger groups 0 siblings 0 attempts 1 attempt_index": 0},
)
bad(
    "LED002",
    "prompt_ref names another prompt",
    "prompt",
    world={"ledger groups 0 prompt_ref sample_id": "99"},
    artifact=LEDGER,
)

SEALED = "ledger groups 0 siblings 1 attempts 0"
bad("LED003", "a sealed attempt without a reward", "no reward", world={f"{SEALED} reward": None}, artifact=LEDGER)
bad(
    "LED003",
    "a sealed attempt without mask_sample",
    "mask_sample",
    world={f"{SEALED} mask_sample": None},
    artifact=LEDGER,
)
bad(
    "LED003",
    "a key of the receipt is left out",
    "g7_g1/call-2",
    world={f"{SEALED} staging_keys 1": DROP},
    artifact=LEDGER,
)
bad(
    "LED003",
    "the staging keys are in another order",
    "order",
    world={f"{SEALED} staging_keys": lambda keys: keys[::-1]},
    artifact=LEDGER,
)
bad(
    "LED003",
    "the receipt is of another attempt",
    "another attempt",
    world={f"{SEALED} receipt rollout_id": "g7_g1-a1"},
    artifact=LEDGER,
)
bad("LED003", "the receipt has no rows", "rows", world={f"{SEALED} receipt manifest": None}, artifact=LEDGER)
bad(
    "LED003",
    "the completion receipt names another attempt",
    "attempt 1",
    world={f"{SEALED} completion_receipt": a_completion("g7_g1", 1)},
)
bad("LED003", "staging keys without a receipt", "without a receipt", world={f"{SEALED} receipt": None}, artifact=LEDGER)
bad(
    "LED003",
    "an abandoned attempt still holds a reward",
    "only sealed attempts",
    world={"ledger groups 0 siblings 0 attempts 0 reward": 0.5},
    artifact=LEDGER,
)

bad(
    "LED004",
    "ready to finalize with an unsealed sibling",
    "1 of 2",
    world={"ledger groups 0 status": "ready_to_finalize"},
    artifact=LEDGER,
)
bad(
    "LED004",
    "generating although all siblings are sealed",
    "2 of 2",
    world={"ledger groups": APPEND(SEALED_GROUP.model_copy(update={"status": "generating"}))},
)
bad(
    "LED004",
    "a resolved agent although nothing is sealed",
    "resolved_agent_name",
    world={"ledger groups 1 resolved_agent_name": AGENT},
)
bad(
    "LED004",
    "no resolved agent although all siblings are sealed",
    "resolved_agent_name",
    world={"ledger groups": APPEND(SEALED_GROUP.model_copy(update={"resolved_agent_name": None}))},
)
bad("LED004", "an empty resolved agent", "empty", world={"ledger groups 0 resolved_agent_name": ""})

bad(
    "LED005",
    "groups of one admission have different target steps",
    "admission",
    world={"ledger groups 1 target_step": 5},
    artifact=LEDGER,
)
bad(
    "LED005",
    "groups of one admission are in different phases",
    "phase",
    world={"ledger groups 1 phase": "reserved"},
    artifact=LEDGER,
)

bad(
    "LED006",
    "a group was being finalized",
    "g9",
    world={"ledger groups": APPEND(SEALED_GROUP.model_copy(update={"status": "finalizing"}))},
)
bad(
    "LED006",
    "a finalization whose end nobody saw",
    "g9",
    world={"ledger groups": APPEND(SEALED_GROUP.model_copy(update={"status": "finalization_unknown"}))},
)

bad(
    "LED007",
    "a completed result still waits for its acknowledgement",
    "g5_g0",
    world={
        "ledger pending_completed_execution_acknowledgements": APPEND(
            Acknowledgement(receipt=a_completion("g5_g0"), agent_name=AGENT)
        )
    },
    artifact=LEDGER,
)
good(
    "LED003",
    "without Gym state the outbox may hold entries",
    world={
        "with_gym": False,
        "config rollout_checkpointing gym participant_checkpointing_enabled": False,
        "anchor_config rollout_checkpointing gym participant_checkpointing_enabled": False,
        "ledger pending_completed_execution_acknowledgements": APPEND(
            Acknowledgement(receipt=a_completion("g5_g0"), agent_name=AGENT)
        ),
    },
)

FINISHED_TOO = a_group("g5", "15", [[an_attempt()], [an_attempt()]])
bad(
    "LED008",
    "a finished group is in the ledger, too",
    "g5",
    world={"ledger groups": APPEND(FINISHED_TOO)},
    artifact=LEDGER,
)

bad(
    "LED009",
    "a prompt id that is no row number",
    "row-18",
    world={"ledger groups 1 prompt_id": "row-18", "ledger groups 1 prompt_ref sample_id": "row-18"},
)
bad(
    "LED009",
    "a prompt id with a leading zero",
    "018",
    world={"ledger groups 1 prompt_id": "018", "ledger groups 1 prompt_ref sample_id": "018"},
)

bad(
    "LED010",
    "two finished and two unfinished groups in a buffer of three",
    "capacity 3",
    world={"replay": lambda _: a_replay(saved_capacity=3)},
    artifact="replay_buffer_metadata.pt",
)

bad("LED011", "what a restart makes of the groups", "1 kept (sealed)", artifact=LEDGER)
bad(
    "LED011",
    "whole groups are given up",
    "given up",
    world={"ledger groups 0 recovery_granularity": "prompt_group"},
    artifact=LEDGER,
)
