"""The model ledger's folder: the published example byte for byte, custody lines, refusals at commit."""

import json
from dataclasses import replace

import pytest

from ckptctl.domain.canonical import EMPTY_LIST_DIGEST, roots_digest
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import Execution
from ckptctl.domain.rows import LineageRow
from ckptctl.formats.lineage import build_model_artifacts, decode_lineage, encode_lineage_line
from ckptctl.formats.participant_files import continuation_rows, decode_model_manifest
from tests.unit.formats.participants import CAPTURE_KEY, a_boundary, a_custody_file, a_model


@pytest.mark.parametrize("column", ["weight_version", "prev_len", "delta_len", "cum_len"])
def test_a_custody_line_counts_nothing_below_zero(column):
    """It is no line of ours; whatever it means, it cannot be compared with a staged row."""
    with pytest.raises(DefectError):
        decode_lineage(json.dumps({"model_call_id": "c", column: -1}).encode() + b"\n")


def test_model_of_the_published_example():
    """Lineage member, tar, both indexes, roots digest and manifest of the worked example have their sizes and digests."""
    built = a_model()
    custody = a_custody_file()

    assert (202, "5dcc17262bb4d787d91e5fcaa32cfa2d5b338c80949811b4fb67d218926780ae") == (
        len(custody),
        sha256_hex(custody),
    )
    assert "model-ledger/policy_model" == built.folder
    assert {
        "lineage-part-000000.tar": (10240, "750bf31a56751e7b937d5c2c71f9d372ab592139fe3da95878a0ba6ccffaf3b5"),
        "lineage-index.jsonl": (194, "02670aa26b89f37ab3c7b4cdf9a21fc44092d5b3f365a4b8c9dc54f78e7467ea"),
        "storage-references.jsonl": (402, "2bf915a54a329b004b03c20dccedadddeb9beabb488f4c667686447df41e7052"),
        "manifest.json": (1200, "2c44ac8d7c784a727d388b7014caa95b1beca55c40c90a0d9631f2b2f7323ef5"),
    } == {name: (len(data), sha256_hex(data)) for name, data in built.files}
    manifest = decode_model_manifest(built.files[-1][1])
    assert "47d8e9244c43a306558c98db2e8a777b7ed3744af7922bb648fa7e3bc2ec6bb2" == manifest.continuation_roots_sha256
    assert manifest.continuation_roots_sha256 == roots_digest(continuation_rows([a_boundary()]))
    assert (1, 2, 0, 1) == (
        built.reply.rollouts,
        built.reply.rows,
        built.reply.excluded_tombstoned,
        built.reply.excluded_inactive,
    )
    assert built.reply.storage_reference_index == manifest.storage_reference_index


def test_a_model_without_roots():
    """Nothing to continue is no archive, two empty indexes and the digest of the empty list."""
    tombstone = Execution(rollout_id="g1_g0", attempt_index=0)
    built = build_model_artifacts("ck-1", "policy_model", [], {"g1_g0": a_custody_file()}, [tombstone], [], 1)
    manifest = decode_model_manifest(built.files[-1][1])

    assert ["lineage-index.jsonl", "storage-references.jsonl", "manifest.json"] == [name for name, _ in built.files]
    assert (EMPTY_LIST_DIGEST, 0, 0) == (manifest.continuation_roots_sha256, manifest.rollout_count, manifest.row_count)
    assert ([tombstone], 1) == (manifest.tombstones, built.reply.excluded_tombstoned)


def test_custody_files_are_stored_as_they_are():
    """A custody file is kept byte for byte, odd spacing and columns that nobody uses included; blank lines are no rows."""
    odd = b'{ "model_call_id" : "call-9", "other": {"deep": [1, 2.50]}, "staging_key":"k" }\n\n'
    built = build_model_artifacts("ck-1", "m", continuation_rows([a_boundary()]), {CAPTURE_KEY: odd}, [], [], 0)

    assert odd in dict(built.files)["lineage-part-000000.tar"]
    assert b'"rows":1' in dict(built.files)["lineage-index.jsonl"]


def test_a_root_needs_its_boundary_row():
    """Commit is refused when a root has no custody file, or not exactly one row for its boundary call."""
    roots = continuation_rows([a_boundary()])
    with pytest.raises(DefectError, match="`g7_g0-a1` has no lineage file"):
        build_model_artifacts("ck-1", "m", roots, {}, [], [], 0)
    for rows, count in ((b"", 0), (a_custody_file() * 2, 2)):
        with pytest.raises(DefectError, match=f"boundary call `call-9` of `g7_g0-a1` has {count} rows"):
            build_model_artifacts("ck-1", "m", roots, {CAPTURE_KEY: rows}, [], [], 0)


def test_lines_as_written_and_otherwise():
    """A compact sorted line and the same with other spacing or order are the same row."""
    columns = {"model_call_id": "c", "staging_chain": ["a", "b"], "weight_version": 3, "admitted_at": 1.5, "zz": None}
    written = encode_lineage_line(columns)
    rows = decode_lineage(written + json.dumps(dict(reversed(columns.items()))).encode())

    assert LineageRow("c", staging_chain=("a", "b"), weight_version=3) == rows[0] == rows[1]


def test_failure_rows_have_few_columns():
    """A failed call leaves a row with its id and the reason."""
    (row,) = decode_lineage(b'{"failure_reason":"timeout","model_call_id":"c"}\n')

    assert ("timeout", None, None) == (row.failure_reason, row.staging_key, row.staging_chain)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"staging_key":"k"}', "line 2: `model_call_id` is missing"),
        (b'{"model_call_id":"c","model_call_id":"d"}', "line 2: the key `model_call_id` occurs twice"),
        (b'{"model_call_id":"c","x":{"y":1,"y":2}}', "line 2: the key `y` occurs twice in `x`"),
        (b'{"model_call_id":"c","x":NaN}', "line 2: `x` is NaN"),
        (
            b'{"model_call_id":"c","weight_version":true}',
            "line 2: `weight_version` must be an integer or null, found true",
        ),
        (b'{"model_call_id":"c","staging_chain":[1]}', "line 2: `staging_chain[0]` must be text, found int"),
        (b'{"model_call_id":"c","staging_chain":"k"}', 'line 2: `staging_chain` must be a list or null, found "k"'),
        (b'{"model_call_id":"c","x":' + b"[" * 70 + b"]" * 70 + b"}", "line 2: is nested deeper than 64 levels"),
        (b"[]", "line 2: top level must be an object"),
        (b'{"a\xff":1}', "line 2: is not UTF-8"),
        (b'{"a":"\\ud800"}', "line 2: "),
        (b"x", "line 2: is not JSON"),
    ],
)
def test_bad_lines_are_named(line, message):
    """A line that is no strict JSON object with the columns' types is refused with its number."""
    with pytest.raises(DefectError) as caught:
        decode_lineage(b'{"model_call_id":"a"}\n' + line + b"\n")

    assert caught.value.defects[0].message.startswith(message)


def test_bad_lines_are_listed_up_to_a_limit():
    """A custody file in which every line is bad does not give a finding per line, and a long line is refused unread."""
    limits = replace(DEFAULT_LIMITS, findings_shown=2, json_line_bytes=30)
    with pytest.raises(DefectError) as caught:
        decode_lineage(b"x\n" * 9, limits)
    with pytest.raises(DefectError, match="line 1: exceeds the limit of 30 bytes"):
        decode_lineage(encode_lineage_line({"model_call_id": "c" * 30}), limits)

    assert 2 == len(caught.value.defects)
