"""Samples of the BND and DUR rules."""

from dataclasses import replace

from ckptctl.domain.evidence import LiveFacts, Part
from ckptctl.domain.finding import Defect
from ckptctl.domain.manifest import ParticipantIdentity
from tests.rules.samples import bad, good
from tests.world import OTHER_DIGEST

METADATA, LEDGER, REPLAY = "data_plane/metadata.json", "rollout_recovery.pt", "replay_buffer_metadata.pt"
RECORD = "metadata value user_metadata"
for number in range(1, 11):
    good(f"BND{number:03d}", "all parts of one cut")
    if number != 9:
        good(f"BND{number:03d}", "an anchor with a data plane of its own", base="anchor")
good(
    "BND001",
    "a data plane alone may carry anything",
    base="data plane",
    evidence={"metadata value user_metadata": {"note": "by hand"}},
)
good("BND001", "an anchor may hold a shadow", base="anchor", evidence={f"{RECORD} mode": "shadow"})
good(
    "BND008",
    "null stands for absent",
    base="anchor",
    evidence={
        "replay": Part(REPLAY, "missing"),
        **{
            f"{RECORD} {name}": None
            for name in ("replay_manifest_digest", "replay_group_count", "replay_metadata_schema_version")
        },
    },
)
good(
    "BND010",
    "no target steps",
    world={
        "ledger groups": [],
        "replay groups": lambda groups: [group.model_copy(update={"target_step": None}) for group in groups],
    },
)


def without(*names):
    """An edit of a mapping: some keys gone."""
    return lambda record: {name: value for name, value in record.items() if name not in names}


def sound_container(message, place):
    """An edit of a part: the archive opens, what it holds is wrong."""
    return lambda part: Part(
        part.path, "damaged", None, (Defect(message, place),), part.size_bytes, part.sha256, opens=True
    )


# --- 23 to 25 ---

bad(
    "BND001",
    "another binding version",
    "data_plane_checkpoint_schema_version",
    evidence={f"{RECORD} data_plane_checkpoint_schema_version": 3},
    artifact=METADATA,
    is_incompatible=True,
)
bad(
    "BND001",
    "a binding version that is no number",
    "data_plane_checkpoint_schema_version",
    evidence={f"{RECORD} data_plane_checkpoint_schema_version": "2"},
    artifact=METADATA,
)
bad("BND001", "a snapshot in shadow mode", "shadow", evidence={f"{RECORD} mode": "shadow"}, artifact=METADATA)
bad(
    "BND001",
    "no storage was saved",
    "storage_saved",
    evidence={"metadata value storage_saved": False},
    artifact=METADATA,
)
bad("BND001", "no record at all", "user_metadata", evidence={"metadata value user_metadata": None}, artifact=METADATA)
bad("BND001", "a field is missing", "partition_id", evidence={RECORD: without("partition_id")}, artifact=METADATA)
bad(
    "BND001",
    "a field has the wrong type",
    "single_controller_epoch",
    evidence={f"{RECORD} single_controller_epoch": True},
    artifact=METADATA,
)
bad(
    "BND001",
    "the file is no JSON",
    "is not JSON",
    evidence={"metadata": lambda part: Part(part.path, "damaged", None, (Defect("is not JSON"),), 3)},
    artifact=METADATA,
)
bad(
    "BND001",
    "the save of a data plane alone was not finished",
    "not finished",
    base="data plane",
    evidence={"metadata": Part("metadata.json", "missing")},
    artifact="metadata.json",
)
for field, title in (
    ("single_controller_train_steps", "another step"),
    ("single_controller_trainer_version", "another trainer version"),
    ("single_controller_epoch", "another epoch"),
):
    bad("BND002", title, field, evidence={f"{RECORD} {field}": 7}, artifact=METADATA)
bad(
    "BND003",
    "another canonical partition",
    "partition_id",
    evidence={f"{RECORD} partition_id": "other"},
    artifact=METADATA,
)
bad(
    "BND003",
    "another sampler than the anchor's",
    "sampler_name",
    evidence={f"{RECORD} sampler_name": "other"},
    artifact=METADATA,
)

# --- 26 to 32 ---

