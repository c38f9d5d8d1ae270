"""Is the recovery ledger consistent in itself, with the replay metadata and with the cut? Invariants 48 to 58.

The structural rules (49 to 52) are those that upstream applies when it loads the file (snapshot-layout section 6.3); judging
them here means that a damaged ledger is found before TransferQueue was replaced. Legal and easily taken for damage: attempts in
flight stay `dispatched`; in `prompt_group` granularity a finished sibling stays `dispatched` until its whole group is sealed.
What the ledger and the Gym artifacts say of each other is judged by the PAR rules (76 to 78).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ledger import Group
from ckptctl.rules import ledger_attempts
from ckptctl.rules._model import NotAskedError, Rule
from ckptctl.rules._views import optional_ledger, optional_replay, required_ledger

READABLE_SCHEMAS = (3, 4)
_SETTLED = frozenset({"ready_to_finalize", "finalizing", "finalization_unknown"})
_AMBIGUOUS = frozenset({"finalizing", "finalization_unknown"})


def check_shape(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 48."""
    part = evidence.ledger
    if part.state == "damaged" and part.opens:
        for defect in part.defects:
            message = f"ledger: {defect.message}"
            yield Violation(message, part.path, defect.location, defect.expected, defect.actual)
        return
    ledger = optional_ledger(evidence)
    if ledger is not None and ledger.schema_version not in READABLE_SCHEMAS:
        yield Violation(
            f"ledger `schema_version`: unknown number {ledger.schema_version}",
            part.path,
            "schema_version",
            expected="3 or 4",
            actual=str(ledger.schema_version),
        )
    for at, group in enumerate(ledger.groups if ledger is not None else ()):
        if ledger is not None and ledger.schema_version == 3 and "restore_level" in group.model_fields_set:
            yield Violation(
                f"ledger `groups.{at}.restore_level`: unknown field of group `{group.group_id}` in ledger schema 3",
                part.path,
                f"groups.{at}.restore_level",
                expected="absent",
                actual="present",
            )


