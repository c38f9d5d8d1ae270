"""Is this a snapshot, of which schema, and does its manifest make sense? Invariants 1 to 9 and 97 (`layout` and `containers`).

Which bytes are a manifest is `formats.snapshot_manifest`'s decision, which words a refused schema gets `domain.schemas`'; this
module decides what a breach is. Its Gym part is `gym_manifest`'s, files and containers are `layout`'s and `containers`'. Whether
manifest and anchor fit together is `anchor`'s business, what participants wrote `participant`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import MAX_SNAPSHOT_NUMBER, is_uncounted, snapshot_number
from ckptctl.domain.safe_text import shown
from ckptctl.domain.schemas import foreign_marker, is_schema_number, schema_refusal
from ckptctl.domain.wrong_kind import LINKED_HINT, MISPLACED_HINT
from ckptctl.rules._model import CannotRunError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules.containers import check_containers, check_pack
from ckptctl.rules.gym_manifest import (
    MANIFEST_FILE,
    check_generation_cuts,
    check_gym_shape,
    check_topology_presence,
    gym_of,
    manifest_defect,
    manifest_of,
)
from ckptctl.rules.layout import (
    KIND_WORDS,
    REQUIRED_FILES,
    check_layout,
    demand_tree,
    entries_by_path,
    is_our_layout,
    top_names,
)

CUT_PROOFS = "gym_generation_cut_proofs"


def check_place(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 1."""
    number = snapshot_number(evidence.name)
    if evidence.root_kind != "directory":
        kind = KIND_WORDS[evidence.root_kind]
        yield Violation(
            f"`{evidence.name}` is {kind}, not a directory: nothing behind it was read",
            expected="a directory",
            actual=kind,
            hint=LINKED_HINT if evidence.root_kind == "symlink" else MISPLACED_HINT,
        )
    if is_uncounted(evidence.name):
        yield Violation(
            f"`{evidence.name}` has a number above {MAX_SNAPSHOT_NUMBER}: it is not counted, but NeMo-RL would take it for the "
            "newest; move it away",
            expected=f"at most {MAX_SNAPSHOT_NUMBER}",
            actual=evidence.name,
        )
    elif number is None:
        yield Violation(
            f"`{evidence.name}` is not the name of a published snapshot: NeMo-RL will never select it",
            expected="snapshot_<digits>",
            actual=evidence.name,
        )
    if evidence.anchor is None:
        yield Violation(
            f"`{evidence.name}` does not lie in `rollout_snapshots/` of an anchor, so its trainer state is unknown",
            expected="<step_N or bootstrap>/rollout_snapshots/",
        )
        return
    for other in evidence.anchor.snapshots:
        if other.number == number and other.name != evidence.name:
            yield Violation(
                f"`{evidence.name}` and `{other.name}` have the same sequence number: the order of snapshots is ambiguous",
                location=f"{evidence.anchor.name}/rollout_snapshots",
                actual=other.name,
            )


