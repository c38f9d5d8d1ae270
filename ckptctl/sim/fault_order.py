"""What may be ordered to go wrong at a simulated server, and which word of an order belongs to which kind.

An order is checked where it is given and where it arrives, by the same rules: a field that its kind has no use for is refused,
because whoever gave it expects that it does something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ckptctl.domain.document import Count, Document, Id, NonEmpty
from ckptctl.sim.identity import MAX_ROLLOUT_ID_CHARS

Kind = Literal[
    "refuse",  # 409 with `code`, nothing done
    "status",  # `status` (401, 404, 422, 500), nothing done
    "lost",  # the connection breaks before the request is looked at
    "slow",  # done after `delay_s`; a slow model call is accepted first, so that a pause has to wait for it
    "stall",  # done when the request's deadline (without one: `delay_s`) has passed
    "late",  # done at once, answered when the deadline (without one: `delay_s`) has passed
    "drop",  # done, then the connection breaks without an answer
    "cut",  # done, then the connection breaks in the middle of the answer
    "wrong_digest",  # done, every digest in the answer is another one
    "wrong_count",  # done, every count in the answer is one more
    "rubbish",  # done, the answer is no JSON
    "clock",  # until cleared: the Date header is off by `delay_s`
    "orphan_session",  # planted now in a resources server
    "uncertain_session",  # planted now: the session of `rollout_id`, or the first
]
PLANTED = ("orphan_session", "uncertain_session")
LONGEST_DELAY_S = 1e9
"""Beyond it no clock shows a date."""
_ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "code": ("refuse",),
    "status": ("status",),
    "delay_s": ("slow", "stall", "late", "clock"),
    "rollout_id": PLANTED,
}
_NOT_FOR: Mapping[str, tuple[str, ...]] = {"operation": ("clock", *PLANTED), "times": ("clock", *PLANTED)}


class Fault(Document):
    """One order."""

    operation: NonEmpty = "*"
    kind: Kind
    code: Id | None = None
    status: Annotated[int, Field(ge=400, le=599)] = 500
    times: Count = 1
    """How many requests it hits; 0 = until cleared."""
    delay_s: Annotated[float, Field(ge=-LONGEST_DELAY_S, le=LONGEST_DELAY_S)] = 0.0
    """Negative for `clock` only."""
    rollout_id: Annotated[Id, Field(max_length=MAX_ROLLOUT_ID_CHARS)] | None = None

    @model_validator(mode="after")
    def _demand_use(self) -> Self:
        """Nothing is given that the kind has no use for."""
        for name in sorted(self.model_fields_set):
            kinds = _ONLY_FOR.get(name, (self.kind,))
            is_unused = self.kind not in kinds or self.kind in _NOT_FOR.get(name, ())
            if is_unused and getattr(self, name) is not None:
                raise ValueError(f"`{name}` means nothing to a fault of kind `{self.kind}`")
        if self.delay_s < 0 and self.kind != "clock":
            raise ValueError("`delay_s` must not be negative")
        return self


class Planted(Document):
    """The session that an order planted, or made uncertain."""

    kind: Kind
    rollout_id: Id
    attempt_index: Count
    is_new: bool = Field(description="it was made for this; otherwise it is a session of the run")
