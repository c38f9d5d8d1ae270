"""What the writers write is what the readers demand, for arbitrary contents; and no damage makes a reader do anything but refuse."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptctl.domain.canonical import pretty1, pretty2
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.fingerprint import (
    bootstrap_identity,
    config_fingerprint,
    projection_differences,
    redact,
    secret_paths,
)
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageIndexRow, LineageRow, StorageReferenceRow
from ckptctl.domain.source import BytesSource
from ckptctl.formats.anchor_files import decode_bootstrap, decode_training_info
from ckptctl.formats.canonical_json import decode_rows, load_json
from ckptctl.formats.config_file import decode_yaml, encode_yaml
from ckptctl.formats.lineage import build_model_artifacts, decode_lineage, encode_lineage_line
from ckptctl.formats.participant_files import (
    build_agent_artifacts,
    build_resources_artifacts,
    continuation_rows,
    decode_agent_manifest,
    decode_boundary,
    decode_model_manifest,
    decode_resources_manifest,
    decode_session,
    encode_boundary,
    encode_rows,
    encode_session,
)
from ckptctl.formats.snapshot_manifest import encode_manifest, read_manifest
from ckptctl.formats.tar_archive import build_archives, read_archive
from tests.property.documents import (
    COUNTS,
    DIGESTS,
    EXECUTIONS,
    IDS,
    OBJECTS,
    SESSIONS,
    SMALL,
    TEXTS,
    VALUES,
    boundaries,
    by_attempt,
    manifests,
)

few = settings(max_examples=15, deadline=None)
some = settings(max_examples=30, deadline=None)

NON_EMPTY = TEXTS.filter(bool)
ROWS = st.one_of(
    st.builds(AgentIndexRow, IDS, COUNTS, NON_EMPTY, NON_EMPTY, DIGESTS, COUNTS),
    st.builds(
        ContinuationRow, st.just(1), IDS, COUNTS, IDS, NON_EMPTY, st.none() | st.dictionaries(TEXTS, COUNTS, max_size=3)
    ),
    st.builds(LineageIndexRow, IDS, NON_EMPTY, NON_EMPTY, DIGESTS, COUNTS, COUNTS),
    st.builds(StorageReferenceRow, st.just(1), IDS, NON_EMPTY, NON_EMPTY, NON_EMPTY),
)
CONFIGS = st.dictionaries(
    st.one_of(
        TEXTS,
        st.sampled_from(["policy", "env", "rollout_checkpointing", "optimizer", "api_key", "x_token", "nemo_gym"]),
    ),
    st.recursive(
        st.one_of(VALUES, TEXTS),
        lambda inner: st.dictionaries(
            st.one_of(TEXTS, st.sampled_from(["token", "seed", "optimizer", "num_workers"])), inner, max_size=3
        ),
        max_leaves=5,
    ),
    max_size=4,
).filter(lambda config: not isinstance(config.get("rollout_checkpointing"), dict))
LINEAGE = st.fixed_dictionaries(
    {"model_call_id": NON_EMPTY},
    optional={
        "staging_key": st.none() | NON_EMPTY,
        "staging_chain": st.none() | st.lists(NON_EMPTY, max_size=3),
        "weight_version": st.none() | COUNTS,
        "failure_reason": st.none() | TEXTS,
        "other": VALUES,
    },
)


@given(VALUES)
@some
def test_json_reads_as_python_reads_it(value):
    """Any JSON value, however it is written, is read back equal."""
    for text in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False, indent=1),
        json.dumps(value, separators=(",", ":")),
    ):
        assert repr(value) == repr(load_json(text.encode(), DEFAULT_LIMITS))


@given(manifests())
@some
def test_outer_manifests_round_trip(manifest):
    """A manifest of either schema reads back equal and is written again in the same bytes."""
    data = encode_manifest(manifest)
    reading = read_manifest("manifest.json", data, DEFAULT_LIMITS)

    assert manifest == reading.manifest
    assert data == encode_manifest(reading.manifest)
    assert () == reading.counter_defects + reading.gym_defects


@given(st.lists(ROWS, max_size=5))
@some
def test_rows_round_trip_on_both_paths(rows):
    """Rows read back equal, whether their bytes are the writer's or the same JSON with other spacing."""
    for kind in (AgentIndexRow, ContinuationRow, LineageIndexRow, StorageReferenceRow):
        of_kind = tuple(row for row in rows if isinstance(row, kind))
        data = encode_rows(of_kind)
        spaced = b"".join(json.dumps(json.loads(line)).encode() + b"\r\n\n" for line in data.split(b"\n") if line)

        assert of_kind == decode_rows(data, kind, DEFAULT_LIMITS) == decode_rows(spaced, kind, DEFAULT_LIMITS)


