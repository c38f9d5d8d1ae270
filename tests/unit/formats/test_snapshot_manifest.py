"""The outer manifest: the published example byte for byte, and each stage of reading with what it refuses."""

import copy
import json

import pytest

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.manifest import (
    AgentPayload,
    GymCheckpoint,
    ModelPayload,
    ParticipantEntry,
    ParticipantIdentity,
    ParticipantManifestReference,
    ResourcesPayload,
    SnapshotManifest,
)
from ckptctl.formats.snapshot_manifest import encode_manifest, read_manifest
from tests.unit.formats.participants import a_model, a_resources_server, an_agent

PATH = "manifest.json"


def an_entry(component, name, built, payload):
    """A participant whose controller name is its own name."""
    identity = ParticipantIdentity(server_name=name, component=component, participant_name=name)
    reference = ParticipantManifestReference(
        participant=identity,
        relative_path=f"{built.folder}/manifest.json",
        manifest_digest=built.reply.manifest_digest,
    )
    return ParticipantEntry(participant=identity, payload=payload, manifest=reference)


def the_example():
    """The manifest of the published example, built from the participants' own replies."""
    agent, model, resources = an_agent(), a_model(), a_resources_server()
    participants = (
        an_entry("responses_api_agents", "policy_agent", agent, AgentPayload(**dict(agent.reply))),
        an_entry("responses_api_models", "policy_model", model, ModelPayload(**dict(model.reply))),
        an_entry("resources_servers", "tools", resources, ResourcesPayload(**dict(resources.reply))),
    )
    return SnapshotManifest(
        schema_version=4,
        base_train_step=3,
        trainer_version=3,
        current_epoch=0,
        sampler_dispatch_index=5,
        mutation_version=41,
        rolled_back_train_group_count=0,
        bootstrap_fingerprint=None,
        gym_topology_fingerprint="90e4b6b5cb218f71963343690df722c82058815c2d50db9ef969970d672ec50e",
        gym_checkpoint=GymCheckpoint(checkpoint_id="ck-1", participants=participants),
    )


def read(document):
    """The reading of a document given as JSON value."""
    return read_manifest(PATH, json.dumps(document).encode(), DEFAULT_LIMITS)


def raw_example():
    return json.loads(encode_manifest(the_example()))


def test_published_example():
    """The manifest of the worked example has its size and digest, and reads back as it was."""
    data = encode_manifest(the_example())
    reading = read_manifest(PATH, data, DEFAULT_LIMITS)

    assert 3315 == len(data)
    assert "a6563c1f9de9373d7a4b0b5026d74ada283fec0f2307999022db38008c7be933" == sha256_hex(data) == reading.part.sha256
    assert the_example() == reading.manifest
    assert ((), (), (), ()) == (
        reading.document_defects,
        reading.counter_defects,
        reading.gym_defects,
        reading.unknown_keys,
    )
    assert reading.has_gym
    assert 4 == reading.schema_found
    assert ("decoded", 3315) == (reading.part.state, reading.part.size_bytes)


def test_schema_three_has_eight_keys():
    """A rollout-only manifest is written without the Gym keys and read without them."""
    manifest = the_example().model_copy(
        update={"schema_version": 3, "gym_topology_fingerprint": None, "gym_checkpoint": None}
    )
    data = encode_manifest(manifest)

    assert 8 == len(json.loads(data))
    assert manifest == read_manifest(PATH, data, DEFAULT_LIMITS).manifest


def test_gym_state_in_schema_three_is_seen_but_not_read():
    """A rule must be able to complain of Gym state in schema 3; the format does not look into it."""
    reading = read(raw_example() | {"schema_version": 3, "gym_checkpoint": {"anything": 1}})

    assert reading.has_gym
    assert () == reading.gym_defects
    assert reading.manifest is not None
    assert reading.manifest.gym_checkpoint is None


def test_participants_may_be_absent():
    """Without participant checkpointing both Gym keys are null."""
    reading = read(raw_example() | {"gym_checkpoint": None, "gym_topology_fingerprint": None})

    assert not reading.has_gym
    assert reading.manifest is not None
    assert b'"gym_checkpoint": null' in encode_manifest(reading.manifest)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'"x"', b"{", b"\xff", b'{"schema_version":4,"schema_version":4}', b'{"a":NaN}']
)
def test_what_is_no_object_has_document_defects(data):
    """Bytes that are no strict JSON object are damaged, and nothing else is said of them."""
    reading = read_manifest(PATH, data, DEFAULT_LIMITS)

    assert "damaged" == reading.part.state
    assert reading.document_defects == reading.part.defects != ()
    assert reading.raw is None
    assert reading.manifest is None
    assert () == reading.counter_defects


