"""Samples of the ANC and FPR rules."""

from dataclasses import replace

from ckptctl.domain.evidence import Part, RunFacts
from ckptctl.domain.finding import Defect
from ckptctl.domain.fingerprint import bootstrap_fingerprint, bootstrap_identity
from tests.artifacts import a_bootstrap
from tests.builders import a_bootstrap_world
from tests.rules.samples import bad, good
from tests.world import MODEL, OTHER_DIGEST, SPARE, a_config, a_server, a_topology

MANIFEST, CONFIG = "manifest.json", "config.yaml"
HERE = "manifest manifest"
for number in (1, 2, 3):
    good(f"ANC{number:03d}", "a snapshot of a step")
    good(f"ANC{number:03d}", "a snapshot of the bootstrap anchor", base="bootstrap snapshot")
good("ANC003", "a step", base="anchor")
good(
    "ANC003",
    "a step that does not say its trainer version",
    evidence={"anchor training_info value trainer_version": None},
)
good(
    "ANC004",
    "the run would write the same",
    base="bootstrap snapshot",
    facts={"run": RunFacts(bootstrap_manifest=a_bootstrap(a_bootstrap_world()))},
)
good("ANC005", "the newest snapshot is valid", base="anchor")
good("ANC005", "whether it is valid is not known", base="anchor", evidence={"anchor snapshots 0 is_valid": None})
good("ANC006", "the only snapshot matches", base="anchor")
good("ANC006", "there is no snapshot", base="anchor", evidence={"anchor snapshots": ()})
good(
    "ANC006",
    "a step without snapshots, of a run that keeps Gym state",
    base="anchor",
    evidence={"anchor snapshots": ()},
    facts={"run": RunFacts(participant_checkpointing=True)},
)
good(
    "ANC006",
    "the bootstrap anchor without snapshots, of a run that keeps Gym state",
    base="bootstrap anchor",
    evidence={"anchor snapshots": ()},
    facts={"run": RunFacts(participant_checkpointing=True)},
)


def foreign_bootstrap(seed=43, schema=4):
    """What a run with another seed, or of another build, would write."""
    config = a_bootstrap_world().config
    identity = bootstrap_identity({**config, "grpo": {**config["grpo"], "seed": seed}})
    theirs = a_bootstrap(a_bootstrap_world())
    update = {
        "bootstrap_identity": identity,
        "bootstrap_fingerprint": bootstrap_fingerprint(identity),
        "schema_version": schema,
    }
    return theirs.model_copy(update=update)


def damaged(part):
    """An edit of a part: its bytes are not what they should be."""
    return Part(
        part.path, "damaged", None, (Defect("`current_step` is missing", "current_step"),), part.size_bytes, part.sha256
    )


def with_another(**facts):
    """An edit of an anchor's snapshots: an older one beside it."""
    return lambda snapshots: (replace(snapshots[0], name="snapshot_000001", number=1, **facts), *snapshots)


# --- 10 to 15 ---

