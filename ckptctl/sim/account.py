"""Where the rollouts of a restored run come from: each of them once, so that the numbers add up.

Told from the last restore alone. What the one before it kept or continued is, for the last one, either in its snapshot or lost.
"""

from __future__ import annotations

from collections import Counter

from ckptctl.domain.document import Count, Document
from ckptctl.sim.run_history import Line, RunHistory


class Account(Document):
    """How many of the run's rollouts were what when the last restore had been done."""

    finished: Count = 0
    """In groups that the snapshot holds as finished."""
    sealed: Count = 0
    """Finished in the snapshot, in groups that were not."""
    continued: Count = 0
    """In flight, and went on from their boundary as the next attempt."""
    restarted: Count = 0
    """In flight, and began anew as the next attempt."""
    reserved: Count = 0
    """Of unfinished groups, never dispatched before the cut."""
    drawn_later: Count = 0
    """Of prompts that were drawn after the restore."""

    def lines(self) -> list[str]:
        """For people."""
        told = (
            (self.finished, "were finished in the snapshot, with their groups"),
            (self.sealed, "were finished in it, their groups were not"),
            (self.continued, "were in flight and went on from their last turn, as the next attempt"),
            (self.restarted, "were in flight and began anew, as the next attempt"),
            (self.reserved, "were reserved in it and dispatched for the first time after the restore"),
            (self.drawn_later, "are of prompts that were drawn after the restore"),
        )
        return [f"  {count:>4} {what}" for count, what in told]


def account_of(run: RunHistory) -> Account:
    """Put each rollout that stands in the history where it belongs; without a restore nothing is told."""
    if not run.restores:
        return Account()
    restore = run.restores[-1]
    finished = set(restore["finished_groups"])
    sealed = {item["rollout_id"] for item in restore["siblings"] if item["status"] == "sealed"}
    modes = {item["rollout_id"]: _mode(item) for item in restore["redispatch"]}

    def kind(result: Line) -> str:
        if result["group_id"] in finished:
            return "finished"
        name = result["rollout_id"]
        return "sealed" if name in sealed else modes.get(name, "drawn_later")

    return Account.model_validate(Counter(kind(result) for result in run.standing_results().values()))


def _mode(item: Line) -> str:
    if item["source_attempt"] == item["replacement_attempt"]:
        return "reserved"
    return {"continue": "continued", "restart": "restarted"}[item["mode"]]
