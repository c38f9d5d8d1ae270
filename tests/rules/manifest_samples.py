"""Samples of the MAN rules."""

from dataclasses import replace

from ckptctl.domain.evidence import ManifestReading, Part, TreeEntry
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.tq_checkpoint import decode_controller_state
from ckptctl.formats.tq_writer import encode_controller_state
from tests.builders import APPEND
from tests.rules.samples import bad, good
from tests.sample_list import PICKLE_THAT_CALLS, STATES
from tests.world import MODEL, OTHER_DIGEST

MANIFEST = "manifest.json"
for number in range(1, 11):
    good(f"MAN{number:03d}", "a snapshot of a step, with Gym state", **({} if number != 8 else {"base": "anchor"}))
good("MAN001", "any number of digits is read", world={"name": "snapshot_17"})
good("MAN004", "schema 3 without Gym state", world={"with_gym": False, "schema_version": 3})
good("MAN006", "neither Gym state nor a topology", world={"with_gym": False})
good(
    "MAN009",
    "an anchor holds whatever its trainer put there",
    base="anchor",
    evidence={"tree": APPEND(TreeEntry(".metadata", "file", 9))},
)
good("MAN009", "a data plane alone", base="data plane")
good(
    "MAN009",
    "the checksum file belongs to a snapshot",
    evidence={"tree": APPEND(TreeEntry("ckptctl-checksums.json", "file", 9))},
)
good("MAN010", "a data plane alone", base="data plane")


def dropped(path):
    """An edit of the tree: one name gone."""
    return lambda tree: tuple(entry for entry in tree if entry.path != path)


def changed(path, **facts):
    """An edit of the tree: one entry changed."""
    return lambda tree: tuple(replace(entry, **facts) if entry.path == path else entry for entry in tree)


def added(path, kind="file", **facts):
    """An edit of the tree: one name more, in its place."""
    return lambda tree: tuple(sorted((*tree, TreeEntry(path, kind, **facts)), key=lambda entry: entry.path))


def another_snapshot(snapshots):
    """An edit of an anchor's snapshots: a second directory with the same number."""
    return (*snapshots, replace(snapshots[0], name="snapshot_2", checkpoint_id=None))


def unread(*defects):
    """A manifest whose bytes are no JSON object."""
    part = Part(MANIFEST, "damaged", None, defects, 9, OTHER_DIGEST)
    return ManifestReading(part, document_defects=defects)


def with_counters(**facts):
    """An edit of the reading: counters that are wrong."""
    return lambda reading: replace(reading, manifest=None, **facts)


def of_schema(number):
    """An edit of the reading: another schema."""
    return lambda reading: replace(
        reading, schema_found=number, manifest=None, raw={**reading.raw, "schema_version": number}
    )


# --- 1 to 3 ---

bad(
    "MAN001",
    "it is not published",
    "never select",
    facts={"name": "tmp_snapshot_000002"},
    evidence={"anchor snapshots": ()},
)
bad("MAN001", "it lies outside of any anchor", "rollout_snapshots", facts={"anchor": None})
bad(
    "MAN001", "two directories have one number", "same sequence number", evidence={"anchor snapshots": another_snapshot}
)
bad("MAN001", "it is a link", "symbolic link", facts={"root_kind": "symlink"})
bad(
    "MAN002",
    "a file is missing",
    "train_dataloader.pt` is missing",
    evidence={"tree": dropped("train_dataloader.pt"), "dataloader": Part("train_dataloader.pt", "missing")},
    artifact="train_dataloader.pt",
)
bad(
    "MAN002",
    "a file is a named pipe",
    "named pipe",
    evidence={"tree": changed("rollout_recovery.pt", kind="fifo"), "ledger": Part("rollout_recovery.pt", "damaged")},
    artifact="rollout_recovery.pt",
    also=("MAN009",),
)
bad(
    "MAN003",
    "a key stands twice",
    "trainer_version",
    facts={"manifest": unread(Defect("the key `trainer_version` stands twice", "trainer_version"))},
    artifact=MANIFEST,
)
bad(
    "MAN003",
    "a counter is a boolean",
    "found true",
    evidence={
        "manifest": with_counters(
            counter_defects=(Defect("`trainer_version` must be an integer, found true", "trainer_version"),)
        )
    },
    artifact=MANIFEST,
)
bad(
    "MAN003",
    "an unknown key is only a warning",
    "colour",
    evidence={"manifest unknown_keys": ("colour",)},
    is_warning=True,
    artifact=MANIFEST,
)