@given(boundaries(), SESSIONS)
@some
def test_records_round_trip(boundary, session):
    """Boundary records and sessions read back equal and are written again in the same bytes."""
    assert boundary == decode_boundary(encode_boundary(boundary))
    assert encode_boundary(boundary) == encode_boundary(decode_boundary(encode_boundary(boundary)))
    assert session == decode_session(encode_session(session))
    assert encode_session(session) == encode_session(decode_session(encode_session(session)))


@given(st.lists(boundaries(), max_size=4).map(by_attempt), NON_EMPTY)
@few
def test_agents_write_what_is_demanded_of_them(records, name):
    """Every file of an agent's folder reads back, and references, index and archive agree with each other."""
    built = build_agent_artifacts("ck-1", name, records)
    files = dict(built.files)
    manifest = decode_agent_manifest(files["manifest.json"])
    index = decode_rows(files["agent-index.jsonl"], AgentIndexRow, DEFAULT_LIMITS)
    stored = [
        (archive.name, member, payload)
        for archive in manifest.archives
        for member, payload in read_archive(BytesSource(files[archive.name]), DEFAULT_LIMITS)
    ]

    assert "manifest.json" == built.files[-1][0]
    assert pretty2(manifest.model_dump(mode="json")) == files["manifest.json"]
    assert [(row.archive, row.member, row.sha256, row.bytes) for row in index] == [
        (archive, member.name, member.sha256, member.size_bytes) for archive, member, _ in stored
    ]
    assert sorted(records, key=lambda item: (item.rollout_id, item.attempt_index)) == [
        decode_boundary(payload) for _, _, payload in stored
    ]
    assert continuation_rows(records) == decode_rows(files["continuations.jsonl"], ContinuationRow, DEFAULT_LIMITS)
    for reference in (manifest.record_index, manifest.continuation_index):
        data = files[reference.relative_path.removeprefix(f"{built.folder}/")]
        assert (reference.sha256, reference.bytes, reference.records) == (
            sha256_hex(data),
            len(data),
            data.count(b"\n"),
        )


@given(st.lists(SESSIONS, max_size=4).map(by_attempt), IDS)
@few
def test_resources_servers_write_what_is_demanded_of_them(sessions, name):
    """Every session file is listed with its digest and reads back."""
    built = build_resources_artifacts("ck-1", name, sessions)
    files = dict(built.files)
    manifest = decode_resources_manifest(files["manifest.json"])

    assert {key: sha256_hex(data) for key, data in files.items() if key != "manifest.json"} == manifest.files
    assert sorted(map(repr, sessions)) == sorted(repr(decode_session(files[key])) for key in manifest.files)


