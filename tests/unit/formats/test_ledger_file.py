"""The ledger's file: exactly the documented fields, other ledgers recognised, nothing but plain values."""

import copy

import pytest

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.ledger_file import decode_ledger, encode_ledger
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.torch_zip import write_torch_zip

COMPLETION = {
    "rollout_id": "g1_g0",
    "attempt_index": 0,
    "execution_generation": 1,
    "result_identity": "r",
    "result_digest": "0" * 64,
    "manifest_capture_key": None,
    "terminal_model_call_id": None,
}
SEALED = {
    "attempt_index": 0,
    "status": "sealed",
    "receipt": {"rollout_id": "g1_g0", "manifest": [{"staging_key": "g1_g0/call-0", "admitted_at": 1.5}]},
    "completion_receipt": COMPLETION,
    "reward": 1.0,
    "mask_sample": False,
    "staging_keys": ["g1_g0/call-0"],
}
OPEN = {
    "attempt_index": 0,
    "status": "dispatched",
    "receipt": None,
    "completion_receipt": None,
    "reward": None,
    "mask_sample": None,
    "staging_keys": [],
}


def a_group(group_id: str = "g1", **changes: object) -> dict:
    return {
        "group_id": group_id,
        "admission_id": "a1",
        "prompt_id": "7",
        "prompt_ref": {"sample_id": "7", "task_name": None},
        "task_source": None,
        "resolved_agent_name": "agent",
        "recovery_granularity": "sibling",
        "expected_generations": 2,
        "target_step": 4,
        "start_weight_version": 3,
        "status": "generating",
        "phase": "admitted",
        "siblings": [{"generation_index": 0, "attempts": [SEALED]}, {"generation_index": 1, "attempts": [OPEN]}],
        **changes,
    }


def a_ledger(**changes: object) -> dict:
    return copy.deepcopy(
        {
            "schema_version": 3,
            "groups": [a_group()],
            "pending_completed_execution_acknowledgements": [{"receipt": COMPLETION, "agent_name": "agent"}],
            "batch_shortfall": {4: 1},
            "sampler_stamps_target_steps": True,
            **changes,
        }
    )


def decode(tree: object) -> Ledger:
    return decode_ledger(BytesSource(write_torch_zip(write_pickle(tree, 2))), DEFAULT_LIMITS)


def refusal(tree: object) -> DefectError:
    with pytest.raises(DefectError) as caught:
        decode(tree)
    return caught.value


def only_defect(tree: object) -> Defect:
    error = refusal(tree)
    assert not error.is_unsupported
    (defect,) = error.defects
    return defect


def test_a_ledger_is_decoded():
    """All fields arrive, int keys stay ints."""
    found = decode(a_ledger())

    assert a_ledger() == found.model_dump()
    assert {4: 1} == found.batch_shortfall
    assert "g1_g0/call-0" == found.groups[0].siblings[0].current.staging_keys[0]


def test_what_is_written_is_what_is_read():
    """The same ledger gives the same bytes, and they decode to it."""
    ledger = decode(a_ledger())

    assert encode_ledger(ledger) == encode_ledger(ledger)
    assert ledger == decode_ledger(BytesSource(encode_ledger(ledger)), DEFAULT_LIMITS)


def test_ledger_4_has_restore_levels():
    """Schema 4 is read, its one field kept as it is, and never written."""
    found = decode(
        a_ledger(schema_version=4, groups=[a_group(restore_level="turn"), a_group("g2", restore_level=None)])
    )

    assert ["turn", None] == [group.restore_level for group in found.groups]
    assert "groups[0] (group g1).restore_level" == only_defect(a_ledger(schema_version=4)).location
    with pytest.raises(ValueError, match="only ledger schema 3 is written"):
        encode_ledger(found)
    assert "groups[0] (group g1).restore_level" == only_defect(a_ledger(groups=[a_group(restore_level=None)])).location


