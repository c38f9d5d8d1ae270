"""Every document that ckptctl promises and the schema it is promised with, by file name in `schemas/`.

A number in a name changes only with a change that breaks a reader. What ckptctl writes has every field, null where nothing is known, so
every field is required; what people write (the configuration, saved capabilities) may leave out what has a default.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ckptctl.controller.app import openapi_document
from ckptctl.domain.checksums import ChecksumsFile
from ckptctl.domain.config import RunSections
from ckptctl.domain.finding import Report
from ckptctl.domain.inspection import DataPlaneInspection, DirectoryInspection, LiveInspection, SnapshotInspection
from ckptctl.domain.journal import JournalLine
from ckptctl.domain.manifest import SnapshotManifest
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.plan import Plan
from ckptctl.domain.restore import RestoreResult
from ckptctl.domain.retention import GcResult
from ckptctl.domain.rollout_story import RolloutInspection
from ckptctl.domain.snapshot_diff import SnapshotDiff
from ckptctl.domain.timings import TimingsInspection
from ckptctl.domain.transaction import TransactionResult
from ckptctl.hook.options import HOOKS
from ckptctl.hook.record import LONGEST_TEXT
from ckptctl.hook.verdict import FAILED, HUNG, REFUSED, WORDS
from ckptctl.render.catalogue import RuleList
from ckptctl.render.errors import ErrorReport
from ckptctl.render.help_page import HelpPage
from ckptctl.render.machine import VersionAnswer
from ckptctl.render.slurm_answers import ClaimAnswer, ScriptAnswer, ScriptList
from ckptctl.sim.answers import ClusterAnswer, DemoAnswer, FaultAnswer, RunAnswer
from ckptctl.sim.equivalence import Comparison

DIALECT = "https://json-schema.org/draft/2020-12/schema"
GYM_FIELDS = ("gym_topology_fingerprint", "gym_checkpoint")


class CapabilitiesFile(RootModel[list[DiscoveredParticipant]]):
    """Saved discovery, as `validate --capabilities` reads it: what each configured server said of itself."""


Told = Annotated[str, Field(max_length=LONGEST_TEXT)]
"""Text that came from a job or from files: data, escaped, and cut."""


class HookVerdict(BaseModel):
    """What a hook writes by hand, since it may import nothing that would make it: this is only its description."""

    model_config = ConfigDict(extra="forbid")
    schema_version: Literal[1]
    hook: str = Field(json_schema_extra={"enum": [*HOOKS]})
    job_id: Told = Field(description="as Slurm told it; the name of the file has it only where it is a number")
    restart_count: Told = Field(description="as Slurm told it; `0` where it tells none")
    node: Told
    verdict: str = Field(
        json_schema_extra={"enum": [*WORDS.values(), HUNG, REFUSED, FAILED]},
        description="as `ckptctl inspect` ended; `hung`: no answer within the deadline; `refused`: a name or a user that no honest "
        "job has; `failed`: ckptctl could not be run, or ended in another way",
    )
    exit_code: int | None = Field(
        ge=0, le=255, description="of ckptctl; null when it was not run, or did not end by itself"
    )
    reason: Told
    checkpoint_dir: Told = Field(
        description="what the job named, for a TaskProlog its configuration; empty when refused"
    )
    found_by: Literal["comment", "marker", "environment", "configuration", ""] = Field(
        description="where the job named it; empty when that was not looked at or is not known"
    )
    newest: Told = Field(
        description="the newest snapshot that is valid; empty when there is none or none was asked for"
    )
    unfinished: int | None = Field(ge=0, description="transactions that somebody must finish; null when not known")
    seconds: float = Field(ge=0)
    finished_at: float = Field(description="seconds since 1970 by the node's clock")


WRITTEN: dict[str, tuple[str, Any]] = {
    "report.v1.json": ("Answer of `ckptctl validate`", Report),
    "rules.v1.json": ("Answer of `ckptctl validate --list-rules` and `--explain`", RuleList),
    "snapshot.v1.json": ("Answer of `ckptctl snapshot`", TransactionResult),
    "publish.v1.json": ("Answer of `ckptctl publish`", TransactionResult),
    "restore.v1.json": ("Answer of `ckptctl restore`, with `--plan` and `--select` too", RestoreResult),
    "gc.v1.json": ("Answer of `ckptctl gc`", GcResult),
    "inspect-directory.v1.json": (
        "Answer of `ckptctl inspect` for a checkpoint directory or an anchor",
        DirectoryInspection,
    ),
    "inspect-snapshot.v1.json": ("Answer of `ckptctl inspect` for one snapshot", SnapshotInspection),
    "inspect-data-plane.v1.json": ("Answer of `ckptctl inspect` for a data plane alone", DataPlaneInspection),
    "inspect-rollout.v1.json": ("Answer of `ckptctl inspect --rollout`", RolloutInspection),
    "inspect-diff.v1.json": ("Answer of `ckptctl inspect --diff`", SnapshotDiff),
    "inspect-live.v1.json": ("Answer of `ckptctl inspect --live`", LiveInspection),
    "inspect-timings.v1.json": ("Answer of `ckptctl inspect --timings`", TimingsInspection),
    "hook.v1.json": ("`job-<id>.<hook>.json`: what a hook of a scheduler found", HookVerdict),
    "slurm-list.v1.json": ("Answer of `ckptctl slurm list`", ScriptList),
    "slurm-show.v1.json": ("Answer of `ckptctl slurm show`", ScriptAnswer),
    "slurm-claim.v1.json": ("Answer of `ckptctl slurm claim`", ClaimAnswer),
    "sim-cluster.v1.json": ("Answer of `ckptctl sim up`, `restart`, `down` and `status`", ClusterAnswer),
    "sim-run.v1.json": ("Answer of `ckptctl sim run` and `step`", RunAnswer),
    "sim-fault.v1.json": ("Answer of `ckptctl sim fault`", FaultAnswer),
    "sim-compare.v1.json": ("Answer of `ckptctl sim compare`", Comparison),
    "sim-demo.v1.json": ("Answer of `ckptctl sim demo`", DemoAnswer),
    "help.v1.json": ("Answer of `ckptctl help`", HelpPage),
    "version.v1.json": ("Answer of `ckptctl --version`", VersionAnswer),
    "error.v1.json": ("A failure, on stderr, with `--format json`", ErrorReport),
    "plan.v1.json": ("A plan: steps as the journal of a snapshot holds them", Plan),
}
READ: dict[str, tuple[str, Any]] = {
    "checksums.v1.json": (
        "`ckptctl-checksums.json`: every other file of a published snapshot; written with sorted keys, indent 2 and one final newline",
        ChecksumsFile,
    ),
    "journal.v1.json": ("One line of a journal in `<checkpoint_dir>/.ckptctl/journal/`", JournalLine),
    "config.v1.json": (
        "The run configuration: NeMo-RL's sections as far as ckptctl reads them, and its own",
        RunSections,
    ),
    "capabilities.v1.json": ("Saved discovery, for `ckptctl validate --capabilities`", CapabilitiesFile),
}


class WholeSchema(GenerateJsonSchema):
    """Every field of a written document is there, but for those that are left out when they were not set."""

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        """Whether a reader may rely on the field."""
        return (
            field.get("serialization_exclude_if") is None
            if field["type"] == "model-field"
            else super().field_is_required(field, total)
        )


def schema_documents() -> dict[str, JsonSchemaValue]:
    """Every schema by file name."""
    found = {
        name: _titled(name, title, TypeAdapter(model).json_schema(mode="serialization", schema_generator=WholeSchema))
        for name, (title, model) in WRITTEN.items()
    }
    for name, (title, model) in READ.items():
        found[name] = _titled(name, title, TypeAdapter(model).json_schema(mode="validation"))
    for version in (3, 4):
        found[f"snapshot-manifest.v{version}.json"] = manifest_schema(version)
    return found


def manifest_schema(version: int) -> JsonSchemaValue:
    """`manifest.json` of a snapshot. Readers pass over keys that they do not know, but not inside the Gym part."""
    schema = TypeAdapter(SnapshotManifest).json_schema(mode="validation")
    schema["properties"]["schema_version"] = {"const": version, "type": "integer"}
    schema["additionalProperties"] = True
    schema["description"] = "Keys beside these are passed over with a warning; inside `gym_checkpoint` none is allowed."
    if version == 3:
        schema["description"] = "Keys beside these are passed over with a warning."
        for name in GYM_FIELDS:
            del schema["properties"][name]
        del schema["$defs"]
    schema["required"] = list(schema["properties"])
    return _titled(f"snapshot-manifest.v{version}.json", f"`manifest.json` of a snapshot, schema {version}", schema)


def openapi() -> dict[str, Any]:
    """The controller interface."""
    return openapi_document()


def _titled(name: str, title: str, schema: JsonSchemaValue) -> JsonSchemaValue:
    return {"$schema": DIALECT, "$id": name, **schema, "title": title}
