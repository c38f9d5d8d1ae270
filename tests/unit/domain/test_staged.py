"""The digests of staged rows against published vectors, and their structural rules."""

from array import array
from dataclasses import replace

import pytest

from ckptctl.domain import staged
from ckptctl.domain.dataplane import TensorValue

NO_EXTRAS = "a1edc33c107616cf344faf0103daa025cfb125f8e1c784ae5f6a49faf2b768b6"


def a_root() -> staged.StagedRow:
    return staged.stage_call(
        rollout_id="g7_g0",
        model_call_id="call-5",
        token_ids=[11, 12, 13, 900],
        token_mask=[0, 0, 0, 1],
        logprobs=[0, 0, 0, -0.5],
        weight_version=3,
    )


def a_child() -> staged.StagedRow:
    return staged.stage_call(
        rollout_id="g7_g0-a1",
        model_call_id="call-8",
        token_ids=[14, 901],
        token_mask=[0, 1],
        logprobs=[0, -0.25],
        weight_version=3,
        parent=a_root(),
        prefix_ids=[11, 12, 13, 900],
    )


def test_digests_of_a_root_call_are_the_published_ones():
    """The root vector: every digest and the length of the payload."""
    root = a_root()

    assert NO_EXTRAS == root.extras_digest
    assert "f7b1533a1b6b6d0b645c1b970bcc8001445827df05b0c5e78641476aa1509856" == root.chain_hash
    assert "7ea4b135c8263c7cbcc7f941c7758ce39f7f084aa4c6ad061fb5e8992d02ccae" == root.cumulative_hash
    assert 285 == len(staged.call_payload(root))
    assert "b9caebfd8aaca3c1bac1c1d5e23d5d436c9f6f9bdc845f178ef63acf65131073" == root.digest == staged.call_digest(root)


def test_digests_of_a_child_call_are_the_published_ones():
    """The child vector, across two attempts."""
    child = a_child()

    assert ("call-5", "token_in", 4, 2, 6) == (
        child.parent_call_id,
        child.capture_mode,
        child.prev_len,
        child.delta_len,
        child.cum_len,
    )
    assert "779c6da5847bcae833691fae66a92fde58c4646ef3fb71707a5dbf7630dd1432" == child.chain_hash
    assert "551c6b7d693c0f7e8c29aab179abc08d22e87573a459a1a53f706974fd84c05d" == child.cumulative_hash
    assert 274 == len(staged.call_payload(child))
    assert "c24adf78643748ec7dab7a5f481e579198abaf630480edee33d9d4678449abfd" == child.digest


def test_columns_are_hashed_as_the_published_words():
    """Ids and log probabilities of the root, word by word, inside the payload."""
    payload = staged.call_payload(a_root())

    assert (
        bytes.fromhex("0000000000000004 000000000000000b 000000000000000c 000000000000000d 0000000000000384") in payload
    )
    assert bytes.fromhex("0000000000000004 00000000 00000000 00000000 bf000000") in payload


def test_extras_are_hashed_by_type():
    """The published extras vector, and an int that is not a float and not a bool."""
    extras = {"b": [1, -2], "a": {"on": True, "r": 0.5, "s": "é", "n": None}}

    assert "d90f5d9e038c91d4ed636bd6c10a4c5a46dbd049907d2fbd1cdb29abbf4f94bc" == staged.extras_digest(extras)
    assert 3 == len({staged.extras_digest({"x": value}) for value in (1, 1.0, True)})


@pytest.mark.parametrize("value", [2**63, float("nan"), float("inf"), b"x", {1: 2}, "\ud800", {1, 2}])
def test_extras_without_a_typed_encoding_are_refused(value):
    """What the typed encoding cannot say is an error, not another digest."""
    with pytest.raises(ValueError):
        staged.extras_digest({"x": value})


def test_deep_extras_are_refused():
    """Nesting is bounded, so that hostile extras cannot exhaust the stack."""
    value: object = None
    for _ in range(100):
        value = [value]

    with pytest.raises(ValueError, match="too deeply"):
        staged.extras_digest({"x": value})


def test_negative_zero_survives_in_the_call_digest():
    """A log probability of -0.0 is another bit pattern than 0.0."""
    row = a_root()
    other = replace(row, logprobs=array("f", [-0.0, 0, 0, -0.5]))

    assert staged.call_digest(row) != staged.call_digest(other)


def test_routed_experts_are_hashed_as_an_envelope_or_as_lists():
    """The two forms in which routes travelled, with and without other extras."""
    routes = TensorValue("int16", (2, 1, 2), bytes.fromhex("0100020003000400"))
    row = replace(a_child(), routed_experts=routes, routed_experts_encoding=staged.ROUTES_ENVELOPE)
    nested = replace(row, routed_experts_encoding=staged.ROUTES_NESTED, extras={"k": 1})
    plain = replace(row, routed_experts=None, routed_experts_encoding=staged.ROUTES_NONE, extras={"k": 1})

    assert {"routed_experts": "nrlre1:int16:2x1x2:AQACAAMABAA="} == staged.extras_to_hash(row)
    assert {"k": 1, "routed_experts": [[[1, 2]], [[3, 4]]]} == staged.extras_to_hash(nested)
    assert {"k": 1} == staged.extras_to_hash(plain)
    with pytest.raises(ValueError, match="no routed experts"):
        staged.extras_to_hash(replace(row, routed_experts=None))


def test_routes_of_no_experts_are_empty_lists():
    """A zero dimension does not make the nesting loop for ever or divide by zero."""
    row = replace(
        a_child(), routed_experts=TensorValue("int8", (2, 3, 0), b""), routed_experts_encoding=staged.ROUTES_NESTED
    )

    assert {"routed_experts": [[[], [], []], [[], [], []]]} == staged.extras_to_hash(row)


def test_a_prefix_must_be_the_parents():
    """A chain with a hole cannot be staged."""
    with pytest.raises(ValueError, match="prefix"):
        staged.stage_call(
            rollout_id="r",
            model_call_id="c",
            token_ids=[1],
            token_mask=[1],
            logprobs=[0],
            weight_version=0,
            prefix_ids=[1],
        )


def test_good_rows_have_no_structural_defect():
    """Root and child of the vectors, and a row with routes."""
    assert () == staged.structural_defects(a_root()) == staged.structural_defects(a_child())
    assert "g7_g0-a1/call-8" == a_child().key


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"schema_version": 3}, "schema_version"),
        ({"digest_version": 1}, "schema_version"),
        ({"delta_len": 3, "cum_len": 7}, "delta_len"),
        ({"token_mask": array("f", [1])}, "delta_len"),
        ({"cum_len": 9}, "cum_len"),
        ({"parent_call_id": None}, "parent_call_id"),
        ({"capture_mode": "text"}, "parent_call_id"),
        ({"chain_hash": None}, "chain_hash_present"),
        ({"cumulative_hash": None}, "chain_hash_present"),
        ({"token_mask": array("f", [0, 0.5])}, "token_mask_delta"),
        ({"logprobs": array("f", [-1, -1])}, "generation_logprobs_delta"),
        ({"routed_len": 2}, "routed_len"),
        ({"routed_experts_encoding": 1}, "routed_len"),
    ],
)
def test_each_structural_rule_names_its_place(change, place):
    """One breach, one defect with the field to look at."""
    assert [place] == [defect.location for defect in staged.structural_defects(replace(a_child(), **change))]


def test_hashes_that_are_absent_have_a_presence_byte():
    """A row of an older digest version can still be digested, to a digest that differs."""
    assert staged.call_digest(a_child()) != staged.call_digest(replace(a_child(), chain_hash=None))