@given(
    st.lists(st.tuples(IDS, NON_EMPTY), max_size=4, unique_by=lambda pair: pair[0]),
    st.lists(EXECUTIONS, max_size=3),
    SMALL,
    st.data(),
)
@few
def test_models_write_what_is_demanded_of_them(pairs, executions, inactive, data):
    """Every file of a model's folder reads back, each root has its member, and every key that it needs is referred to once."""
    roots, custody = [], {}
    for rollout, call in pairs:
        others = data.draw(st.lists(LINEAGE.filter(lambda row, call=call: row["model_call_id"] != call), max_size=2))
        own = data.draw(LINEAGE) | {"model_call_id": call, "failure_reason": None}
        custody[rollout] = b"".join(encode_lineage_line(row) for row in [*others, own])
        roots.append(ContinuationRow(1, rollout, 0, rollout, call, None))
    built = build_model_artifacts("ck-1", "model", roots, custody, executions, [], inactive)
    files = dict(built.files)
    manifest = decode_model_manifest(files["manifest.json"])
    references = decode_rows(files["storage-references.jsonl"], StorageReferenceRow, DEFAULT_LIMITS)
    needed = {
        key
        for root in roots
        for row in decode_lineage(custody[root.capture_key])[-1:]
        for key in (*(row.staging_chain or ()), *filter(None, [row.staging_key]))
    }

    assert pretty1(manifest.model_dump(mode="json")) == files["manifest.json"]
    assert sorted(needed) == [row.key for row in references]
    assert (
        len(roots)
        == manifest.rollout_count
        == len(decode_rows(files["lineage-index.jsonl"], LineageIndexRow, DEFAULT_LIMITS))
    )
    assert (len(executions), inactive) == (built.reply.excluded_tombstoned, built.reply.excluded_inactive)


@given(st.lists(LINEAGE, max_size=4))
@some
def test_lineage_reads_the_same_on_both_paths(rows):
    """A custody file gives the same rows whether it is as its writer writes it or not."""
    written = b"".join(map(encode_lineage_line, rows))
    other = b"\n".join(json.dumps(row, indent=None).encode() for row in rows)

    assert decode_lineage(written) == decode_lineage(other)
    assert [row["model_call_id"] for row in rows] == [row.model_call_id for row in decode_lineage(written)]


@given(
    st.lists(
        st.tuples(NON_EMPTY.filter(lambda name: "\0" not in name and not name.endswith("/")), st.binary(max_size=1500)),
        max_size=6,
    )
)
@some
def test_archives_round_trip(members):
    """Members come back with their names, payloads and order."""
    found = [
        (member.name, payload)
        for shard in build_archives("part", members)
        for member, payload in read_archive(BytesSource(shard.data), DEFAULT_LIMITS)
    ]

    assert members == found


@given(CONFIGS)
@some
def test_configurations_round_trip(config):
    """Any configuration of JSON values is read back from its YAML equal, so its fingerprint survives the file."""
    again = decode_yaml(encode_yaml(config), DEFAULT_LIMITS)

    assert repr(sort(config)) == repr(sort(again))
    assert config_fingerprint(config) == config_fingerprint(again)


def sort(value):
    """A value with the keys of all mappings in order."""
    if isinstance(value, dict):
        return {key: sort(value[key]) for key in sorted(value)}
    return [sort(item) for item in value] if isinstance(value, list) else value


@given(CONFIGS, CONFIGS)
@some
def test_fingerprints_differ_exactly_when_a_difference_is_told(old, new):
    """Two configurations have the same fingerprint exactly when nothing that counts differs; a projection is its own projection."""
    assert (config_fingerprint(old) == config_fingerprint(new)) == (projection_differences(old, new) == ())
    identity = bootstrap_identity(old)
    assert identity == bootstrap_identity(identity.config)


@given(CONFIGS)
@some
def test_redacting_removes_every_secret_and_changes_no_fingerprint(config):
    """After redaction nothing secret is left, and nothing that counts has changed."""
    redacted = redact(config)

    assert () == secret_paths(redacted)
    assert config_fingerprint(config) == config_fingerprint(redacted)
    assert redacted == redact(redacted)


# --- damage ---