@pytest.mark.parametrize("schema", [None, True, "4", 4.0, 0, 1, 2, 5, 6, 7, -1, [4]])
def test_other_schemas_stop_the_reading(schema):
    """Of another schema only its number is reported, raw; counters of formats that are not read are nobody's business."""
    reading = read({"schema_version": schema, "gym_checkpoint": {}})

    assert schema == reading.schema_found
    assert type(schema) is type(reading.schema_found)
    assert ((), (), None, True) == (reading.counter_defects, reading.gym_defects, reading.manifest, reading.has_gym)


def test_a_missing_schema_is_none():
    """A manifest that names no schema is read no further."""
    assert read({}).schema_found is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("base_train_step", -1, "`base_train_step` must be an integer of at least 0, found -1"),
        ("trainer_version", True, "`trainer_version` must be an integer of at least 0, found true"),
        ("current_epoch", 1.0, "`current_epoch` must be an integer of at least 0, found 1.0"),
        ("sampler_dispatch_index", -2, "`sampler_dispatch_index` must be an integer of at least -1, found -2"),
        ("mutation_version", "1", '`mutation_version` must be an integer of at least 0, found "1"'),
        (
            "rolled_back_train_group_count",
            None,
            "`rolled_back_train_group_count` must be an integer of at least 0, found null",
        ),
        (
            "bootstrap_fingerprint",
            "A" * 64,
            f'`bootstrap_fingerprint` must be null or 64 lower-case hex digits, found "{"A" * 64}"',
        ),
        ("gym_topology_fingerprint", 1, "`gym_topology_fingerprint` must be null or 64 lower-case hex digits, found 1"),
    ],
)
def test_each_counter_has_its_bounds(key, value, message):
    """A counter of the wrong type or range is one defect that names it, and there is no manifest."""
    reading = read(raw_example() | {key: value})

    assert [message] == [defect.message for defect in reading.counter_defects]
    assert key == reading.counter_defects[0].location
    assert reading.manifest is None


@pytest.mark.parametrize("key", sorted(set(raw_example()) - {"schema_version"}))
def test_every_key_is_demanded(key):
    """Schema 4 has exactly ten keys; an absent one is named."""
    document = raw_example()
    del document[key]
    reading = read(document)

    assert [f"`{key}` is missing"] == [defect.message for defect in reading.counter_defects]


def test_smallest_counters_are_legal():
    """A sampler that has dispatched nothing stands at -1."""
    assert read(raw_example() | {"sampler_dispatch_index": -1, "base_train_step": 0}).manifest is not None


def test_unknown_keys_are_collected():
    """Keys of a later build are no defect; the cut proofs of schema 5 have a rule of their own."""
    reading = read(raw_example() | {"later": 1, "gym_generation_cut_proofs": [], "\x1b": 2})

    assert ("later", "\x1b") == reading.unknown_keys
    assert reading.manifest is not None


def gym_defects(change):
    document = raw_example()
    change(document["gym_checkpoint"])
    reading = read(document)
    assert reading.has_gym
    assert reading.manifest is not None
    assert reading.manifest.gym_checkpoint is None
    assert all(defect.message.isprintable() for defect in reading.gym_defects)
    return [defect.message for defect in reading.gym_defects]


def at(*path):
    """A change that sets one value deep in the Gym part; the last argument is the value."""
    *keys, last, value = path

    def change(gym):
        for key in keys:
            gym = gym[key]
        gym[last] = value

    return change


