"""A plan is data: steps with what each acts on, what must be done before it, and what undoes it.

`--dry-run` prints it, the journal keeps it, an executor in `workflows` runs it in one loop. Who makes plans, and
which order is right, is `planning`'s business.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ckptctl.domain.document import Document, NonEmpty

PlanKind = Literal["snapshot", "abort", "release", "publish", "restore", "gc"]


class Step(Document):
    """One step. Its name is stable: journals hold it, and recovery reads it."""

    number: str = Field(description="place in the numbered order, for example 4.2")
    name: NonEmpty
    targets: tuple[str, ...] = Field(default=(), description="server names or paths; servers are called concurrently")
    requires: tuple[str, ...] = Field(default=(), description="names of steps that must be done before")
    undo: str = Field(description="name of the step that undoes it, or why nothing is to be undone")


class Plan(Document):
    """Steps in the order in which they are run."""

    kind: PlanKind
    checkpoint_id: str | None = None
    steps: tuple[Step, ...]

    def names(self) -> tuple[str, ...]:
        """The steps by name."""
        return tuple(step.name for step in self.steps)
