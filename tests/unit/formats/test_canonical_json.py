"""Strict JSON: what is refused, where, and in which words; what is accepted although it looks odd."""

import json
from dataclasses import replace

import pytest

from ckptctl.domain.document import Document, FileName
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.domain.participant_files import BoundaryRecord, ResourcesManifest
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageRow
from ckptctl.formats import canonical_json as json_module
from ckptctl.formats import document_defects as defects_module
from ckptctl.formats.canonical_json import (
    at_line,
    convert_row,
    decode_document,
    decode_rows,
    decode_value,
    load_json,
    load_object,
)
from tests.unit.formats.participants import a_boundary

DIGEST = "2d05d2bb963e5005727cd88382d82e260871d3675b223314b4481b7510c33768"
ROW = (
    b'{"rollout_id":"g7_g0","attempt_index":1,"archive":"agent-part-000000.tar","member":"g7_g0.a1.json",'
    b'"sha256":"' + DIGEST.encode() + b'","bytes":411}\n'
)


def refusal(data, limits=DEFAULT_LIMITS, **options) -> Defect:
    with pytest.raises(DefectError) as caught:
        load_json(data, limits, **options)
    return caught.value.defects[0]


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b'{"a":{"b":1,"b":2}}', "the key `b` occurs twice in `a`", "line 1 column 13"),
        (b'{"k":1,\n "k":1}', "the key `k` occurs twice in the top-level object", "line 2 column 2"),
        (b'[{"b":[0,{"c":1,"c":2}]}]', "the key `c` occurs twice in `0.b.1`", "line 1 column 17"),
        (b'{"\\u0061":1,"a":2}', "the key `a` occurs twice in the top-level object", "line 1 column 13"),
        (b'{"a":[1,{"b":NaN}]}', "`a.1.b` is NaN, which is no JSON number", "line 1 column 14"),
        (b'{"a":-Infinity}', "`a` is -Infinity, which is no JSON number", "line 1 column 6"),
        (b'{"a":1e999}', "`a` is beyond the largest number", "line 1 column 6"),
        (b'{"a":12345678901234567890}', "`a` has more than 19 digits", "line 1 column 6"),
        (b'{"x":"\\ud800"}', '"\\ud800" is no Unicode text (half a surrogate pair)', "line 1 column 6"),
        (b'{"\n\xff":1}', "is not UTF-8", "line 2 column 1"),
        (b"", "is not JSON: expecting value", "line 1 column 1"),
        (b'{"a":1}x', "is not JSON: extra data", "line 1 column 8"),
        (b'{"a":"\x01"}', "is not JSON: invalid control character at", "line 1 column 7"),
        (b"[01]", "is not JSON: expecting ',' delimiter", "line 1 column 3"),
        (b'}:,]"\\udc00"', '"\\udc00" is no Unicode text (half a surrogate pair)', "line 1 column 5"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark", "line 1 column 1"),
        (b"[" * 65 + b"]" * 65, "is nested deeper than 64 levels", "line 1 column 65"),
        (b"[" * 100_000, "is nested deeper than 64 levels", "line 1 column 65"),
        (
            b'{"a\\u001b[2J":1,"a\\u001b[2J":1}',
            "the key `a\\x1b[2J` occurs twice in the top-level object",
            "line 1 column 17",
        ),
    ],
)
def test_refuses_with_place(data, message, place):
    """Each thing that the field's strict reading forbids is named together with its place, in text that is safe to print."""
    found = refusal(data)

    assert (message, place) == (found.message, found.location)
    assert found.message.isprintable()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b' [1 , -0, 1.5e3, "\\u0000", null, true, {}] ', [1, 0, 1500.0, "\0", None, True, {}]),
        (b"9999999999999999999", 9999999999999999999),
        (b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64)),
        (b'"' + b"{" * 500 + b'"', "{" * 500),
        ("é\u2028".join('""').encode(), "é\u2028"),
    ],
)
def test_accepts_what_is_json(data, value):
    """Whatever JSON allows and the limits admit is read as Python's own parser reads it."""
    assert value == load_json(data, DEFAULT_LIMITS)


def test_size_limit_is_checked_before_anything_is_read():
    """A document above the limit is refused by its size alone, and a caller may set another limit."""
    small = replace(DEFAULT_LIMITS, json_document_bytes=4)

    assert "exceeds the limit of 4 bytes" == refusal(b"[1,2]", small).message
    assert "exceeds the limit of 3 bytes" == refusal(b"[1,2]", small, max_bytes=3).message
    assert [1, 2] == load_json(b"[1,2]", small, max_bytes=5)


def test_number_of_values_is_bounded():
    """A document of very many values is refused before it is built, and commas inside text do not count."""
    limits = replace(DEFAULT_LIMITS, json_values=3)

    assert "has more than 3 values" == refusal(b"[1,2,3]", limits).message
    assert [",,,,"] == load_json(b'[",,,,"]', limits)