@pytest.mark.parametrize(
    ("changes", "location"),
    [
        ({"extra": 1}, "extra"),
        ({"batch_shortfall": {"4": 1}}, "batch_shortfall.4"),
        ({"batch_shortfall": {4: -1}}, "batch_shortfall.4"),
        ({"batch_shortfall": {-4: 1}}, "batch_shortfall.-4"),
        ({"sampler_stamps_target_steps": 1}, "sampler_stamps_target_steps"),
        ({"groups": {}}, "groups"),
        ({"groups": [a_group(), 5]}, "groups[1]"),
        ({"groups": [a_group(group_id=5)]}, "groups[0].group_id"),
        ({"groups": [a_group("")]}, "groups[0] (group ).group_id"),
        ({"groups": [a_group(), a_group("g2", priority=1)]}, "groups[1] (group g2).priority"),
        ({"groups": [a_group(target_step=True)]}, "groups[0] (group g1).target_step"),
        ({"groups": [a_group(target_step=1.0)]}, "groups[0] (group g1).target_step"),
        ({"groups": [a_group(status="finalized")]}, "groups[0] (group g1).status"),
        ({"groups": [a_group(prompt_ref={"sample_id": "7"})]}, "groups[0] (group g1).prompt_ref.task_name"),
        ({"groups": [a_group(siblings=[{"generation_index": 0, "attempts": []}])]}, "groups[0] (group g1).siblings.0.attempts"),
        ({"groups": [a_group(siblings=())]}, "groups[0] (group g1).siblings"),
        ({"groups": [a_group(**{"\x1b[31m": 1})]}, "groups[0] (group g1).\\x1b[31m"),
        ({"groups": [{**a_group(), 5: 1}]}, "groups[0] (group g1).5"),
    ],
)  # fmt: skip
def test_wrong_fields_are_named(changes, location):
    """Rule 48: missing, unknown or wrong, with the group's id in the place."""
    assert location == only_defect(a_ledger(**changes)).location


def test_receipts_may_not_leave_out_what_they_may_on_the_wire():
    """Every field must be present, nullable ones as null, in both places of completion receipts."""
    short = {key: value for key, value in COMPLETION.items() if key != "terminal_model_call_id"}
    tree = a_ledger(pending_completed_execution_acknowledgements=[{"receipt": short, "agent_name": "agent"}])
    tree["groups"][0]["siblings"][0]["attempts"][0]["completion_receipt"] = short

    assert [
        "groups[0] (group g1).siblings.0.attempts.0.completion_receipt.terminal_model_call_id",
        "pending_completed_execution_acknowledgements.0.receipt.terminal_model_call_id",
    ] == [defect.location for defect in refusal(tree).defects]


def test_all_defects_are_told():
    """One reading gives the whole list."""
    groups = [a_group(f"g{index}", target_step=-1) for index in range(5)]

    assert 5 == len(refusal(a_ledger(groups=groups)).defects)


@pytest.mark.parametrize(
    ("receipt", "message"),
    [
        ({"a": [float("nan")]}, "`groups.0.siblings.0.attempts.0.receipt.a.0` is a number that is not finite"),
        ({"a": b"x"}, "receipt.a` is an object made by `_codecs.encode`, where only plain values are legal"),
        ({"a": Global("_codecs", "encode")}, "receipt.a` is the global `_codecs.encode`"),
        ({"a": Call(Global("_codecs", "encode"), (), appended=[1])}, "is an object made by"),
    ],
)
def test_only_plain_values(receipt, message):
    """A receipt is opaque, but it is still data."""
    tree = a_ledger()
    tree["groups"][0]["siblings"][0]["attempts"][0]["receipt"] = receipt
    defect = only_defect(tree)

    assert message in defect.message
    assert defect.location.startswith("groups[0] (group g1).siblings.0.attempts.0.receipt.a")


