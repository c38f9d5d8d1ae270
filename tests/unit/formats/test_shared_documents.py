"""Every document, index and archive of the shared fixtures: good ones read and are written again as they were, bad ones are refused."""

import json
import stat

import pytest

from ckptctl.domain.canonical import pretty1, pretty2
from ckptctl.domain.finding import DefectError
from ckptctl.domain.fingerprint import bootstrap_fingerprint, config_fingerprint, secret_paths, topology_fingerprint
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageIndexRow, StorageReferenceRow
from ckptctl.domain.source import BytesSource
from ckptctl.formats.anchor_files import decode_bootstrap, decode_training_info, encode_bootstrap, encode_training_info
from ckptctl.formats.canonical_json import decode_rows
from ckptctl.formats.config_file import decode_yaml, encode_yaml
from ckptctl.formats.lineage import build_model_artifacts, decode_lineage
from ckptctl.formats.participant_files import (
    build_agent_artifacts,
    build_resources_artifacts,
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
from tests.conftest import shared_fixtures

GOOD_SNAPSHOTS = [
    "turn/step_1/rollout_snapshots/snapshot_000001",
    "turn/step_1/rollout_snapshots/snapshot_000002",
    "turn/bootstrap/rollout_snapshots/snapshot_000001",
    "norollouts/step_2/rollout_snapshots/snapshot_000001",
    "legacy/step_2/rollout_snapshots/snapshot_000001",
]
INDEXES = {
    "agent-index.jsonl": AgentIndexRow,
    "continuations.jsonl": ContinuationRow,
    "lineage-index.jsonl": LineageIndexRow,
    "storage-references.jsonl": StorageReferenceRow,
}


@pytest.fixture(params=GOOD_SNAPSHOTS)
def snapshot(request):
    return shared_fixtures() / request.param


def members(path):
    return [(member.name, payload) for member, payload in read_archive(BytesSource(path.read_bytes()), DEFAULT_LIMITS)]


def test_outer_manifests(snapshot):
    """The manifest of every good snapshot is written again byte for byte."""
    data = (snapshot / "manifest.json").read_bytes()
    reading = read_manifest("manifest.json", data, DEFAULT_LIMITS)

    assert reading.manifest is not None
    assert () == reading.document_defects + reading.counter_defects + reading.gym_defects
    assert data == encode_manifest(reading.manifest)


def test_indexes_and_archives(snapshot):
    """Every index and archive is written again byte for byte."""
    for path in sorted(snapshot.rglob("*.jsonl")):
        assert path.read_bytes() == encode_rows(decode_rows(path.read_bytes(), INDEXES[path.name], DEFAULT_LIMITS)), (
            path.name
        )
    for path in sorted(snapshot.rglob("*.tar")):
        (built,) = build_archives(path.name.rpartition("-")[0], members(path))
        assert (path.name, path.read_bytes()) == (built.name, built.data)


def test_participant_folders_can_be_built_again(snapshot):
    """From what its records say, each participant's folder is built again byte for byte, and every record is."""
    roots = []
    for folder in sorted(snapshot.glob("agent/*")):
        manifest = decode_agent_manifest((folder / "manifest.json").read_bytes())
        payloads = [payload for path in sorted(folder.glob("*.tar")) for _, payload in members(path)]
        records = [decode_boundary(payload) for payload in payloads]
        assert payloads == [encode_boundary(record) for record in records]
        assert pretty2(manifest.model_dump(mode="json")) == (folder / "manifest.json").read_bytes()
        built = build_agent_artifacts(manifest.checkpoint_id, manifest.instance_name, records)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict(built.files)
        roots.extend(decode_rows((folder / "continuations.jsonl").read_bytes(), ContinuationRow, DEFAULT_LIMITS))
    for folder in sorted(snapshot.glob("model-ledger/*")):
        model = decode_model_manifest((folder / "manifest.json").read_bytes())
        custody = {
            name.removesuffix(".lineage.jsonl"): payload
            for path in sorted(folder.glob("*.tar"))
            for name, payload in members(path)
        }
        assert model.row_count == sum(len(decode_lineage(payload)) for payload in custody.values())
        assert pretty1(model.model_dump(mode="json")) == (folder / "manifest.json").read_bytes()
        again = build_model_artifacts(
            model.checkpoint_id,
            model.server_name,
            roots,
            custody,
            model.tombstones,
            model.source_attempts,
            model.excluded_inactive,
        )
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict(again.files)
    for folder in sorted(snapshot.glob("resources/*")):
        resources = decode_resources_manifest((folder / "manifest.json").read_bytes())
        sessions = {name: decode_session((folder / name).read_bytes()) for name in resources.files}
        assert all(encode_session(session) == (folder / name).read_bytes() for name, session in sessions.items())
        written = build_resources_artifacts(resources.checkpoint_id, resources.server_name, sessions.values())
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict(written.files)


def test_configurations():
    """Every configuration reads; the ones of the current line are written again byte for byte."""
    paths = [
        path
        for run in ("turn", "norollouts", "legacy/step_2")
        for path in (shared_fixtures() / run).rglob("config.yaml")
    ]

    assert len(paths) >= 8
    for path in paths:
        data = path.read_bytes()
        assert data == encode_yaml(decode_yaml(data, DEFAULT_LIMITS)), path


def test_anchors():
    """Anchors' files are written again byte for byte; the bootstrap fingerprint follows from identity and from the snapshot's configuration."""
    folder = shared_fixtures() / "turn"
    info = (folder / "step_1" / "training_info.json").read_bytes()
    data = (folder / "bootstrap" / "manifest.json").read_bytes()
    bootstrap = decode_bootstrap(data)
    config = decode_yaml(
        (folder / "bootstrap/rollout_snapshots/snapshot_000001/config.yaml").read_bytes(), DEFAULT_LIMITS
    )

    assert info == encode_training_info(decode_training_info(info))
    assert data == encode_bootstrap(bootstrap)
    assert bootstrap.bootstrap_identity is not None
    assert (
        bootstrap.bootstrap_fingerprint
        == bootstrap_fingerprint(bootstrap.bootstrap_identity)
        == config_fingerprint(config)
    )


def test_topology():
    """The fingerprint of the saved capabilities is the one in the manifests."""
    text = (shared_fixtures() / "turn.capabilities.json").read_text()
    participants = [DiscoveredParticipant.model_validate(item) for item in json.loads(text)]
    manifest = json.loads((shared_fixtures() / GOOD_SNAPSHOTS[1] / "manifest.json").read_text())

    assert manifest["gym_topology_fingerprint"] == topology_fingerprint(participants)


def test_secrets():
    """The one configuration with a token in clear is found, the others are not."""
    found = {}
    for number in (1, 2):
        path = shared_fixtures() / f"turn/step_1/rollout_snapshots/snapshot_00000{number}/config.yaml"
        found[number] = secret_paths(decode_yaml(path.read_bytes(), DEFAULT_LIMITS))

    assert {1: ("token_capture.control_auth_token",), 2: ()} == found


def case_snapshot(name):
    folder = shared_fixtures() / "cases" / name
    return folder / json.loads((folder / "case.json").read_text())["snapshot"]


@pytest.mark.parametrize(
    ("case", "stage", "word"),
    [
        ("json-duplicate-key", "document_defects", "`trainer_version` occurs twice"),
        ("manifest-bool", "counter_defects", "`trainer_version` must be an integer of at least 0, found true"),
        ("artifact-path-dotdot", "gym_defects", '`..`, found "model-ledger/../'),
        ("escape-in-value", "gym_defects", "checkpoint_id"),
    ],
)
def test_damaged_manifests(case, stage, word):
    """Each planted defect of an outer manifest is found at its stage, and its text is safe to print."""
    reading = read_manifest("manifest.json", (case_snapshot(case) / "manifest.json").read_bytes(), DEFAULT_LIMITS)
    (defect,) = getattr(reading, stage)

    assert word in defect.message
    assert all(text.isprintable() for text in (defect.message, defect.location, defect.expected, defect.actual))


def decode_every_participant_file(snapshot):
    """Decode whatever lies in the participants' folders; the first defect ends it."""
    for path in sorted(snapshot.glob("*/*/*")):
        if not stat.S_ISREG(path.lstat().st_mode):
            continue
        if path.name == "manifest.json":
            decode = {
                "agent": decode_agent_manifest,
                "model-ledger": decode_model_manifest,
                "resources": decode_resources_manifest,
            }
            decode[path.parent.parent.name](path.read_bytes())
        elif path.suffix == ".tar":
            for name, payload in members(path):
                (decode_lineage if name.endswith(".lineage.jsonl") else decode_boundary)(payload)
        elif path.suffix == ".jsonl":
            decode_rows(path.read_bytes(), INDEXES[path.name], DEFAULT_LIMITS)
        elif path.parent.parent.name == "resources":
            decode_session(path.read_bytes())


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("json-nan", "NaN"),
        ("session-state-type", "`state` must be an object"),
        ("tar-compressed", "gzip"),
        ("artifact-path-dotdot", ".."),
        ("escape-in-value", "`checkpoint_id` must be 1 to 128 characters"),
    ],
)
def test_damaged_participant_files(case, word):
    """Each planted defect of a participant's file that is one of form is refused by its decoder."""
    with pytest.raises(DefectError) as caught:
        decode_every_participant_file(case_snapshot(case))

    assert word in caught.value.defects[0].message
    assert caught.value.defects[0].message.isprintable()


def test_other_damaged_cases_decode():
    """Defects of meaning are not the decoders' business: those files read, and a rule speaks of them."""
    refused = set()
    for folder in sorted((shared_fixtures() / "cases").iterdir()):
        try:
            decode_every_participant_file(case_snapshot(folder.name))
        except DefectError:
            refused.add(folder.name)

    # A copy that did not keep symbolic links has a file with the link's text instead, which is no session.
    assert refused <= {
        "json-nan",
        "session-state-type",
        "tar-compressed",
        "artifact-path-dotdot",
        "escape-in-value",
        "symlink-escape",
    }