def check_identities(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 49. Capture keys need no comparison of their own: each ends in `_g<i>` or `_g<i>-a<n>`, so keys of two
    siblings can only be equal where groups, siblings or attempts are numbered wrongly.
    """
    ledger = required_ledger(evidence)
    counted = Counter(group.group_id for group in ledger.groups)
    for group_id, times in counted.items():
        if times > 1:
            yield _of_group(evidence, group_id, f"is listed {times} times", "once", str(times))
    for group in ledger.groups:
        for what, expected, actual in _group_faults(group):
            yield _of_group(evidence, group.group_id, what, expected, actual)


def _of_group(evidence: Evidence, group_id: str, what: str, expected: str = "", actual: str = "") -> Violation:
    return Violation(f"group `{group_id}` {what}", evidence.ledger.path, group_id, expected, actual)


def _group_faults(group: Group) -> Iterator[tuple[str, str, str]]:
    if group.prompt_ref.sample_id != group.prompt_id:
        yield "names two prompts in prompt_id and prompt_ref", group.prompt_id, group.prompt_ref.sample_id
    if len(group.siblings) != group.expected_generations:
        yield "lacks or exceeds its siblings", f"{group.expected_generations} siblings", str(len(group.siblings))
    for at, sibling in enumerate(group.siblings):
        if sibling.generation_index != at:
            yield (
                f"has generation_index {sibling.generation_index} at place {at}",
                str(at),
                str(sibling.generation_index),
            )
        for number, attempt in enumerate(sibling.attempts):
            if attempt.attempt_index != number:
                what = f"sibling {sibling.generation_index} has attempt_index {attempt.attempt_index} at place {number}"
                yield what, str(number), str(attempt.attempt_index)


def check_status(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 51."""
    for group in required_ledger(evidence).groups:
        sealed = sum(sibling.current.status == "sealed" for sibling in group.siblings)
        total = len(group.siblings)
        of_total = f"{sealed} of {total} siblings are sealed"
        if group.status == "generating" and sealed == total:
            yield _of_group(
                evidence, group.group_id, f"is generating, but {of_total}", "ready_to_finalize", group.status
            )
        if group.status in _SETTLED and sealed != total:
            yield _of_group(evidence, group.group_id, f"is {group.status}, but {of_total}", "generating", group.status)
        if group.resolved_agent_name == "":
            yield _of_group(evidence, group.group_id, "has an empty resolved_agent_name", "null or a name", '""')
        elif group.resolved_agent_name is None and sealed == total:
            what = f"has no resolved_agent_name, but {of_total}"
            yield _of_group(evidence, group.group_id, what, "the agent's name", "null")
        elif group.resolved_agent_name is not None and not sealed:
            what = f"has a resolved_agent_name, but {of_total}"
            yield _of_group(evidence, group.group_id, what, "null", group.resolved_agent_name)


def check_admissions(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 52."""
    firsts: dict[str, Group] = {}
    for group in required_ledger(evidence).groups:
        other = firsts.setdefault(group.admission_id, group)
        pairs = (("phase", other.phase, group.phase), ("target_step", other.target_step, group.target_step))
        for name, wanted, found in pairs:
            if wanted != found:
                yield Violation(
                    f"groups of admission `{group.admission_id}` disagree on {name}: "
                    f"`{other.group_id}` has {_null(wanted)}, `{group.group_id}` has {_null(found)}",
                    evidence.ledger.path,
                    group.group_id,
                    expected=_null(wanted),
                    actual=_null(found),
                )


def _null(value: object) -> str:
    return "null" if value is None else str(value)


def check_ambiguous(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 53."""
    for group in required_ledger(evidence).groups:
        if group.status in _AMBIGUOUS:
            what = f"was being finalized at the cut (`{group.status}`): its outcome is unknown"
            yield _of_group(evidence, group.group_id, what, "generating or ready_to_finalize", group.status)


def check_outbox(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 54."""
    pending = required_ledger(evidence).pending_completed_execution_acknowledgements
    if pending:
        one = pending[0]
        yield Violation(
            f"{plural(len(pending), 'completed result was', 'completed results were')} not acknowledged before the cut, "
            f"`{one.receipt.rollout_id}` attempt {one.receipt.attempt_index} by `{one.agent_name}` first",
            evidence.ledger.path,
            "pending_completed_execution_acknowledgements",
            expected="an empty outbox",
            actual=plural(len(pending), "entry", "entries"),
        )


def check_owners(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 55."""
    replay = optional_replay(evidence)
    finished = {group.group_id for group in replay.groups} if replay is not None else set()
    for group in required_ledger(evidence).groups:
        if group.group_id in finished:
            what = "is both finished and unfinished; NeMo-RL will keep the finished one"
            yield _of_group(evidence, group.group_id, what, "in ledger or replay metadata", "in both")


def check_prompts(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 56."""
    for group in required_ledger(evidence).groups:
        prompt = group.prompt_id
        if not (prompt.isascii() and prompt.isdigit() and (prompt == "0" or not prompt.startswith("0"))):
            what = f"has prompt id `{prompt}`, which is not a dataset row number: the prompt cannot be rehydrated"
            yield _of_group(evidence, group.group_id, what, "a decimal number", prompt)


def check_capacity(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 57."""
    replay = optional_replay(evidence)
    ledger = required_ledger(evidence)
    if replay is None:
        raise NotAskedError("there is no replay metadata")
    finished = {group.group_id for group in replay.groups}
    restored = len(finished | {group.group_id for group in ledger.groups})
    if len(replay.groups) <= replay.saved_capacity < restored:  # too many finished ones alone: INV003
        yield Violation(
            f"{plural(restored, 'restored group')} ({len(finished)} finished) exceed the buffer capacity {replay.saved_capacity}",
            evidence.replay.path,
            "saved_capacity",
            expected=f"at most {replay.saved_capacity}",
            actual=str(restored),
        )


_OWN: tuple[Rule, ...] = (
    Rule(
        id="LED001",
        invariant=48,
        name="malformed-ledger",
        summary="The ledger has exactly the fields of its schema, each of the right type.",
        why="NeMo-RL refuses such a ledger at restore, and an unknown field may change what the known ones mean.",
        hint="Use an older snapshot, or the NeMo-RL build that wrote this one.",
        severity="error",
        level="standard",
        check=check_shape,
        requires=("BND004",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED002",
        invariant=49,
        name="ledger-identity-clash",
        summary="Groups are unique and complete, siblings and attempts are numbered 0, 1, 2 ..., capture keys differ.",
        why="Rollout ids and capture keys are built from these numbers: a gap or a double sends state to the wrong rollout.",
        hint="Use an older snapshot; this ledger was written by a faulty build or changed afterwards.",
        severity="error",
        level="standard",
        check=check_identities,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED004",
        invariant=51,
        name="status-contradicts-siblings",
        summary="The status of a group and its resolved agent follow from how many siblings are sealed.",
        why="NeMo-RL would finalize a group with unfinished siblings, or wait for ever for one that is complete.",
        hint="Use an older snapshot; this ledger was written by a faulty build or changed afterwards.",
        severity="error",
        level="standard",
        check=check_status,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED005",
        invariant=52,
        name="admission-disagreement",
        summary="Groups of one admission agree on phase and target step.",
        why="An admission is dispatched as a whole for one training step; half of it cannot belong to another.",
        hint="Use an older snapshot; this ledger was written by a faulty build or changed afterwards.",
        severity="error",
        level="standard",
        check=check_admissions,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED006",
        invariant=53,
        name="ambiguous-finalization",
        summary="No group was being finalized at the cut.",
        why="Nobody can tell whether its samples are already in the canonical partition: they could be trained twice or never.",
        hint="Use an older snapshot; a snapshot must wait until finalization has ended.",
        severity="error",
        level="standard",
        check=check_ambiguous,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED007",
        invariant=54,
        name="pending-acknowledgements",
        summary="The outbox of completed results is empty in a snapshot with Gym state.",
        why="The agents that wait for these acknowledgements do not survive, so the obligations could never be met.",
        hint="Use an older snapshot; the outbox must be drained before the cut.",
        severity="error",
        level="standard",
        check=check_outbox,
        requires=("LED001",),
        needs=("gym",),
    ),
    Rule(
        id="LED008",
        invariant=55,
        name="group-owned-twice",
        summary="No group is both in the ledger and in the replay metadata.",
        why="One of the two is stale; NeMo-RL silently keeps the finished one and drops the unfinished one.",
        hint="Nothing to do if the finished group is the right one.",
        severity="warning",
        level="standard",
        check=check_owners,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED009",
        invariant=56,
        name="unknown-prompt",
        summary="Each prompt id is the decimal number of a dataset row.",
        why="Prompts are not saved: they are read again from the dataset by this number.",
        hint="Use an older snapshot; this ledger was written by a faulty build or changed afterwards.",
        severity="error",
        level="standard",
        check=check_prompts,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED010",
        invariant=57,
        name="capacity-exceeded",
        summary="Finished and unfinished groups together fit the replay buffer.",
        why="When the last unfinished groups finish, the restored buffer has no room for them.",
        hint="Restore with a buffer of at least that capacity.",
        severity="warning",
        level="standard",
        check=check_capacity,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
)
RULES: tuple[Rule, ...] = tuple(sorted((*_OWN, *ledger_attempts.RULES), key=lambda rule: rule.id))
