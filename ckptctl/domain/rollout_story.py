"""What `inspect --rollout ID` answers: everything that one snapshot, or each of a run, says of one rollout.

Texts that came from files are made safe when the documents are made. How the story is put together is `planning.rollout_story`'s
business; what a restore does with the rollout is told in the restore planner's own words.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ckptctl.domain.document import Count, Document
from ckptctl.domain.finding import Finding, Level, SafeText, VerdictName
from ckptctl.domain.inspection import Counts, SafeKey

RowState = Literal["stored", "not_produced", "dangling", "missing", "not_known"]
Decision = Literal["continue", "restart", "reuse", "finished", "nothing", "refused"]


class StoryBoundary(Document):
    """The durable point that an agent saved."""

    agent: SafeText
    kind: SafeText
    boundary_index: Count
    turn_index: Count
    last_call: SafeText | None = Field(description="the last model call whose answer it holds")
    last_capture_key: SafeText | None
    pending_action: Count | None = Field(
        description="which action of a model's answer comes next; null after a whole turn"
    )
    revisions: Counts | None = Field(description="resources server -> revision that it needs; null: none recorded")
    created_at: float


class StoryCall(Document):
    """One model call, as the policy model's lineage has it."""

    model: SafeText
    model_call_id: SafeText
    parent_call_id: SafeText | None
    staging_key: SafeText | None
    weight_version: int | None
    new_tokens: int | None
    all_tokens: int | None
    problem: SafeText | None = Field(description="why it failed, or what else it was than an answer")
    is_boundary: bool = Field(description="the boundary stands right after it")


class StoryRow(Document):
    """One row of the data plane that belongs to an attempt, or that it needs."""

    key: SafeText
    partition_id: SafeText | None
    state: RowState = Field(
        description="`missing`: no such key; `not_produced`: a field is not there yet; `dangling`: a field is claimed and not "
        "stored; `not_known`: its storage unit cannot be read"
    )
    fields: Count = Field(description="values of it that are stored")
    needed_by: tuple[SafeText, ...] = Field(description="empty: nothing needs it, so a restore drops it")
    tags: dict[SafeKey, SafeText]


class StorySession(Document):
    """A session that a resources server saved."""

    server_name: SafeText
    revision: Count
    wanted_revision: Count | None = Field(
        description="what the boundary of this attempt needs; null: it names no such server"
    )
    recorded_answers: Count
    created_at: float


class StoryAttempt(Document):
    """One try, with all that was saved of it."""

    attempt_index: Count
    capture_key: SafeText
    is_current: bool = Field(description="the one that the ledger is at")
    status: SafeText | None = Field(description="null: the ledger does not have it")
    reward: float | None
    mask_sample: bool | None
    result: SafeText | None = Field(description="identity of the completed result")
    owed_to: SafeText | None = Field(description="agent that waits to be told that the result is owned")
    is_tombstone: bool = Field(description="a policy model was told that it is over")
    boundary: StoryBoundary | None
    sessions: tuple[StorySession, ...]
    calls: tuple[StoryCall, ...]
    rows: tuple[StoryRow, ...]


class StoryGroup(Document):
    """The unfinished group that it belongs to."""

    group_id: SafeText
    status: SafeText
    phase: SafeText
    granularity: SafeText
    prompt_id: SafeText
    sample_id: SafeText
    agent: SafeText | None
    generation_index: Count
    expected_generations: Count
    start_weight_version: Count
    target_step: Count | None
    siblings: dict[SafeKey, SafeText] = Field(description="rollout -> state of its current attempt, this one included")


class StoryFinished(Document):
    """Its finished group and the canonical row in it."""

    group_id: SafeText
    start_weight: int
    end_weight: int
    target_step: int | None
    route_plan_rows: Count | None = Field(
        description="staged rows that its deferred route needs; null without a route plan"
    )
    row: StoryRow


class StoryFate(Document):
    """What a restore of this snapshot does with the rollout, and why: as the restore plans it."""

    decision: Decision
    source_attempt: Count | None
    replacement_attempt: Count | None
    reason: SafeText
    drops_boundary: bool
    cleared_rows: tuple[SafeText, ...]
    kept_rows: tuple[SafeText, ...] = Field(description="of a dropped boundary, because something else needs them")
    unclaimed_sessions: tuple[SafeText, ...] = Field(description="servers whose restored session nobody claims")


class RolloutStory(Document):
    """One rollout in one snapshot."""

    snapshot: SafeText = Field(description="anchor and name, or the path of what lies in no anchor")
    path: SafeText
    checkpoint_id: SafeText | None
    written_at: float | None
    age_s: float | None
    verdict: VerdictName
    fate: StoryFate
    group: StoryGroup | None
    finished: StoryFinished | None
    attempts: tuple[StoryAttempt, ...]
    findings: tuple[Finding, ...] = Field(description="those that name it")
    unread: tuple[SafeText, ...] = Field(
        description="parts that could not be decoded: what they say of it is missing here"
    )
    reserve: bool = Field(
        description="there is a reserve of prompts, which is never decoded: whether it is named there is unknown"
    )


class RolloutInspection(Document):
    """The answer of `ckptctl inspect --rollout`, newest snapshot first."""

    schema_version: Literal[1] = 1
    kind: Literal["rollout"] = "rollout"
    path: SafeText
    rollout_id: SafeText
    level: Level
    verdict: VerdictName = Field(description="the worst of the snapshots that name it")
    stories: Annotated[tuple[RolloutStory, ...], Field(min_length=1)]
    absent_from: tuple[SafeText, ...] = Field(description="snapshots that say nothing of it")
