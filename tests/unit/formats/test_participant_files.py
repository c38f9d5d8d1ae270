"""Agents' and resources servers' folders: the published example byte for byte, what older writers leave out, what is refused."""

import json

import pytest

from ckptctl.domain.digest import EMPTY_SHA256, sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant_files import PendingModel
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow
from ckptctl.formats.canonical_json import decode_rows
from ckptctl.formats.participant_files import (
    agent_manifest_kind,
    build_agent_artifacts,
    build_resources_artifacts,
    continuation_rows,
    decode_agent_manifest,
    decode_boundary,
    decode_model_manifest,
    decode_resources_manifest,
    decode_session,
    encode_boundary,
    encode_session,
    model_manifest_kind,
)
from tests.unit.formats.participants import a_boundary, a_model, a_resources_server, a_session, an_agent


def sizes_and_digests(built):
    return {name: (len(data), sha256_hex(data)) for name, data in built.files}


def test_agent_of_the_published_example():
    """Record, tar, both indexes and the manifest of the worked example have their sizes and digests."""
    built = an_agent()

    assert "agent/instance-1e2e3fc8cb5412e553ec9c9bdc088de396751f77a8756c91d41ea0bf00bda230" == built.folder
    assert {
        "agent-part-000000.tar": (10240, "1e1e33d51740c42842287aabdb221260e82e45070256feb87657406dd36f5407"),
        "agent-index.jsonl": (188, "220547c52f84fe8c7d1ed6ed9c63d6318c47f33b08d3ce6e37d7bafbcaef9e0d"),
        "continuations.jsonl": (164, "9d1cf453542aa1325d176c72e5900762ee678e81959d8ab05d39f8ffb863c29d"),
        "manifest.json": (886, "fedfb5fd10b309de34001d12c2ace7e482c53a57266b54d056f134e718b56209"),
    } == sizes_and_digests(built)
    record = encode_boundary(a_boundary())
    assert (411, "2d05d2bb963e5005727cd88382d82e260871d3675b223314b4481b7510c33768") == (
        len(record),
        sha256_hex(record),
    )
    assert built.reply.manifest_digest == sha256_hex(built.files[-1][1])
    assert (1, 1, 164) == (
        built.reply.records,
        built.reply.continuation_index.records,
        built.reply.continuation_index.bytes,
    )


def test_resources_server_of_the_published_example():
    """Session file and manifest of the worked example have their sizes and digests."""
    built = a_resources_server()

    assert "resources/tools" == built.folder
    assert {
        "g7_g0.a1.json": (186, "fdec0f6684a8918dd1c5964265fe4c12e862e299fbdde9cb3c6330df5dddc7f2"),
        "manifest.json": (184, "86202255b369328a605212d03e57452e53c7716c10ae3dbf22c6ce9767542416"),
    } == sizes_and_digests(built)
    assert (1, sha256_hex(built.files[-1][1])) == (built.reply.sessions, built.reply.manifest_digest)


def test_an_agent_without_rollouts_writes_empty_indexes():
    """Nothing to save is no archive and two empty files, not a missing folder."""
    built = build_agent_artifacts("ck-1", "policy_agent", [])

    assert ["agent-index.jsonl", "continuations.jsonl", "manifest.json"] == [name for name, _ in built.files]
    assert (0, EMPTY_SHA256, 0) == (
        built.reply.records,
        built.reply.continuation_index.sha256,
        built.reply.continuation_index.bytes,
    )
    assert [] == decode_agent_manifest(built.files[-1][1]).archives


def test_a_resources_server_without_sessions_writes_a_manifest():
    """Nothing to save is a manifest that lists nothing."""
    built = build_resources_artifacts("ck-1", "tools", [])

    assert ["manifest.json"] == [name for name, _ in built.files]
    assert {} == decode_resources_manifest(built.files[-1][1]).files


def test_records_are_indexed_in_order_and_continuations_by_capture_key():
    """Index and tar are in the order of rollout and attempt, continuations in that of their capture keys; a record without a call has none."""
    records = [
        a_boundary(rollout_id="b", last_committed_model_capture_key="b"),
        a_boundary(rollout_id="a", last_committed_model_capture_key=None, last_committed_model_call_id=None),
        a_boundary(rollout_id="a.1", last_committed_model_capture_key="a.1-a1"),
    ]
    built = build_agent_artifacts("ck-1", "agent", records)
    files = dict(built.files)
    index = decode_rows(files["agent-index.jsonl"], AgentIndexRow, DEFAULT_LIMITS)
    continuations = decode_rows(files["continuations.jsonl"], ContinuationRow, DEFAULT_LIMITS)

    assert ["a.a1.json", "a.1.a1.json", "b.a1.json"] == [row.member for row in index]
    assert ["a.1-a1", "b"] == [row.capture_key for row in continuations]
    assert continuations == continuation_rows(records)
    assert (3, 2) == (built.reply.records, built.reply.continuation_index.records)


@pytest.mark.parametrize("build", [build_agent_artifacts, build_resources_artifacts])
def test_one_file_per_attempt(build):
    """Two states of one attempt are the caller's mistake."""
    item = a_boundary() if build is build_agent_artifacts else a_session()
    with pytest.raises(ValueError, match="of one attempt"):
        build("ck-1", "name", [item, item])