READERS = {
    "manifest": (
        lambda data: read_manifest("m", data, DEFAULT_LIMITS),
        lambda draw: encode_manifest(draw(manifests())),
    ),
    "rows": (
        lambda data: decode_rows(data, AgentIndexRow, DEFAULT_LIMITS),
        lambda draw: encode_rows([draw(ROWS), draw(ROWS)]),
    ),
    "lineage rows": (
        lambda data: decode_rows(data, LineageRow, DEFAULT_LIMITS),
        lambda draw: encode_lineage_line(draw(LINEAGE)) * 2,
    ),
    "lineage": (decode_lineage, lambda draw: encode_lineage_line(draw(LINEAGE)) * 2),
    "boundary": (decode_boundary, lambda draw: encode_boundary(draw(boundaries()))),
    "session": (decode_session, lambda draw: encode_session(draw(SESSIONS))),
    "agent manifest": (
        decode_agent_manifest,
        lambda draw: build_agent_artifacts("c", "a", [draw(boundaries())]).files[-1][1],
    ),
    "model manifest": (
        decode_model_manifest,
        lambda draw: build_model_artifacts("c", "m", [], {}, [draw(EXECUTIONS)], [], 0).files[-1][1],
    ),
    "resources manifest": (
        decode_resources_manifest,
        lambda draw: build_resources_artifacts("c", "r", [draw(SESSIONS)]).files[-1][1],
    ),
    "training info": (decode_training_info, lambda draw: json.dumps({"current_step": 1, **draw(OBJECTS)}).encode()),
    "bootstrap": (decode_bootstrap, lambda draw: json.dumps({"bootstrap_identity": draw(OBJECTS)}).encode()),
    "yaml": (lambda data: decode_yaml(data, DEFAULT_LIMITS), lambda draw: encode_yaml(draw(CONFIGS))),
    "tar": (
        lambda data: list(read_archive(BytesSource(data), DEFAULT_LIMITS)),
        lambda draw: build_archives("p", [(draw(IDS), draw(st.binary(max_size=600))), ("é", b"x")])[0].data,
    ),
}


def damaged(draw, data):
    """`data` with something cut, flipped, repeated or put in."""
    if not data:
        return draw(st.binary(max_size=20))
    place = draw(st.integers(0, len(data) - 1))
    end = draw(st.integers(place, min(len(data), place + 40)))
    piece = draw(
        st.sampled_from(
            [
                b"",
                b"\0",
                b"\xff",
                b'"',
                b"{",
                b"[",
                b"NaN",
                b"1e999",
                b"true",
                b"\n",
                b"-",
                b"*a",
                b"&a ",
                b"\\ud800",
                b"!!x ",
            ]
        )
    )
    return data[:place] + draw(st.sampled_from([piece, data[place:end] * 2, piece + data[end:]])) + data[end:]


def check_damage(name, data):
    """Damage one file and read it: a value, or defects whose texts are safe to print."""
    read, make = READERS[name]
    content = make(data.draw)
    for _ in range(data.draw(st.integers(0, 2))):
        content = damaged(data.draw, content)
    try:
        found = read(content)
        defects = (*found.document_defects, *found.counter_defects, *found.gym_defects) if name == "manifest" else ()
    except DefectError as error:
        defects = error.defects
        assert defects

    for defect in defects:
        assert "\x1b" not in repr(defect)
        assert not any(
            ord(character) < 0x20 or ord(character) == 0x7F
            for text in (defect.message, defect.location)
            for character in text
        )
        assert not any(
            ord(character) < 0x20 or ord(character) == 0x7F
            for text in (defect.expected, defect.actual)
            for character in text
        )


@pytest.mark.parametrize("name", READERS)
@given(st.data())
@few
def test_damage_gives_a_value_or_a_defect(name, data):
    """Whatever becomes of its bytes, a reader returns a value or refuses with texts that are safe to print."""
    check_damage(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_much_damage_gives_a_value_or_a_defect(name, data):
    """The same, many times over."""
    check_damage(name, data)
