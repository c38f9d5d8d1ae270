"""Headers by which inner calls say whose they are (participant-protocol sections 6.1 and 6.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.ids import capture_key, is_id

ROLLOUT = "x-nemo-gym-rollout-id"
ATTEMPT = "x-nemo-gym-attempt-index"
CALL = "x-nemo-gym-model-call-id"
GENERATION = "x-nemo-gym-agent-execution-generation"
EXPECTED_REVISION = "x-nemo-gym-expected-resource-state-revision"
REQUEST_ID = "x-nemo-gym-resource-request-id"
REVISION = "x-nemo-gym-resource-state-revision"
# This cluster's own: upstream finds the parent by comparing histories, and its audit needs no turn.
PARENT_CAPTURE = "x-ckptctl-sim-parent-capture-key"
PARENT_CALL = "x-ckptctl-sim-parent-call-id"
TURN = "x-ckptctl-sim-turn"

MAX_ROLLOUT_ID_CHARS = 128
"""Sessions and captures are files that are named after their rollout."""
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,17})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """One attempt of one rollout: an execution's identity."""

    rollout_id: str
    attempt_index: int

    @property
    def capture_key(self) -> str:
        """Under which this attempt's model calls are captured."""
        return capture_key(self.rollout_id, self.attempt_index)

    @property
    def successor(self) -> Pair:
        """The attempt that continues this one: exactly the next."""
        return Pair(self.rollout_id, self.attempt_index + 1)

    def as_json(self) -> dict[str, str | int]:
        """The form of lists in replies."""
        return {"rollout_id": self.rollout_id, "attempt_index": self.attempt_index}

    def headers(self) -> dict[str, str]:
        """The identity headers."""
        return {ROLLOUT: self.rollout_id, ATTEMPT: str(self.attempt_index)}


def read_pair(headers: Mapping[str, str]) -> Pair | None:
    """The pair that a request names, None when it names none. Raises RefusalError when half or malformed."""
    rollout, attempt = headers.get(ROLLOUT), headers.get(ATTEMPT)
    if rollout is None and attempt is None:
        return None
    if rollout is None or attempt is None or not _is_rollout_id(rollout) or not _NUMBER.match(attempt):
        raise RefusalError("execution_identity_mismatch", "the identity headers are half present or malformed")
    return Pair(rollout, int(attempt))


def _is_rollout_id(text: str) -> bool:
    return len(text) <= MAX_ROLLOUT_ID_CHARS and is_id(text)


def read_number(text: str) -> int | None:
    """A header's count, None when it is none."""
    return int(text) if _NUMBER.match(text) else None