def check_required_files(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 2. Which files another schema demands is unknown, so there only the manifest is asked for."""
    demand_tree(evidence)
    entries = entries_by_path(evidence)
    for path in REQUIRED_FILES if is_our_layout(evidence) else (MANIFEST_FILE,):
        entry = entries.get(path)
        if entry is None:
            yield Violation(
                f"`{path}` is missing: the snapshot cannot be restored completely",
                path,
                expected="a file",
                actual="nothing",
            )
        elif entry.kind != "file":
            kind = KIND_WORDS[entry.kind]
            yield Violation(
                f"`{path}` is {kind}, not a file: the snapshot cannot be restored completely",
                path,
                expected="a file",
                actual=kind,
            )


def check_manifest(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 3. The counters of an unsupported schema are not judged."""
    reading = evidence.manifest
    if reading.raw is None and not reading.document_defects:
        value_of(reading.part)
    defects = reading.document_defects
    if not defects and is_our_layout(evidence):
        defects = reading.counter_defects
    for defect in defects:
        yield manifest_defect(defect)
    schema = "a manifest without a schema" if reading.schema_found is None else f"schema {reading.schema_found}"
    for key in reading.unknown_keys:  # cut proofs are never among them
        if is_our_layout(evidence):
            yield Violation(
                f"`{MANIFEST_FILE}` has the key `{key}`, which {schema} does not know: it is ignored",
                MANIFEST_FILE,
                key,
                expected="no such key",
                warning=True,
            )


def check_schema(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 4. A schema that is only another one makes a snapshot incompatible, a contradiction makes it invalid."""
    reading, names = evidence.manifest, top_names(evidence)
    found = reading.schema_found
    foreign = foreign_marker(names)
    if reading.raw is None and foreign is None:
        raise CannotRunError("there is no manifest to look into", because=("MAN002", "MAN003"))
    has_field = reading.raw is not None and "schema_version" in reading.raw
    refusal = schema_refusal(found, names, is_null=has_field and found is None)
    if refusal is not None:
        anchor = f" (its anchor is `{evidence.anchor.name}`)" if evidence.anchor is not None else ""
        if foreign is not None:
            yield Violation(f"{refusal}{anchor}", foreign, expected="no such entry", actual="there", incompatible=True)
            return
        yield Violation(
            f"{refusal}{anchor}",
            MANIFEST_FILE,
            "schema_version",
            expected="schema_version 3 or 4",
            actual=shown(found) if has_field else "no `schema_version`",
            incompatible=is_schema_number(found),
        )
        return
    assert reading.raw is not None, "a readable schema was found in it"
    if found == 3 and reading.raw.get("gym_checkpoint") is not None:
        yield _contradiction(
            "schema 3 has no Gym state, but `gym_checkpoint` is set", "gym_checkpoint", "null or absent", "set"
        )
    if found == 4 and reading.raw.get(CUT_PROOFS):
        message = f"schema 4 has no generation cuts, but `{CUT_PROOFS}` is not empty"
        yield _contradiction(message, CUT_PROOFS, "empty or absent", shown(reading.raw[CUT_PROOFS]))
    if "COMMITTED" in names:
        yield Violation(
            f"`COMMITTED` belongs to schemas 1 and 2, but the manifest says schema {found}",
            "COMMITTED",
            expected="no marker file",
            actual="there",
        )
    for marker in evidence.anchor.foreign_markers if evidence.anchor is not None else ():
        yield Violation(
            f"`{marker}` beside the snapshots belongs to schemas 1 and 2: a run of another build wrote here",
            f"../{marker}",
            expected="no marker file",
            actual="there",
            warning=True,
        )


def _contradiction(message: str, location: str, expected: str, actual: str) -> Violation:
    return Violation(f"`{MANIFEST_FILE}`: {message}", MANIFEST_FILE, location, expected=expected, actual=actual)


def check_legacy_buffer(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 8, for the target and for the anchor that it lies in."""
    entries = entries_by_path(evidence)
    message = "legacy `replay_buffer.pt` found: this checkpoint predates TransferQueue snapshots; NeMo-RL refuses it"
    if "replay_buffer.pt" in entries and "replay_buffer_metadata.pt" not in entries:
        yield Violation(
            message, "replay_buffer.pt", expected="`replay_buffer_metadata.pt` beside it", actual="it alone"
        )
    if evidence.kind == "snapshot" and evidence.anchor is not None and evidence.anchor.has_legacy_buffer:
        yield Violation(
            message, "../../replay_buffer.pt", expected="`replay_buffer_metadata.pt` beside it", actual="it alone"
        )


__all__ = ["MANIFEST_FILE", "RULES", "gym_of", "manifest_of"]

RULES: tuple[Rule, ...] = (
    Rule(
        id="MAN001",
        invariant=1,
        name="misplaced-snapshot",
        summary="A snapshot is a directory `snapshot_<digits>` in `rollout_snapshots/` of an anchor, and its number is its own.",
        why="Place and number decide what a restore selects; two equal numbers have no order, and a link can change under us.",
        hint="Move the directory to where it belongs, or delete the one of two equal numbers that is not wanted.",
        severity="error",
        level="quick",
        check=check_place,
    ),
    Rule(
        id="MAN002",
        invariant=2,
        name="missing-required-file",
        summary="Every file that a restore reads is there and is a regular file.",
        why="NeMo-RL fails on some missing files and starts with an empty buffer on others, the cursor already moved on.",
        hint="Use an older snapshot; if this one was copied, copy it again completely.",
        severity="error",
        level="quick",
        check=check_required_files,
    ),
    Rule(
        id="MAN003",
        invariant=3,
        name="unparsable-manifest",
        summary="`manifest.json` is a strict JSON object with seven counters and two fingerprints of the right types.",
        why="Everything else is judged by it; a manifest that only some parsers accept says different things to each.",
        hint="Use an older snapshot; the manifest is written last and once, so a damaged one was changed or torn afterwards.",
        severity="error",
        level="quick",
        check=check_manifest,
    ),
    Rule(
        id="MAN004",
        invariant=4,
        name="unsupported-schema",
        summary="The snapshot is of schema 3 or 4 and bears no mark of another schema.",
        why="The experimental format keeps no compatibility: numbers and layouts differ in what must be restored together.",
        hint="Restore it with the NeMo-RL build that wrote it; or restart from the trainer anchor it lies in, if that one is "
        "complete (weights included): `ckptctl validate` of the anchor tells.",
        severity="error",
        level="quick",
        check=check_schema,
    ),
    Rule(
        id="MAN005",
        invariant=5,
        name="malformed-gym-checkpoint",
        summary="`gym_checkpoint` has exactly the known fields, each participant once, and both digests of an entry are equal.",
        why="It alone lists what the Gym servers wrote; a contradiction leaves open which files belong to the snapshot.",
        hint="Use an older snapshot, and report the coordinator that wrote this manifest.",
        severity="error",
        level="quick",
        check=check_gym_shape,
        requires=("MAN003", "MAN004"),
    ),
    Rule(
        id="MAN006",
        invariant=6,
        name="gym-state-without-topology",
        summary="A manifest with Gym state has a topology fingerprint.",
        why="Without it nobody can tell whether the servers that run now are the ones whose state was saved.",
        hint="Use an older snapshot; this one cannot be matched with any topology.",
        severity="error",
        level="quick",
        check=check_topology_presence,
        requires=("MAN003", "MAN004"),
    ),
    Rule(
        id="MAN007",
        invariant=7,
        name="generation-cut",
        summary="Nothing in the snapshot records a cut inside a generation.",
        why="A generation cut needs a restore path that schema 4 builds do not have; they would resume at the wrong token.",
        hint="Restore it with a NeMo-RL build that supports prefix cuts, or use an older snapshot.",
        severity="error",
        level="standard",
        check=check_generation_cuts,
        requires=("MAN003", "MAN004", "MAN005"),
        needs=("gym",),
    ),
    Rule(
        id="MAN008",
        invariant=8,
        name="legacy-buffer",
        summary="There is no `replay_buffer.pt` without `replay_buffer_metadata.pt`.",
        why="The old buffer format holds tensors in a pickle; builds with TransferQueue stop when they find it.",
        hint="Restart from a checkpoint of this build, or restore with the build that wrote the buffer.",
        severity="error",
        level="quick",
        check=check_legacy_buffer,
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="MAN009",
        invariant=9,
        name="foreign-file",
        summary="The tree holds exactly the files of the format: plain files and directories, ordinary modes, distinct names.",
        why="What does not belong was left by a torn write or put there by somebody; a link can lead out of the snapshot.",
        hint="Put a file of the format back as a readable regular file of its own; move away what is not of the format.",
        severity="error",
        level="quick",
        check=check_layout,
        requires=("MAN004",),
        targets=("snapshot", "anchor", "data_plane"),
    ),
    Rule(
        id="MAN010",
        invariant=97,
        name="unreadable-container",
        summary="Every archive, pickle and torch file is whole, of known words and within limits, and hides no other pickle.",
        why="A restore would fail on it half-way; a pickle that names something unknown may run code when it is loaded.",
        hint="Do not load the file with anything else; use an older snapshot.",
        severity="error",
        level="standard",
        check=check_containers,
        requires=("MAN004",),
        targets=("snapshot", "anchor", "data_plane"),
    ),
    Rule(
        id="MAN011",
        invariant=97,
        name="damaged-pack",
        summary="A packed snapshot is a whole zstd file with a tar of plain files and directories, each name once.",
        why="What cannot be read back is no copy, and an archive that two programs unpack differently proves nothing.",
        hint="Use another copy of the snapshot; if this is the only one, unpack what can be read and validate that.",
        severity="error",
        level="quick",
        check=check_pack,
        targets=("pack",),
    ),
)