bad(
    "BND004", "the ledger was exchanged", "not the one saved", evidence={"ledger sha256": OTHER_DIGEST}, artifact=LEDGER
)
bad(
    "BND005",
    "another number of groups",
    "rollout_recovery_group_count",
    evidence={f"{RECORD} rollout_recovery_group_count": 9},
    artifact=METADATA,
)
bad(
    "BND005",
    "another schema number",
    "rollout_recovery_schema_version",
    evidence={f"{RECORD} rollout_recovery_schema_version": 4},
    artifact=METADATA,
)
bad(
    "BND006",
    "a group was changed after the cut",
    "changed after the cut",
    evidence={"replay value groups 0 end_weight": 2},
    artifact=REPLAY,
)
bad(
    "BND006",
    "it belongs to another data plane",
    "another data plane",
    evidence={f"{RECORD} replay_manifest_digest": OTHER_DIGEST},
    artifact=REPLAY,
)
bad(
    "BND006",
    "a tag has no canonical form",
    "cannot be computed",
    evidence={"replay value groups 0 meta extra_info": {"loss": float("nan")}},
    artifact=REPLAY,
)
bad(
    "BND007",
    "another number of groups",
    "replay_group_count",
    evidence={f"{RECORD} replay_group_count": 9},
    artifact=METADATA,
)
bad(
    "BND007",
    "the file has another shape",
    "fields_data",
    evidence={"replay": sound_container("`fields_data` is not a field of this format", "fields_data")},
    artifact=REPLAY,
)
bad(
    "BND008",
    "the ledger is not advertised",
    LEDGER,
    evidence={
        RECORD: without(
            "rollout_recovery_schema_version", "rollout_recovery_payload_sha256", "rollout_recovery_group_count"
        )
    },
    artifact=METADATA,
)
bad(
    "BND008",
    "a count is missing",
    "rollout_recovery_group_count",
    evidence={RECORD: without("rollout_recovery_group_count")},
    artifact=METADATA,
)
bad(
    "BND008",
    "what is advertised is missing",
    "which is missing",
    base="anchor",
    evidence={
        "replay": Part(REPLAY, "missing"),
        "tree": lambda tree: tuple(entry for entry in tree if entry.path != REPLAY),
    },
    artifact=METADATA,
)
bad("BND009", "three files carry no digest", "train_dataloader.pt")
good("BND009", "a checksum file that lists them", base="published snapshot")
bad(
    "BND010",
    "the cursor is behind a restored target step",
    "sampler_dispatch_index",
    evidence={"cut sampler_dispatch_index": 3},
    artifact="manifest.json",
)

# --- 91 to 96 ---

WHO = ParticipantIdentity(server_name="tools", component="resources_servers", participant_name="tools")
PATH = "resources/tools/manifest.json"


def emptied(path):
    """An edit of the tree: a file without content."""
    return lambda tree: tuple(replace(entry, size_bytes=0) if entry.path == path else entry for entry in tree)


def committed(found):
    """A commit that reported OTHER_DIGEST, of which `found` is readable here."""
    return {"live": LiveFacts(committed_manifests={WHO: (PATH, OTHER_DIGEST, found)})}


good("DUR001", "no required file is empty")
good("DUR002", "nothing lies about", base="anchor")
good("DUR003", "no secret in the configuration")
good("DUR003", "secrets are redacted", evidence={"config value token_capture control_auth_token": "<redacted>"})
good("DUR003", "an anchor", base="anchor")
good("DUR004", "everything is readable here", facts=committed(OTHER_DIGEST))
good("DUR005", "an older snapshot is pruned", base="anchor", facts={"live": LiveFacts(prune=("snapshot_000001",))})
good("DUR006", "everybody works again", facts={"live": LiveFacts(phases={"tools": ("idle", None)})})
good(
    "DUR006",
    "a record names what is still to be released",
    facts={"live": LiveFacts(phases={"tools": ("prepared", "ck-1")}, pending_release_id="ck-1")},
)

bad(
    "DUR001",
    "the configuration is empty",
    "before it was synced",
    evidence={"tree": emptied("config.yaml")},
    artifact="config.yaml",
)
for name, word in (
    ("rollout_snapshots/tmp_snapshot_000003", "never finished"),
    ("rollout_snapshots/trash_snapshot_000001", "deletion was interrupted"),
    ("../tmp_step_4", "trainer removes it"),
    ("../old_step_3", "rename it back"),
    ("manifest.json.tmp", "interrupted write"),
    ("rollout_snapshots/snapshot_abc", "by its name no snapshot"),
    ("rollout_snapshots/Snapshot_000001", "by its name no snapshot"),
):
    bad("DUR002", f"it holds {name}", word, base="anchor", evidence={"anchor garbage": (name,)}, artifact=name)
bad(
    "DUR003",
    "the control token in clear",
    "token_capture.control_auth_token",
    evidence={"config value token_capture control_auth_token": "s3cret"},
    artifact="config.yaml",
)
bad("DUR004", "a participant writes elsewhere", "is the directory shared", facts=committed(None), artifact=PATH)
bad("DUR004", "another file lies here", "another digest", facts=committed("cd" * 32), artifact=PATH)
bad(
    "DUR005",
    "the newest valid snapshot is to be pruned",
    "refusing to delete",
    base="anchor",
    facts={"live": LiveFacts(prune=("snapshot_000002",))},
    artifact="rollout_snapshots/snapshot_000002",
)
bad(
    "DUR006",
    "a server is still prepared",
    "still `prepared`",
    facts={"live": LiveFacts(phases={"tools": ("prepared", "ck-1")})},
)