ENTRY = "gym_checkpoint.participants.1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            at("checkpoint_id", "ck-\x1b[2J"),
            'checkpoint_id` must be 1 to 128 characters [A-Za-z0-9][A-Za-z0-9._-]*, found "ck-\\x1b[2J"',
        ),
        (at("checkpoint_id", 7), "`gym_checkpoint.checkpoint_id` must be 1 to 128 characters"),
        (at("participants", {}), "`gym_checkpoint.participants` must be a list, found an empty object"),
        (at("other", 1), "`gym_checkpoint.other` is not a field of this format"),
        (at("participants", 1, []), f"`{ENTRY}` must be an object, found an empty list"),
        (at("participants", 1, "ot\x1bher", 1), f"`{ENTRY}.ot\\x1bher` is not a field of this format"),
        (at("participants", 1, "participant", "more", 1), f"`{ENTRY}.participant.more` is not a field of this format"),
        (
            at("participants", 1, "participant", "component", "x"),
            f"`{ENTRY}.participant.component` must be 'responses_api_models'",
        ),
        (at("participants", 1, "participant", "server_name", "../x"), f"`{ENTRY}.participant.server_name` must match"),
        (
            at("participants", 1, "participant", "participant_name", ".."),
            f'`{ENTRY}.participant.participant_name` must be of the form [A-Za-z0-9][A-Za-z0-9._-]*, found ".."',
        ),
        (
            at("participants", 0, "participant", "participant_name", "a\x07"),
            "participants.0.participant.participant_name` must be 1 to 512 bytes without control characters",
        ),
        (
            at("participants", 0, "participant", "participant_name", "é" * 257),
            "must be 1 to 512 bytes without control characters",
        ),
        (at("participants", 0, "participant", "participant_name", ""), "must be non-empty text"),
        (at("participants", 1, "payload", "records", 1), f"`{ENTRY}.payload.records` is not a field of this format"),
        (at("participants", 1, "payload", {}), f"`{ENTRY}.payload.rollouts` is missing"),
        (at("participants", 1, "payload", "rows", -1), f"`{ENTRY}.payload.rows` must be at least 0, found -1"),
        (
            at("participants", 1, "payload", "storage_reference_index", "schema_version", True),
            "must be an integer, found true",
        ),
        (
            at("participants", 1, "payload", "storage_reference_index", "relative_path", "a/../b"),
            'must not contain `..`, found "a/../b"',
        ),
        (
            at("participants", 1, "manifest", "relative_path", "/etc/x"),
            'must be relative to the snapshot, found "/etc/x"',
        ),
        (
            at("participants", 1, "manifest", "relative_path", ""),
            f"`{ENTRY}.manifest.relative_path` must be a relative path, not empty",
        ),
        (
            at("participants", 1, "manifest", "manifest_digest", "0"),
            f"`{ENTRY}.manifest.manifest_digest` must be 64 lower-case hex digits",
        ),
        (
            at("participants", 1, "manifest", "participant", "more", 1),
            f"`{ENTRY}.manifest.participant.more` is not a field",
        ),
    ],
)
def test_the_gym_part_is_strict_at_every_level(change, message):
    """Unknown fields, ids, names, payloads and paths of the Gym part are refused by their key path."""
    found = gym_defects(change)

    assert any(message in text for text in found), found


@pytest.mark.parametrize("key", ["participant", "payload", "manifest"])
def test_an_absent_part_of_an_entry_is_named_once(key):
    """What an entry lacks is missing, not also of the wrong type."""
    found = gym_defects(lambda gym: gym["participants"][0].pop(key))

    assert [f"`gym_checkpoint.participants.0.{key}` is missing"] == found


def test_absent_gym_keys_and_a_gym_part_of_the_wrong_type():
    """The Gym part has two keys and is an object."""
    assert ["`gym_checkpoint.participants` is missing"] == gym_defects(lambda gym: gym.pop("participants"))
    assert ["`gym_checkpoint.checkpoint_id` is missing"] == gym_defects(lambda gym: gym.pop("checkpoint_id"))
    reading = read(raw_example() | {"gym_checkpoint": 5})
    assert ["`gym_checkpoint` must be null or an object, found 5"] == [defect.message for defect in reading.gym_defects]


def test_payload_follows_the_component():
    """A resources reply in an agent's entry is refused, although some participant could have given it."""
    document = raw_example()
    entries = document["gym_checkpoint"]["participants"]
    entries[0]["payload"] = copy.deepcopy(entries[2]["payload"])

    assert "`gym_checkpoint.participants.0.payload.records` is missing" in [
        defect.message for defect in read(document).gym_defects
    ]


def test_agents_may_have_any_printable_name():
    """An agent's name is hashed into its folder's name, so it may hold slashes and any letters."""
    document = raw_example()
    document["gym_checkpoint"]["participants"][0]["participant"]["participant_name"] = "日本/agent é"

    assert () == read(document).gym_defects


@pytest.mark.parametrize("count", [None, 0, 3])
def test_generation_cuts_of_a_later_server(count):
    """A count of cuts is read whatever it is, a rule refuses it; a zero is not written, and more than that cannot be."""
    document = raw_example()
    if count is not None:
        document["gym_checkpoint"]["participants"][1]["payload"]["generation_cut_records"] = count
    reading = read(document)

    assert reading.manifest is not None
    payload = reading.manifest.gym_checkpoint.participants[1].payload
    assert count == payload.generation_cut_records
    if count:
        with pytest.raises(RuntimeError, match="generation cuts"):
            encode_manifest(reading.manifest)
    else:
        assert encode_manifest(the_example()) == encode_manifest(reading.manifest)


def test_excluded_inactive_may_be_absent():
    """Older servers do not report what they left out: absent means 0."""
    document = raw_example()
    del document["gym_checkpoint"]["participants"][1]["payload"]["excluded_inactive"]

    assert 0 == read(document).manifest.gym_checkpoint.participants[1].payload.excluded_inactive