def test_records_read_back():
    """A record with a pending response, text in any language and nested state is read as it was written."""
    pending = PendingModel(
        model_call_id="call-9",
        response={"text": "é\u2028 \U0001f600", "n": [1, 2.5, -0.0, None, True]},
        model_server_cookies={"a": "b"},
        usage=None,
        pending_action_cursor=1,
        resource_request_id="r",
    )
    record = a_boundary(boundary_kind="pending_model", pending_model=pending, usage={"tokens": 3}, created_at=17)

    assert record == decode_boundary(encode_boundary(record))
    assert "é".encode() in encode_boundary(record)
    assert a_session() == decode_session(encode_session(a_session()))


def older(*absent, **changes):
    """A boundary record as an older agent writes it."""
    document = json.loads(encode_boundary(a_boundary())) | changes
    for key in absent:
        del document[key]
    return json.dumps(document).encode()


def test_older_records_are_filled():
    """Schema 1, an absent turn and an absent capture key are read; the key follows from the attempt when there was a call."""
    keys = ("last_committed_model_capture_key", "last_committed_model_call_id")
    with_call = decode_boundary(older("turn_index", keys[0], schema_version=1))
    without_call = decode_boundary(older(*keys))

    assert (3, "g7_g0-a1") == (with_call.turn_index, with_call.last_committed_model_capture_key)
    assert (None, None) == (without_call.last_committed_model_capture_key, without_call.last_committed_model_call_id)
    assert "g7_g0" == decode_boundary(older(keys[0], attempt_index=0)).last_committed_model_capture_key


@pytest.mark.parametrize(
    ("data", "location"),
    [
        (older("boundary_index"), "boundary_index"),
        (older("turn_index", "boundary_index"), "turn_index"),
        (older("last_committed_model_capture_key", attempt_index="1"), "attempt_index"),
        (older("last_committed_model_capture_key", rollout_id=7), "rollout_id"),
        (older(schema_version=3), "schema_version"),
        (older(resource_state_revisions={"tools": -1}), "resource_state_revisions.tools"),
        (older(more=1), "more"),
    ],
)
def test_bad_records_are_refused(data, location):
    """A record of another shape is refused by its key."""
    with pytest.raises(DefectError) as caught:
        decode_boundary(data)

    assert location in [defect.location for defect in caught.value.defects]


def test_nan_and_lists_are_no_state():
    """A record with NaN, and a session whose state is a list, are refused with the key and the value."""
    with pytest.raises(DefectError, match=r"`agent_state.x` is NaN"):
        decode_boundary(encode_boundary(a_boundary()).replace(b'"agent_state": {}', b'"agent_state": {"x": NaN}'))
    with pytest.raises(DefectError, match="`state` must be an object, found a list of 1"):
        decode_session(encode_session(a_session()).replace(b'{\n    "count": 4\n  }', b"[4]"))


def manifest_of(built):
    return json.loads(built.files[-1][1])


@pytest.mark.parametrize(
    ("decode", "built"),
    [
        (decode_agent_manifest, an_agent()),
        (decode_model_manifest, a_model()),
        (decode_resources_manifest, a_resources_server()),
    ],
)
def test_another_manifest_schema(decode, built):
    """A number that is not ours: the value when the shape is the same, else refused as unsupported, not as damaged."""
    document = manifest_of(built)
    same_shape = decode(json.dumps(document | {"schema_version": 9}).encode())
    with pytest.raises(DefectError, match="has manifest schema 9; ckptctl reads schema") as other_shape:
        decode(json.dumps(document | {"schema_version": 9, "more": 1}).encode())
    with pytest.raises(DefectError, match="`more` is not a field") as damaged:
        decode(json.dumps(document | {"more": 1}).encode())

    assert 9 == same_shape.schema_version
    assert other_shape.value.is_unsupported
    assert not damaged.value.is_unsupported


@pytest.mark.parametrize(
    ("decode", "document", "message"),
    [
        (
            decode_agent_manifest,
            {"schema_version": 1, "files": {}},
            "has manifest schema 1 with one file per record; ckptctl reads schema 2",
        ),
        (
            decode_model_manifest,
            {"schema_version": 2, "rollouts": {}},
            "has manifest schema 2 with one file per record; ckptctl reads schema 3",
        ),
        (decode_model_manifest, {"format": "ours"}, "has neither `archives` nor `rollouts`"),
    ],
)
def test_other_layouts_are_unsupported(decode, document, message):
    """Layouts that servers still restore, or that a framework owns, are recognised and refused without calling them damaged."""
    with pytest.raises(DefectError, match=message) as caught:
        decode(json.dumps(document).encode())

    assert caught.value.is_unsupported


def test_kinds_of_manifests():
    """The telling keys decide, before the number is looked at."""
    assert ["supported", "older", "supported"] == [
        agent_manifest_kind(raw) for raw in ({}, {"files": 1}, {"files": 1, "archives": 1})
    ]
    assert ["foreign", "older", "supported"] == [
        model_manifest_kind(raw) for raw in ({}, {"rollouts": 1}, {"archives": 1})
    ]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "..", "a\x1b", "/x"])
def test_files_stay_in_their_folder(name):
    """No manifest can name a file or an archive outside its own folder."""
    resources = manifest_of(a_resources_server())
    resources["files"] = {name: "0" * 64}
    agent = manifest_of(an_agent())
    agent["archives"][0]["name"] = name

    with pytest.raises(DefectError, match="must be a plain file name"):
        decode_resources_manifest(json.dumps(resources).encode())
    with pytest.raises(DefectError, match="must be a plain file name"):
        decode_agent_manifest(json.dumps(agent).encode())