def test_code_is_named_and_not_run():
    """A pickle that would call something is refused by the name it would look up."""
    pickle = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."
    with pytest.raises(DefectError) as caught:
        decode_ledger(BytesSource(write_torch_zip(pickle)), DEFAULT_LIMITS)

    said = "pickle names a global ckptctl does not know: loading it would import and may call `posix.system`"
    assert (Defect(said, "offset 2"),) == caught.value.defects


@pytest.mark.parametrize("tree", [[], None, "text", Call(Global("_codecs", "encode"), ("a", "latin1"))])
def test_the_top_level_is_a_mapping(tree):
    """Anything else is said to be what it is."""
    assert "the ledger must be a mapping" in only_defect(tree).message


@pytest.mark.parametrize("number", [None, True, "3", 3.0])
def test_a_ledger_without_a_number(number):
    """The number is an int, or the file is damaged."""
    assert "schema_version" == only_defect(a_ledger(schema_version=number)).location


def old_group(**changes: object) -> dict:
    group = {key: value for key, value in a_group(**changes).items() if key != "resolved_agent_name"}
    attempt = {key: value for key, value in OPEN.items() if key != "completion_receipt"}
    return {**group, "siblings": [{"generation_index": 0, "attempts": [attempt]}]}


def with_uuid(attempt: dict) -> dict:
    return {**attempt, "attempt_uuid": b"0123456789abcdef"}


BEFORE = {
    key: value
    for key, value in a_ledger(groups=[old_group()]).items()
    if key != "pending_completed_execution_acknowledgements"
}
UUID_SIBLINGS = [{"generation_index": 0, "attempts": [with_uuid({"status": "sealed"})]}]
TRANSITIONAL = [{"generation_index": 0, "attempts": [with_uuid(OPEN)]}]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"schema_version": 2, "groups": [{"siblings": UUID_SIBLINGS}]}, "withdrawn line"),
        ({"schema_version": 2, "groups": [], "open_train_step": None}, "withdrawn line"),
        ({"schema_version": 2, "groups": []}, "ledger 2 of the rollout-only main branch"),
        (a_ledger(groups=[a_group(siblings=TRANSITIONAL)]), "transitional ledger 3"),
        (BEFORE, "ledger 3 without acknowledgements"),
        ({**BEFORE, "groups": []}, "ledger 3 without acknowledgements"),
        ({"schema_version": 3, "groups": [{"group_id": "g", "segments": []}], "compactions": []}, "another ledger 3"),
        (a_ledger(schema_version=1), "ledger schema 1 is unknown"),
        (a_ledger(schema_version=5), "ledger schema 5 is unknown"),
    ],
)
def test_other_ledgers_are_recognised(tree, words):
    """A ledger of another line is not damaged: it could not be read."""
    error = refusal(tree)

    assert error.is_unsupported
    assert words in error.defects[0].message
    assert ("schema_version", "3 or 4") == (error.defects[0].location, error.defects[0].expected)


@pytest.mark.parametrize(
    ("tree", "location"),
    [
        ({**BEFORE, "groups": [a_group()]}, "pending_completed_execution_acknowledgements"),
        ({**BEFORE, "extra": 1}, "pending_completed_execution_acknowledgements"),
        ({"schema_version": 3, "groups": [7]}, "groups[0]"),
        ({"schema_version": 3, "groups": [{"siblings": [7]}]}, "groups[0].siblings.0"),
    ],
)
def test_near_misses_are_damage(tree, location):
    """Only whole shapes are another ledger's."""
    error = refusal(tree)

    assert not error.is_unsupported
    assert location in [defect.location for defect in error.defects]


def test_receipts_that_cannot_be_read_are_not_written():
    """Writers refuse what readers would."""
    ledger = decode(a_ledger())
    ledger.groups[0].siblings[0].current.receipt["odd"] = float("inf")

    with pytest.raises(ValueError, match="not finite"):
        encode_ledger(ledger)
