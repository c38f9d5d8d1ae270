"""Staged rows as tensors: round trip, required fields, and what no digest can cover."""

import pytest

from ckptctl.domain.dataplane import STAGED_FIELDS, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.staged import ROUTES_ENVELOPE, ROUTES_NESTED, extras_to_hash, row_extras_digest
from ckptctl.formats.staged_row import (
    call_digest,
    decode_staged_row,
    encode_staged_row,
    extras_digest,
    row_tags,
    stage_call,
)
from tests.unit.formats.planes import ints, number


def a_row(**changes):
    facts = {
        "rollout_id": "g7_g0",
        "model_call_id": "call-5",
        "token_ids": [11, 12, 900],
        "token_mask": [0, 0, 1],
        "logprobs": [0, 0, -0.5],
        "weight_version": 3,
    }
    return stage_call(**(facts | changes))


def octets(data: bytes) -> TensorValue:
    return TensorValue("uint8", (len(data),), data)


def test_a_row_has_the_required_fields_in_order():
    """24 fields of the documented dtypes and ranks; absent texts and hashes have their stand-ins."""
    fields = encode_staged_row(a_row())

    assert list(STAGED_FIELDS.items()) == [(name, (value.dtype, len(value.shape))) for name, value in fields.items()]
    assert (b"\0", b"\0") == (fields["parent_call_id_utf8"].data, fields["parent_call_id_present"].data)
    assert b"null" == fields["extras_metadata_json"].data


@pytest.mark.parametrize(
    "row",
    [
        a_row(),
        a_row(
            rollout_id="é_g0-a1", parent=a_row(), prefix_ids=[11, 12, 900], extras={"b": [1, -2.5], "a": {"é": None}}
        ),
        a_row(routed_experts=TensorValue("int32", (3, 1, 2), bytes(24)), routed_experts_encoding=ROUTES_ENVELOPE),
        a_row(
            routed_experts=TensorValue("int16", (3, 1, 1), bytes(6)),
            routed_experts_encoding=ROUTES_NESTED,
            extras={"k": 1},
        ),
    ],
    ids=["root", "child", "envelope", "nested"],
)
def test_a_row_comes_back(row):
    """Encoding and decoding keep every value, and the digests still hold."""
    found = decode_staged_row(encode_staged_row(row))

    assert row == found
    assert (row.digest, row.extras_digest) == (call_digest(found), extras_digest(extras_to_hash(found)))


def test_tags_are_those_of_nemo_rl():
    """The nine tags; the digest in hex, the absent parent as null."""
    row = a_row()

    assert {
        "rollout_id": "g7_g0",
        "model_call_id": "call-5",
        "parent_call_id": None,
        "prev_len": 0,
        "delta_len": 3,
        "cum_len": 3,
        "weight_version": 3,
        "digest": row.digest,
        "schema_version": 2,
    } == row_tags(row)


def test_attachments_are_listed():
    """Fields of other names are another writer's, not a defect."""
    assert ("aux", "more") == decode_staged_row(
        encode_staged_row(a_row()) | {"more": number(1), "aux": number(2)}
    ).unknown_fields


def test_every_missing_or_wrong_field_is_named():
    """One defect per field, not only the first."""
    fields = encode_staged_row(a_row())
    del fields["prev_len"]
    fields |= {
        "capture_mode": ints(1),
        "digest_bytes": TensorValue("uint8", (32,), bytes(31)),
        "token_ids_delta": TensorValue("int32", (1,), bytes(4)),
    }

    with pytest.raises(DefectError) as caught:
        decode_staged_row(fields)

    assert ["token_ids_delta", "capture_mode", "prev_len", "digest_bytes"] == [
        defect.location for defect in caught.value.defects
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_ids_delta", ints(1, -2, 3)),
        ("token_mask_delta", TensorValue("float32", (1,), b"\0\0\xc0\x7f")),
        ("generation_logprobs_delta", TensorValue("float32", (1,), b"\0\0\x80\xff")),
        ("rollout_id_utf8", octets(b"\xff")),
        ("capture_mode", number(2)),
        ("prev_len", number(-1)),
        ("routed_experts_encoding", number(3)),
        ("routed_experts_encoding", number(1)),
        ("digest_bytes", octets(bytes(31))),
        ("chain_hash_bytes", octets(b"")),
        ("extras_metadata_json", octets(b"[1]")),
        ("extras_metadata_json", octets(b'{"a":NaN}')),
        ("extras_metadata_json", octets(b'{"a":1,"a":2}')),
        ("extras_metadata_json", octets(b"")),
    ],
)
def test_what_cannot_be_digested_is_refused(field, value):
    """Each field that must be readable says why it is not, in its own name."""
    with pytest.raises(DefectError) as caught:
        decode_staged_row(encode_staged_row(a_row()) | {field: value})

    assert caught.value.defects[0].location.split(":")[0] in (field, "routed_experts")


@pytest.mark.parametrize(
    ("routes", "encoding"),
    [
        (TensorValue("int64", (3, 1, 1), bytes(24)), ROUTES_ENVELOPE),
        (TensorValue("int8", (3, 1, 1), bytes(3)), ROUTES_NESTED),
        (TensorValue("int8", (3,), bytes(3)), ROUTES_ENVELOPE),
        (TensorValue("int8", (3, 0, 1), b""), ROUTES_ENVELOPE),
        (TensorValue("int8", (3, 1, 1), bytes(4)), ROUTES_ENVELOPE),
    ],
)
def test_routes_of_another_form_are_refused(routes, encoding):
    """Dtype, rank and bytes of the optional field."""
    with pytest.raises(DefectError) as caught:
        decode_staged_row(
            encode_staged_row(a_row()) | {"routed_experts": routes, "routed_experts_encoding": number(encoding)}
        )

    assert "routed_experts" == caught.value.defects[0].location


def test_a_big_endian_machine_swaps_its_words(monkeypatch):
    """Stored columns are little-endian whatever the machine is; pretending shows that both ways are swapped."""
    row = a_row(token_ids=[1, 2, 3])  # swapped, these are no negative numbers
    data = encode_staged_row(row)["token_ids_delta"].data
    monkeypatch.setattr("sys.byteorder", "big")
    fields = encode_staged_row(row)

    assert data == b"".join(fields["token_ids_delta"].data[at : at + 8][::-1] for at in range(0, len(data), 8))
    assert row == decode_staged_row(fields)
    assert call_digest(row) != row.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parent_call_id_present": TensorValue("bool", (), b"\x02")}, "neither true nor false"),
        ({"parent_call_id_utf8": octets(b"\x01")}, "not one NUL byte"),
        ({"parent_call_id_utf8": octets(b"\x00\x00")}, "not one NUL byte"),
    ],
)
def test_bytes_that_no_digest_covers_have_one_form(changes, message):
    """Else a changed bit of them would not show."""
    with pytest.raises(DefectError, match=message):
        decode_staged_row(encode_staged_row(a_row()) | changes)


def test_a_row_without_its_routes():
    """Where routes cannot be read the rest of the row still can; what it lacks is told when the extras are digested."""
    routes = TensorValue("int16", (3, 1, 1), bytes(6))
    row = a_row(routed_experts=routes, routed_experts_encoding=ROUTES_ENVELOPE)
    fields = {name: value for name, value in encode_staged_row(row).items() if name != "routed_experts"}
    found = decode_staged_row(fields, with_routes=False)

    assert (None, ROUTES_ENVELOPE, row.digest) == (
        found.routed_experts,
        found.routed_experts_encoding,
        call_digest(found),
    )
    with pytest.raises(ValueError, match="no routed experts"):
        row_extras_digest(found)