bad(
    "ANC001",
    "another step",
    "belongs to step 2",
    evidence={f"{HERE} base_train_step": 2},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "ANC001",
    "another trainer version",
    "`trainer_version`",
    base="bootstrap snapshot",
    evidence={f"{HERE} trainer_version": 1},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "ANC002",
    "a fingerprint under a step",
    "must be null",
    evidence={f"{HERE} bootstrap_fingerprint": OTHER_DIGEST},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "ANC002",
    "no fingerprint under the bootstrap anchor",
    "must be a digest",
    base="bootstrap snapshot",
    evidence={f"{HERE} bootstrap_fingerprint": None},
    artifact=MANIFEST,
    is_incompatible=True,
)
INFO = "../../training_info.json"
bad("ANC003", "no training info", "is missing", evidence={"anchor training_info": Part(INFO, "missing")}, artifact=INFO)
bad("ANC003", "damaged training info", "current_step", evidence={"anchor training_info": damaged}, artifact=INFO)
bad(
    "ANC003",
    "training info of another step",
    "`current_step` 2",
    evidence={"anchor training_info value current_step": 2},
    artifact=INFO,
)
bad(
    "ANC003",
    "training info of another trainer version",
    "`trainer_version` is 2",
    evidence={"anchor training_info value trainer_version": 2},
    artifact=INFO,
    is_incompatible=True,
)
bad(
    "ANC003",
    "a step that is still being written",
    "unfinished",
    evidence={"anchor kind": "other"},
    artifact="../../.",
)
bad(
    "ANC003",
    "an anchor that is a link",
    "a symbolic link",
    evidence={"anchor root_kind": "symlink"},
    artifact="../../.",
)
bad(
    "ANC003",
    "a step without weights",
    "no `policy/`",
    base="anchor",
    evidence={"anchor has_policy": False},
    artifact="policy",
    is_warning=True,
)
bad(
    "ANC003",
    "no bootstrap manifest",
    "is missing",
    base="bootstrap snapshot",
    evidence={"anchor bootstrap": Part("../../manifest.json", "missing")},
    artifact="../../manifest.json",
)
bad(
    "ANC003",
    "a damaged bootstrap manifest",
    "is incomplete",
    base="bootstrap snapshot",
    evidence={"anchor bootstrap": damaged},
    artifact="../../manifest.json",
)
bad(
    "ANC004",
    "another configuration",
    "grpo.seed",
    base="bootstrap snapshot",
    facts={"run": RunFacts(bootstrap_manifest=foreign_bootstrap())},
    artifact="../../manifest.json",
    is_incompatible=True,
)
bad(
    "ANC004",
    "another build",
    "schema 4; this run writes 5",
    base="bootstrap snapshot",
    facts={"run": RunFacts(bootstrap_manifest=foreign_bootstrap(42, 5))},
    artifact="../../manifest.json",
    is_incompatible=True,
)
bad(
    "ANC005",
    "an older snapshot is valid",
    "newest valid: `snapshot_000001`",
    base="anchor",
    evidence={"anchor snapshots 0 is_valid": False, "anchor snapshots": with_another(is_valid=True)},
    artifact="rollout_snapshots/snapshot_000002",
)
bad(
    "ANC005",
    "a number that is not counted",
    "does not count",
    base="anchor",
    evidence={"anchor garbage": ("rollout_snapshots/snapshot_18446744073709551615",)},
    artifact="rollout_snapshots/snapshot_18446744073709551615",
)
bad(
    "ANC005",
    "none is valid",
    "no snapshot of this anchor is valid",
    base="anchor",
    evidence={"anchor snapshots 0 is_valid": False},
)
bad(
    "ANC006",
    "the only snapshot is of another step",
    "`base_train_step` is 2",
    base="anchor",
    evidence={"anchor snapshots 0 base_train_step": 2},
    artifact="rollout_snapshots",
    is_incompatible=True,
)
bad(
    "ANC006",
    "the only snapshot is of another schema",
    "schema 7",
    base="anchor",
    evidence={"anchor snapshots 0 schema_found": 7},
    is_incompatible=True,
)
bad(
    "ANC006",
    "the only snapshot has no manifest",
    "manifest.json",
    base="anchor",
    evidence={"anchor snapshots 0 has_manifest": False},
)
bad(
    "ANC006",
    "the only snapshot has another fingerprint",
    "fingerprint",
    base="bootstrap anchor",
    evidence={"anchor snapshots 0 bootstrap_fingerprint": OTHER_DIGEST},
    is_incompatible=True,
)
bad(
    "ANC006",
    "none has the Gym state that the run needs",
    "Gym state",
    base="anchor",
    evidence={"anchor snapshots 0 has_gym": False},
    facts={"run": RunFacts(participant_checkpointing=True)},
    is_incompatible=True,
)

# --- 16 to 22 ---

good("FPR001", "the bootstrap anchor", base="bootstrap anchor")
good("FPR002", "a snapshot of the bootstrap anchor", base="bootstrap snapshot")
good("FPR003", "a snapshot of the bootstrap anchor", base="bootstrap snapshot")
good("FPR004", "the servers are as they were", facts={"capabilities": a_topology()})
good("FPR005", "the run that wrote it had the feature")
good(
    "FPR005",
    "a run without the feature, a snapshot without Gym state",
    world={"with_gym": False},
    facts={"run": RunFacts(participant_checkpointing=False)},
)
good("FPR006", "snapshot and anchor have one configuration")
good("FPR006", "only excluded paths differ", evidence={"config value checkpointing save_period": 9})
good("FPR007", "snapshot and anchor have one dataset")
good("FPR007", "the run has the dataset of the snapshot", facts={"run": RunFacts(config=a_config())})

bad(
    "FPR001",
    "the identity was changed",
    "identity stored beside it",
    base="bootstrap snapshot",
    evidence={"anchor bootstrap value bootstrap_identity config grpo seed": 43},
    artifact="../../manifest.json",
)
bad(
    "FPR002",
    "the anchor is of another configuration",
    "another configuration",
    base="bootstrap snapshot",
    evidence={"anchor bootstrap value": foreign_bootstrap()},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "FPR003",
    "the configuration was changed",
    "another fingerprint",
    base="bootstrap snapshot",
    evidence={"config value grpo seed": 43},
    artifact=CONFIG,
)
bad(
    "FPR004",
    "a server has more workers",
    "worker counts",
    facts={"capabilities": (a_server(MODEL, "responses_api_models", role="policy", workers=3), *a_topology()[1:])},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "FPR004",
    "an agent is gone",
    "is not there any more",
    facts={"capabilities": tuple(server for server in a_topology() if server.server_name != SPARE)},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "FPR005",
    "the run lacks the feature",
    "lacks Gym participant checkpointing",
    facts={"run": RunFacts(participant_checkpointing=False)},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad(
    "FPR005",
    "the configuration saved with it has the feature",
    "lacks Gym state",
    world={"with_gym": False},
    artifact=MANIFEST,
    is_incompatible=True,
)
bad("FPR006", "another seed", "grpo.seed", evidence={"config value grpo seed": 43}, artifact=CONFIG)
bad(
    "FPR007",
    "the run trains on another dataset",
    "drop the dataloader cursor",
    facts={"run": RunFacts(config={**a_config(), "data": {"train": {"dataset_name": "other"}}})},
    artifact=CONFIG,
)