# --- 4 ---

for number in (1, 2, 5, 6, 7):
    bad(
        "MAN004",
        f"schema {number}",
        f"schema {number}",
        evidence={"manifest": of_schema(number)},
        artifact=MANIFEST,
        is_incompatible=True,
    )
bad("MAN004", "no number at all", "schema_version", evidence={"manifest": of_schema(True)}, artifact=MANIFEST)
bad("MAN004", "null for a number", "has null as", evidence={"manifest": of_schema(None)}, artifact=MANIFEST)
bad(
    "MAN004",
    "Gym state of generation B",
    "generation B",
    evidence={"tree": added("gym_checkpoint.json")},
    artifact="gym_checkpoint.json",
    is_incompatible=True,
)
bad("MAN004", "schema 3 with Gym state", "no Gym state", evidence={"manifest schema_found": 3}, artifact=MANIFEST)
bad(
    "MAN004",
    "schema 4 with cut proofs",
    "gym_generation_cut_proofs",
    evidence={"manifest raw gym_generation_cut_proofs": [{}]},
    artifact=MANIFEST,
)
bad("MAN004", "the mark of schema 1", "COMMITTED", evidence={"tree": added("COMMITTED")}, artifact="COMMITTED")
bad(
    "MAN004",
    "the mark of schema 1 beside it",
    "LATEST",
    evidence={"anchor foreign_markers": ("LATEST",)},
    artifact="../LATEST",
    is_warning=True,
)

# --- 5 to 7 ---

GYM = "manifest manifest gym_checkpoint participants 0"
bad(
    "MAN005",
    "the two digests of an entry differ",
    "digest",
    evidence={f"{GYM} payload manifest_digest": OTHER_DIGEST},
    artifact=MANIFEST,
)
bad(
    "MAN005",
    "entry and reference name different participants",
    "different participants",
    evidence={f"{GYM} manifest participant server_name": "somebody"},
    artifact=MANIFEST,
)
bad(
    "MAN005",
    "a participant is listed twice",
    "listed twice",
    evidence={"manifest manifest gym_checkpoint participants": lambda entries: (*entries, entries[0])},
    artifact=MANIFEST,
)
bad(
    "MAN005",
    "the reader refused something in it",
    "checkpoint_id",
    evidence={
        "manifest gym_defects": (
            Defect("`gym_checkpoint.checkpoint_id` must be an id", "gym_checkpoint.checkpoint_id"),
        ),
        "manifest manifest gym_checkpoint": None,
    },
    artifact=MANIFEST,
)
bad(
    "MAN006",
    "Gym state without a fingerprint",
    "gym_topology_fingerprint",
    evidence={"manifest manifest gym_topology_fingerprint": None},
    artifact=MANIFEST,
)
bad(
    "MAN006",
    "a fingerprint without Gym state is only a warning",
    "no Gym state",
    world={"with_gym": False, "config rollout_checkpointing gym participant_checkpointing_enabled": False},
    evidence={"manifest manifest gym_topology_fingerprint": OTHER_DIGEST},
    artifact=MANIFEST,
    is_warning=True,
)
LEDGER_FOLDER = f"model-ledger/{MODEL}"
bad(
    "MAN007",
    "the ledger manifest counts cuts",
    "generation cuts",
    evidence={"models 0 manifest value generation_cut_records": 1},
    artifact=f"{LEDGER_FOLDER}/manifest.json",
)
bad(
    "MAN007",
    "the ledger manifest has a digest of cuts",
    "generation cuts",
    evidence={"models 0 manifest value generation_cuts_sha256": OTHER_DIGEST},
    artifact=f"{LEDGER_FOLDER}/manifest.json",
)
bad(
    "MAN007",
    "a storage reference of another kind",
    "generation cuts",
    evidence={"models 0 storage_references value 0 kind": "generation_prefix_cut"},
    artifact=f"{LEDGER_FOLDER}/storage-references.jsonl",
)
bad(
    "MAN007",
    "an event in the lineage",
    "generation cuts",
    evidence={"models 0 lineage * value 2 event": "generation_cut"},
    artifact=f"{LEDGER_FOLDER}/lineage-part-000000.tar",
)

