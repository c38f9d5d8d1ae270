"""Was the snapshot taken under this configuration and topology? Invariants 16 to 22.

How a fingerprint is computed is `domain.fingerprint`'s; which anchor a snapshot lies in is `anchor`'s. Upstream checks the
bootstrap fingerprint and the topology only; that steps have no configuration check at all is why 21 and 22 exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.fingerprint import (
    bootstrap_fingerprint,
    config_fingerprint,
    projection_differences,
    topology_fingerprint,
)
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.safe_text import shown
from ckptctl.rules._model import CannotRunError, NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules.anchor import anchor_file, anchor_of
from ckptctl.rules.manifest import MANIFEST_FILE, manifest_of

CONFIG_FILE = "config.yaml"
FINGERPRINT = "bootstrap_fingerprint"
FEATURE = ("rollout_checkpointing", "gym", "participant_checkpointing_enabled")
DATASET = ("data", "train")
PATHS_SHOWN = 10


def config_of(part: Part[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A decoded configuration. Raises CannotRunError."""
    return value_of(part)


def setting(config: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path of keys; None when it is not there."""
    value: Any = config
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def check_stored_digest(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 16."""
    stored = value_of(anchor_of(evidence).bootstrap, "ANC003")
    if stored.bootstrap_identity is None:
        raise CannotRunError("the bootstrap anchor stores no identity: it is of schema 1 or 2")
    try:
        computed = bootstrap_fingerprint(stored.bootstrap_identity)
    except ValueError as error:
        raise CannotRunError(f"the stored identity: {error}") from error
    if computed != stored.bootstrap_fingerprint:
        yield Violation(
            f"`{FINGERPRINT}` does not match the identity stored beside it",
            anchor_file(evidence, MANIFEST_FILE),
            FINGERPRINT,
            computed,
            stored.bootstrap_fingerprint,
        )


def check_same_fingerprint(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 17."""
    wanted = value_of(anchor_of(evidence).bootstrap, "ANC003").bootstrap_fingerprint
    found = manifest_of(evidence).bootstrap_fingerprint
    if found is not None and found != wanted:
        what = f"snapshot was taken under another configuration than its anchor: the `{FINGERPRINT}`s differ"
        yield Violation(what, MANIFEST_FILE, FINGERPRINT, wanted, found, incompatible=True)


def check_config_fingerprint(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 18. The dump went through YAML, so this is unspecified upstream and only a warning."""
    wanted = manifest_of(evidence).bootstrap_fingerprint
    if wanted is None:
        raise NotAskedError(f"the manifest has no `{FINGERPRINT}`")
    try:
        computed = config_fingerprint(config_of(evidence.config))
    except ValueError as error:
        raise CannotRunError(f"`{CONFIG_FILE}`: {error}") from error
    if computed != wanted:
        what = f"`{CONFIG_FILE}` gives another fingerprint than the manifest: it may belong to another run"
        yield Violation(what, CONFIG_FILE, "", wanted, computed)


def check_topology(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 19; names what can be told from the saved participants."""
    manifest, discovered = manifest_of(evidence), evidence.capabilities or ()
    wanted, computed = manifest.gym_topology_fingerprint, topology_fingerprint(discovered)
    if wanted is None or wanted == computed:
        return
    told = (
        "; ".join(_topology_changes(evidence, discovered))
        or "compare worker counts and modes of the servers with those at the save"
    )
    what = f"Gym topology changed: {told}"
    yield Violation(what, MANIFEST_FILE, "gym_topology_fingerprint", wanted, computed, incompatible=True)


def _topology_changes(evidence: Evidence, discovered: tuple[DiscoveredParticipant, ...]) -> Iterator[str]:
    gym = manifest_of(evidence).gym_checkpoint
    saved = (
        {
            (entry.participant.component, entry.participant.participant_name): entry.participant
            for entry in gym.participants
        }
        if gym
        else {}
    )
    found = {(item.capabilities.component, item.capabilities.name): item for item in discovered}
    for key, participant in sorted(saved.items()):
        item = found.get(key)
        if item is None:
            yield f"`{participant.participant_name}` is not there any more"
        elif item.server_name != participant.server_name:
            yield f"`{participant.participant_name}` `server_name` `{participant.server_name}` -> `{item.server_name}`"
        elif item.capabilities.checkpoint_mode != "export_restore":
            yield f"`{participant.participant_name}` `checkpoint_mode` `export_restore` -> `{item.capabilities.checkpoint_mode}`"
    for key, item in sorted(found.items()):
        if key not in saved and item.capabilities.checkpoint_mode == "export_restore":
            yield f"`{item.capabilities.name}` exports state now and did not at the save"


def check_gym_feature(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 20: against the run's configuration where it is known, else against the snapshot's own."""
    wanted = evidence.run.participant_checkpointing
    source = "the run"
    if wanted is None:
        wanted = setting(config_of(evidence.config), FEATURE) is True
        source = f"the run that wrote `{CONFIG_FILE}`"
    if wanted != evidence.has_gym:
        yield Violation(
            f"{source} {'has' if wanted else 'lacks'} Gym participant checkpointing, "
            f"the snapshot {'holds' if evidence.has_gym else 'lacks'} Gym state",
            MANIFEST_FILE,
            "gym_checkpoint",
            "an object" if wanted else "null",
            "an object" if evidence.has_gym else "null",
            incompatible=True,
        )


def check_config_drift(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 21, one finding per changed path."""
    ours, theirs = config_of(evidence.config), value_of(anchor_of(evidence).config)
    try:
        differences = projection_differences(theirs, ours)
    except ValueError as error:
        raise CannotRunError(f"the configurations cannot be compared: {error}") from error
    for difference in differences:
        path = difference.split(" ", 1)[0]
        what = f"configuration of snapshot and anchor differ at `{path}`: {difference[len(path) :].strip()}"
        yield Violation(what, CONFIG_FILE, path)


def check_dataset(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 22: against the run's configuration where it is known, else against the anchor's."""
    ours = setting(config_of(evidence.config), DATASET)
    if evidence.run.config is not None:
        theirs, whose = setting(evidence.run.config, DATASET), "this run"
    else:
        anchor = anchor_of(evidence)
        if anchor.config.state == "missing":
            raise NotAskedError("neither the run's nor the anchor's configuration is known")
        theirs, whose = setting(value_of(anchor.config), DATASET), f"anchor `{anchor.name}`"
    if ours != theirs:
        yield Violation(
            f"train dataset changed between the snapshot and {whose}: NeMo-RL will drop the dataloader cursor and keep the rest",
            CONFIG_FILE,
            ".".join(DATASET),
            shown(_dataset_name(theirs)),
            shown(_dataset_name(ours)),
        )


def _dataset_name(dataset: Any) -> Any:
    return dataset.get("dataset_name", dataset) if isinstance(dataset, Mapping) else dataset


RULES: tuple[Rule, ...] = (
    Rule(
        id="FPR001",
        invariant=16,
        name="bootstrap-digest-mismatch",
        summary="The bootstrap anchor's fingerprint is the digest of the identity that it stores.",
        why="The digest is all that snapshots carry; if it is not of this identity, nobody knows whose they are.",
        hint="The anchor's manifest was changed by hand or damaged; start afresh in an empty checkpoint directory.",
        severity="error",
        level="quick",
        check=check_stored_digest,
        needs=("bootstrap_anchor",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="FPR002",
        invariant=17,
        name="snapshot-of-another-configuration",
        summary="A snapshot of the bootstrap anchor carries the anchor's fingerprint.",
        why="Before the first trainer checkpoint the configuration is the only thing that tells two runs apart.",
        hint="Use a snapshot with the anchor's fingerprint, or start afresh.",
        severity="error",
        level="quick",
        check=check_same_fingerprint,
        requires=("MAN003", "MAN004"),
        needs=("bootstrap_anchor",),
    ),
    Rule(
        id="FPR003",
        invariant=18,
        name="config-of-another-run",
        summary="The fingerprint recomputed from the snapshot's `config.yaml` is the manifest's.",
        why="NeMo-RL never compares the two, and reads the dataset of this file at restore.",
        hint="Compare the file with the run's configuration before you restore.",
        severity="warning",
        level="standard",
        check=check_config_fingerprint,
        requires=("MAN003", "MAN004"),
        needs=("bootstrap_anchor",),
    ),
    Rule(
        id="FPR004",
        invariant=19,
        name="changed-topology",
        summary="The discovered Gym topology has the fingerprint that the manifest names.",
        why="Saved state can only go back to the same servers with the same worker counts and modes.",
        hint="Start the servers as they were at the save: same names, components, worker counts and modes.",
        severity="error",
        level="standard",
        check=check_topology,
        requires=("MAN003", "MAN004", "MAN006"),
        needs=("gym", "capabilities"),
    ),
    Rule(
        id="FPR005",
        invariant=20,
        name="gym-feature-mismatch",
        summary="The snapshot holds Gym state exactly when participant checkpointing is on.",
        why="A run with the feature cannot start from a snapshot without Gym state, and the other way round.",
        hint="Set `rollout_checkpointing.gym.participant_checkpointing_enabled` as it was, or use another snapshot.",
        severity="error",
        level="standard",
        check=check_gym_feature,
        requires=("MAN003", "MAN004"),
    ),
    Rule(
        id="FPR006",
        invariant=21,
        name="config-differs-from-anchor",
        summary="The configurations of a step's snapshot and of the step agree outside the excluded paths.",
        why="Snapshots of a step carry no fingerprint, so nothing upstream notices that the run was changed in between.",
        hint="Look at the named path: if the change was meant, the warning can be ignored.",
        severity="warning",
        level="standard",
        check=check_config_drift,
        requires=("MAN003", "MAN004"),
        needs=("step_anchor",),
    ),
    Rule(
        id="FPR007",
        invariant=22,
        name="changed-dataset",
        summary="The train dataset of the snapshot is the one of the run.",
        why="NeMo-RL silently skips the dataloader cursor of another dataset, but restores ledger and rows all the same.",
        hint="Run with the dataset of the snapshot, or accept that its prompts start from the beginning.",
        severity="warning",
        level="standard",
        check=check_dataset,
        requires=("MAN003", "MAN004"),
        needs=("anchor",),
    ),
)