@pytest.mark.parametrize(
    "data", [b'{"a":"' + b'\\"' * 200_000, b"[" * 200_000, b'"' * 200_001, b"{:,}" * 50_000, b'{"a' + b"\\" * 99_999]
)
def test_hostile_text_is_refused_in_linear_time(data):
    """Unterminated text, unbalanced brackets and stray punctuation give a defect, however long they are."""
    assert refusal(data, replace(DEFAULT_LIMITS, json_values=1)).message


def test_top_level_must_be_an_object():
    """A document that is a list or a number is refused as such."""
    with pytest.raises(DefectError, match="top level must be an object"):
        load_object(b"[]", DEFAULT_LIMITS)


def document_refusals(data, model, limits=DEFAULT_LIMITS):
    with pytest.raises(DefectError) as caught:
        decode_document(data, model, limits)
    return {defect.location: defect for defect in caught.value.defects}


def test_every_wrong_field_is_named_at_once():
    """All problems of a document are listed, each with its dotted path, the rule and the value found."""
    record = json.loads(json.dumps(a_boundary().model_dump(mode="json")))
    record |= {
        "schema_version": True,
        "rollout_id": "..\x1b",
        "attempt_index": -1,
        "boundary_index": 1.0,
        "boundary_kind": "other",
        "pending_model": {},
        "output_items": [1],
        "last_committed_model_call_id": "",
        "resource_state_revisions": {"tools": True},
        "agent_state": [],
        "created_at": "now",
        "more": 1,
    }
    del record["turn_index"]
    found = document_refusals(json.dumps(record).encode(), BoundaryRecord)

    texts = {place: defect.message for place, defect in found.items() if not place.startswith("pending_model.")}
    assert {
        "schema_version": "`schema_version` must be an integer, found true",
        "rollout_id": '`rollout_id` must match [A-Za-z0-9][A-Za-z0-9._-]*, found "..\\x1b"',
        "attempt_index": "`attempt_index` must be at least 0, found -1",
        "boundary_index": "`boundary_index` must be an integer, found 1.0",
        "turn_index": "`turn_index` is missing",
        "boundary_kind": "`boundary_kind` must be 'pending_model' or 'turn_complete', found \"other\"",
        "output_items.0": "`output_items.0` must be an object, found 1",
        "last_committed_model_call_id": '`last_committed_model_call_id` must be non-empty text, found ""',
        "resource_state_revisions.tools": "`resource_state_revisions.tools` must be an integer, found true",
        "agent_state": "`agent_state` must be an object, found an empty list",
        "created_at": '`created_at` must be a number or an integer, found "now"',
        "more": "`more` is not a field of this format",
    } == texts
    assert "`pending_model.response` is missing" == found["pending_model.response"].message


@pytest.mark.parametrize("number", ["true", "1.0", "2", '"1"', "null"])
def test_a_fixed_number_is_that_integer_and_nothing_equal_to_it(number):
    """`true` and `1.0` equal 1 in Python and are still not the integer 1 of a format."""
    data = f'{{"schema_version":{number},"relative_path":"a/b","sha256":"{DIGEST}","records":0,"bytes":0}}'.encode()

    assert ["schema_version"] == list(document_refusals(data, ArtifactReference))


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("", "must be a relative path, not empty"),
        ("/a", "must be relative to the snapshot"),
        ("a/../b", "must not contain `..`"),
        ("..", "must not contain `..`"),
        ("a\nb", "must not contain control characters"),
    ],
)
def test_paths_stay_inside(path, rule):
    """A path that leaves the snapshot is refused where it is decoded, and the refusal shows the path."""
    data = json.dumps({"schema_version": 1, "relative_path": path, "sha256": DIGEST, "records": 0, "bytes": 0}).encode()
    found = document_refusals(data, ArtifactReference)["relative_path"]

    assert f"`relative_path` {rule}, found " in found.message
    assert found.message.isprintable()


def test_other_rules_have_words_too():
    """Length limits, rules over two fields, null-only and keys of a mapping are told apart."""
    receipt = {
        "rollout_id": "r",
        "attempt_index": 0,
        "execution_generation": 0,
        "result_identity": "x" * 513,
        "result_digest": DIGEST,
    }
    found = document_refusals(json.dumps(receipt).encode(), CompletionReceipt)
    both = document_refusals(
        json.dumps(
            receipt | {"execution_generation": 1, "result_identity": "x", "terminal_model_call_id": "c"}
        ).encode(),
        CompletionReceipt,
    )
    manifest = {"schema_version": 2, "checkpoint_id": "c" * 129, "server_name": "s", "files": {"../x": DIGEST}}
    names = document_refusals(json.dumps(manifest).encode(), ResourcesManifest)

    assert "`execution_generation` must be at least 1, found 0" == found["execution_generation"].message
    assert found["result_identity"].message.startswith("`result_identity` must be text of at most 512 characters")
    assert "come both or not at all" in both[""].message
    assert 'must be a plain file name, found "../x"' in names["files.../x"].message
    assert "1 to 128 characters" in names["checkpoint_id"].message