# --- 8 to 10 ---

bad(
    "MAN008",
    "the anchor has the buffer of an older build",
    "legacy",
    evidence={"anchor has_legacy_buffer": True},
    artifact="../../replay_buffer.pt",
)
bad(
    "MAN009",
    "a link",
    "symbolic link",
    evidence={"tree": added("resources/tools/extra.json", "symlink")},
    artifact="resources/tools/extra.json",
)
for title, word, tree, artifact in (
    ("a file that does not belong", "not part of the format", added("notes.txt"), "notes.txt"),
    (
        "a folder that does not belong",
        "not part of the format",
        added("resources/other", "directory"),
        "resources/other",
    ),
    (
        "a session that the manifest does not list",
        "not listed",
        added("resources/tools/g9_g0.a0.json"),
        "resources/tools/g9_g0.a0.json",
    ),
    ("a temporary file", "interrupted write", added("resources/tools/.manifest-1"), "resources/tools/.manifest-1"),
    ("a half-written data plane", "interrupted write", added("data_plane.tmp", "directory"), "data_plane.tmp"),
    ("a file that everybody can change", "changed by everybody", changed("config.yaml", mode=0o666), "config.yaml"),
    ("a set-id bit", "set-id", changed("config.yaml", mode=0o4644), "config.yaml"),
    ("a file that its owner cannot read", "cannot be read", changed("config.yaml", mode=0o044), "config.yaml"),
    ("a socket", "a socket", changed("config.yaml", kind="socket"), None),
):
    if title != "a socket":
        bad("MAN009", title, word, evidence={"tree": tree}, artifact=artifact, is_warning=True)
bad(
    "MAN010",
    "the dataloader state is no zip",
    "cannot be read",
    evidence={
        "dataloader": lambda part: Part(
            part.path, "damaged", None, (Defect("is no zip archive"),), part.size_bytes, part.sha256
        )
    },
    artifact="train_dataloader.pt",
)
bad(
    "MAN010",
    "the dataloader state is empty",
    "empty",
    evidence={"dataloader": lambda part: Part(part.path, "damaged", None, (Defect("is no zip archive"),))},
    artifact="train_dataloader.pt",
)


def remembering(node):
    """An edit of the controller's state: written with `node` in the sampler's memory, and read again."""

    def edit(part):
        written = encode_controller_state(part.value)
        pickled = (written[:2] + written[11:]).replace(STATES + b"}", STATES + write_pickle(node, 5)[11:-1])
        try:
            return replace(part, value=decode_controller_state(BytesSource(pickled), DEFAULT_LIMITS))
        except DefectError as error:
            return Part(part.path, "damaged", None, error.defects, part.size_bytes, part.sha256)

    return edit


good("MAN010", "a sampler that remembers numbers", evidence={"controller_state": remembering({"train": [[0, 1], [2]]})})
bad(
    "MAN010",
    "a pickle in the sampler's memory",
    "it holds a tensor stream outside a tensor, which would be unpickled with it (sampler)",
    evidence={
        "controller_state": remembering(
            {"train": [Call(Global("torch.storage", "_load_from_bytes"), (PICKLE_THAT_CALLS,))]}
        )
    },
    artifact="data_plane/controller_state.pkl",
)
good("MAN011", "a pack that was read to its end", base="pack")


def broken(message, location):
    """An edit of a pack: one thing wrong with it."""
    return lambda part: replace(part, state="damaged", value=None, defects=(Defect(message, location),))


bad(
    "MAN011",
    "a frame that was cut short",
    "`step_3.snapshot_000002.tar.zst` is damaged: frame 1 is cut off (compressed byte 200000)",
    base="pack",
    evidence={"pack": broken("frame 1 is cut off", "compressed byte 200000")},
    artifact="",
)
bad(
    "MAN011",
    "a link, which another program would follow",
    "member `a` is a symbolic link",
    base="pack",
    evidence={"pack": broken("member `a` is a symbolic link", "byte 512")},
)
