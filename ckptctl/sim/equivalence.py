"""Whether an interrupted and restored run did what an uninterrupted one did, and nothing twice.

Compared are run A (any) and run B (restored at least once), of one environment and seed:

1. every rollout has the same reward, final state and transcript in both, and the same groups are finished;
2. the mutations behind each result are the same, each once, none missing: what the snapshot held plus what followed;
3. each rollout that was in flight at the last restored cut was dispatched exactly once as its replacement, at an earlier one at
   most once, never as the source;
4. nothing that the snapshot holds as sealed or finished was dispatched again;
5. what the environment itself promises (`promises`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from ckptctl.domain.amounts import plural
from ckptctl.domain.document import Count, Document
from ckptctl.sim.account import Account, account_of
from ckptctl.sim.promises import PROMISES
from ckptctl.sim.run_history import Line, RunHistory, read_history

SHOWN_DIFFERENCES = 20
RESULT_FIELDS = ("reward", "mask_sample", "final_state", "transcript_digest")


class Comparison(Document):
    """The outcome of `ckptctl sim compare`."""

    schema_version: Literal[1] = 1
    environment: str
    equal: bool
    rollouts: Count
    groups: Count
    mutations: dict[str, Count]
    """Calls that changed something, by route."""
    restores: Count
    kept_groups: Count
    """Groups that the last restored snapshot holds as finished."""
    account: Account
    differences: list[str]
    differences_total: Count

    def text(self) -> str:
        """For people."""
        total = sum(self.mutations.values())
        routes = ", ".join(f"{count} {route}" for route, count in sorted(self.mutations.items()))
        lines = [
            f"{self.environment}: {plural(self.rollouts, 'rollout')} in {plural(self.groups, 'group')}",
            f"{plural(total, 'mutation')}{f': {routes}' if routes else ''}",
        ]
        if self.restores:
            kept = f"{plural(self.kept_groups, 'finished group')} in the snapshot"
            which = "1 restore" if self.restores == 1 else f"{self.restores} restores, of which the last is told"
            lines += [f"{which}, {kept}; of the {plural(self.rollouts, 'rollout')}", *self.account.lines()]
        if self.equal:
            lines.append("rewards, final states, transcripts and mutations are those of the uninterrupted run: equal")
        else:
            lines += [f"  {difference}" for difference in self.differences]
            lines.append(f"the runs differ: {plural(self.differences_total, 'difference')}")
        return "\n".join(lines) + "\n"


def compare(first_dir: str, second_dir: str, environment: str) -> Comparison:
    """Compare run A with run B. Raises NothingThereError, StorageError."""
    first, second = read_history(first_dir), read_history(second_dir)
    found = differences(first, second, environment)
    if not second.restores:
        found.append("the second run was never restored")
    standing = second.standing_results()
    return Comparison(
        environment=environment,
        equal=not found,
        rollouts=len(standing),
        groups=len(second.standing_groups()),
        mutations=dict(Counter(item.route for line in standing.values() for item in second.mutations_of(line))),
        restores=len(second.restores),
        kept_groups=len(second.restores[-1]["finished_groups"]) if second.restores else 0,
        account=account_of(second),
        differences=found[:SHOWN_DIFFERENCES],
        differences_total=len(found),
    )


def differences(first: RunHistory, second: RunHistory, environment: str) -> list[str]:
    """What the second run's history has that an uninterrupted one's has not, or the other way round; by rules 1 to 5."""
    return [
        *_result_differences(first, second),
        *_mutation_differences(first, second),
        *_dispatch_differences(second),
        *_state_differences(second, environment),
    ]


def _result_differences(first: RunHistory, second: RunHistory) -> Iterator[str]:
    """Rule 1."""
    ours, theirs = first.standing_results(), second.standing_results()
    for rollout in sorted(ours.keys() ^ theirs.keys()):
        yield f"{rollout} has a result in {'the first' if rollout in ours else 'the second'} run alone"
    for rollout in sorted(ours.keys() & theirs.keys()):
        for field in RESULT_FIELDS:
            if ours[rollout][field] != theirs[rollout][field]:
                yield f"{rollout}: {field} is {ours[rollout][field]!r} / {theirs[rollout][field]!r}"
    for group in sorted(first.standing_groups() ^ second.standing_groups()):
        yield f"group {group} is finished in one run alone"


def _mutation_differences(first: RunHistory, second: RunHistory) -> Iterator[str]:
    """Rule 2."""
    ours = first.standing_results()
    for rollout, result in sorted(second.standing_results().items()):
        played = second.mutations_of(result)
        for mutation, count in Counter(played).items():
            if count > 1:
                yield f"{rollout}: {mutation.route} (revision {mutation.revision}) happened {plural(count, 'time')}"
        revisions = Counter((mutation.server, mutation.revision) for mutation in set(played))
        for (server, revision), count in revisions.items():
            if count > 1:
                yield f"{rollout}: {server} has {count} different mutations at revision {revision}"
        if rollout not in ours:
            continue
        expected = first.mutations_of(ours[rollout])
        for mutation in sorted(set(expected) - set(played)):
            yield f"{rollout}: {mutation.route} (revision {mutation.revision}, turn {mutation.turn}) is missing"
        for mutation in sorted(set(played) - set(expected)):
            yield f"{rollout}: {mutation.route} (revision {mutation.revision}, turn {mutation.turn}) is too much"


def _dispatch_differences(second: RunHistory) -> Iterator[str]:
    """Rules 3 and 4."""
    for restore in second.restores:
        counts: Counter[tuple[str, int]] = Counter()
        for line in second.dispatches:
            if line["incarnation"] == restore["incarnation"] and line["event"] in ("dispatched", "turned_away"):
                counts[line["rollout_id"], line["attempt_index"]] += 1 if line["event"] == "dispatched" else -1
        sent = {pair: count for pair, count in counts.items() if count}
        # A run that was restored once more before it came to that need not have sent them: what stands is the last one's.
        yield from _replacements(restore, sent, is_last=restore is second.restores[-1])
        finished = set(restore["finished_groups"])
        sealed = {item["rollout_id"] for item in restore["siblings"] if item["status"] == "sealed"}
        for rollout, attempt in sorted(sent):
            if rollout.rpartition("_g")[0] in finished or rollout in sealed:
                yield f"{rollout} was finished in the snapshot and dispatched again as attempt {attempt}"


def _replacements(restore: Line, sent: dict[tuple[str, int], int], *, is_last: bool) -> Iterator[str]:
    for item in restore["redispatch"]:
        rollout, source, replacement = item["rollout_id"], item["source_attempt"], item["replacement_attempt"]
        count = sent.get((rollout, replacement), 0)
        if count > 1 or (is_last and not count):
            yield f"{rollout} was dispatched {plural(count, 'time')} as attempt {replacement}"
        if source != replacement and (rollout, source) in sent:
            yield f"{rollout} was dispatched as attempt {source} again"
        if any(name == rollout and attempt > replacement for name, attempt in sent):
            yield f"{rollout} was dispatched beyond attempt {replacement}"


def _state_differences(second: RunHistory, environment: str) -> Iterator[str]:
    """Rule 5."""
    for rollout, result in sorted(second.standing_results().items()):
        check = PROMISES[result.get("environment") or environment]
        for problem in check(result, second.mutations_of(result)):
            yield f"{rollout}: {problem}"