def test_unusual_rules_keep_the_words_of_the_library():
    """A rule that has no words of ours is still reported, safely."""

    class Odd(Document):
        names: frozenset[str]
        limit: int

    class Short(Document):
        name: FileName

    from typing import Annotated

    from pydantic import Field

    class Bounded(Document):
        small: Annotated[int, Field(le=3)]
        long: Annotated[str, Field(min_length=2)]

    assert "must be valid (" in document_refusals(b'{"names":1,"limit":1}', Odd)["names"].message
    assert "`name` must be a plain file name" in document_refusals(b'{"name":".."}', Short)["name"].message
    found = document_refusals(b'{"small":4,"long":"x"}', Bounded)
    assert "`small` must be at most 3, found 4" == found["small"].message
    assert '`long` must be text of at least 2 characters, found "x"' == found["long"].message


def test_lists_become_tuples_where_a_class_has_them():
    """A class with tuples takes JSON lists, and its other problems are told as those of any class."""

    class WithTuples(Document):
        names: tuple[str, ...]
        count: int

    found = document_refusals(b'{"names":["a",1],"count":true}', WithTuples)

    assert ("a", "b") == decode_document(b'{"names":["a","b"],"count":1}', WithTuples, DEFAULT_LIMITS).names
    assert {"names.1", "count"} == set(found)
    assert {"names"} == set(document_refusals(b'{"names":"a","count":1}', WithTuples))


def test_very_many_problems_are_counted_not_listed(monkeypatch):
    """A document in which everything is wrong gives one defect, since listing would cost more than the document."""
    monkeypatch.setattr(defects_module, "MANY_ERRORS", 2)
    monkeypatch.setattr(json_module, "MANY_ERRORS", 2)
    data = b'{"schema_version":2,"checkpoint_id":"c","server_name":"s","files":{"a":1,"b":2,"c":3}}'
    found = document_refusals(data, ResourcesManifest)

    assert "3 fields are missing, unknown or wrong" == found[""].message


def test_a_part_of_a_document_keeps_its_path():
    """Defects of a nested part carry the path at which it lies."""
    with pytest.raises(DefectError) as caught:
        decode_value({"schema_version": 1}, ArtifactReference, "outer.inner")

    assert "outer.inner.relative_path" == caught.value.defects[0].location


def test_rows_are_read_in_order_and_blank_lines_are_skipped():
    """Blank lines and other JSON spacing do not matter; the rows come in file order."""
    second = ROW.replace(b":1,", b": 2 ,", 1).replace(b"\n", b"\r\n")
    rows = decode_rows(b"\n" + ROW + b" \n" + second, AgentIndexRow, DEFAULT_LIMITS)

    assert [1, 2] == [row.attempt_index for row in rows]
    assert () == decode_rows(b"", AgentIndexRow, DEFAULT_LIMITS)
    assert rows[:1] == decode_rows(ROW.rstrip(b"\n"), AgentIndexRow, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("old", "new", "message", "place"),
    [
        (b":1,", b":true,", "line 2: `attempt_index` must be an integer, found true", "line 2 key attempt_index"),
        (b":1,", b":1.0,", "line 2: `attempt_index` must be an integer, found 1.0", "line 2 key attempt_index"),
        (b":1,", b":-1,", "line 2: `attempt_index` must be an integer >= 0, found -1", "line 2 key attempt_index"),
        (b'"bytes"', b'"b\\u001b"', "line 2: `b\\x1b` is not a field of this format", "line 2 key b\\x1b"),
        (b',"bytes":411', b"", "line 2: `bytes` is missing", "line 2 key bytes"),
        (b'"g7_g0"', b"7", "line 2: `rollout_id` must be text, found 7", "line 2 key rollout_id"),
        (b'"bytes":411', b'"bytes":NaN', "line 2: `bytes` is NaN, which is no JSON number", "line 2 column 184"),
        (b"{", b"[", "line 2: is not JSON: expecting ',' delimiter", "line 2 column 14"),
        (ROW[:-1], b"[]", "line 2: top level must be an object", "line 2 column 1"),
        (
            b'"attempt_index"',
            b'"rollout_id":"g7_g0","attempt_index"',
            "line 2: the key `rollout_id` occurs twice in the top-level object",
            "line 2 column 23",
        ),
    ],
)
def test_a_bad_row_is_named_by_its_line(old, new, message, place):
    """A row that differs from the format is refused with its line and key, and so is one that hides a repeated key."""
    with pytest.raises(DefectError) as caught:
        decode_rows(ROW + ROW.replace(old, new, 1), AgentIndexRow, DEFAULT_LIMITS)

    assert [(message, place)] == [(defect.message, defect.location) for defect in caught.value.defects]


@pytest.mark.parametrize("value", [True, 1.0, 2])
def test_a_row_of_another_version_is_refused(value):
    """The version of a row is the integer 1."""
    row = {
        "schema_version": value,
        "rollout_id": "r",
        "attempt_index": 0,
        "capture_key": "r",
        "last_committed_model_call_id": "c",
        "resource_state_revisions": None,
    }

    with pytest.raises(DefectError, match="schema_version"):
        convert_row(row, ContinuationRow)
    with pytest.raises(DefectError, match="schema_version"):
        decode_rows(json.dumps(row, separators=(",", ":")).encode(), ContinuationRow, DEFAULT_LIMITS)


@pytest.mark.parametrize("text", ["a\n", "\x1b", "..", "", "a/b", "é"])
def test_ids_in_rows_have_the_id_form(text):
    """A row whose id could be a path or move the cursor is refused, and shown escaped."""
    with pytest.raises(DefectError) as caught:
        decode_rows(ROW.replace(b'"g7_g0"', json.dumps(text).encode(), 1), AgentIndexRow, DEFAULT_LIMITS)

    assert "`rollout_id` must be text matching regex" in caught.value.defects[0].message
    assert caught.value.defects[0].message.isprintable()


def test_only_so_many_bad_rows_are_listed():
    """A file in which every row is bad does not give a finding per row."""
    limits = replace(DEFAULT_LIMITS, findings_shown=3)
    with pytest.raises(DefectError) as caught:
        decode_rows(b"{}\n" * 50, AgentIndexRow, limits)

    assert 3 == len(caught.value.defects)


def test_long_lines_and_long_indexes_are_refused():
    """One line above its limit, or an index above its, is refused without being parsed."""
    limits = replace(DEFAULT_LIMITS, json_line_bytes=200, index_bytes=1000)
    with pytest.raises(DefectError, match=r"line 2: exceeds the limit of 200 bytes"):
        decode_rows(ROW + ROW.replace(b"g7_g0", b"g" * 200), AgentIndexRow, limits)
    with pytest.raises(DefectError, match="exceeds the limit of 1000 bytes"):
        decode_rows(ROW * 6, AgentIndexRow, limits)

    assert 2 == len(decode_rows(ROW + ROW.rstrip(b"\n"), AgentIndexRow, limits))


def test_deep_values_in_a_row_are_refused_not_followed():
    """Nesting inside a row hits the limit, also where the row class does not look at the value."""
    line = b'{"model_call_id":"c","other":' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(DefectError, match="nested deeper"):
        decode_rows(line, LineageRow, DEFAULT_LIMITS)


def test_a_defect_without_a_place_of_its_own_gets_the_line():
    """Line numbers are put before whatever place a defect had."""
    assert "line 7" == at_line(Defect("is bad"), 7).location
    assert "line 7 key a.b" == at_line(Defect("is bad", "a.b"), 7).location
    assert "line 7" == at_line(Defect("is bad", "line 3 column 4"), 7).location


@pytest.mark.parametrize("piece_bytes", [1, 300, 1000, 1 << 20])
def test_rows_and_line_numbers_do_not_depend_on_the_pieces(piece_bytes, monkeypatch):
    """However many lines are decoded together: the same rows, and each bad line under its own number."""
    monkeypatch.setattr(json_module, "_PIECE_BYTES", piece_bytes)
    spaced = ROW.replace(b",", b", ", 1)
    good = ROW * 3 + b"\n" + spaced + ROW * 2 + ROW.rstrip(b"\n")
    bad = ROW * 4 + b"\n" + ROW.replace(b"g7_g0", b"../up", 1) + ROW * 3 + b"{}\n" + ROW
    with pytest.raises(DefectError) as caught:
        decode_rows(bad, AgentIndexRow, DEFAULT_LIMITS)

    assert decode_rows(ROW, AgentIndexRow, DEFAULT_LIMITS) * 7 == decode_rows(good, AgentIndexRow, DEFAULT_LIMITS)
    assert ["line 6 key rollout_id", "line 10 key rollout_id"] == [defect.location for defect in caught.value.defects]


@pytest.mark.parametrize("text", ["g7_g0\ng7_g1", "g7_g0\n", "\n"])
def test_a_line_break_in_an_id_does_not_make_two_ids_of_it(text):
    """Texts are looked at together, one per line; a text with a line break is none of them."""
    with pytest.raises(DefectError, match="rollout_id"):
        decode_rows(ROW * 2 + ROW.replace(b'"g7_g0"', json.dumps(text).encode(), 1), AgentIndexRow, DEFAULT_LIMITS)
