"""What the simulated policy says: a function of (seed, rollout, turn, history), never of attempt, time or process.

Which items a turn produces is the environment's script (`environments`); here is what every script shares: draws,
words, tokens. The tokens of a conversation are the concatenated tokens of its items, so the prefix of a call can be
computed again from its history and compared with the lineage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckptctl.domain.canonical import compact_sorted

Item = dict[str, Any]

_WORDS = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "hazel",
    "inlet",
    "karst",
    "larch",
    "opal",
    "pine",
    "thaw",
)
_BYTES_PER_TOKEN = 3
_FIRST_TOKEN = 16
"""Ids below stand for nothing, as the special tokens of a real vocabulary."""


@dataclass(frozen=True, slots=True)
class PolicyTurn:
    """Everything that a turn's text may depend on."""

    seed: int
    rollout_id: str
    turn_index: int
    items: Sequence[Item]
    parameters: Mapping[str, Any]

    def draw(self, label: str, choices: int) -> int:
        """A number in [0, choices), fixed by the turn and `label`."""
        return int.from_bytes(self._hash(label)[:8], "big") % choices

    def words(self, label: str, count: int) -> str:
        """A few words, fixed by the turn and `label`."""
        drawn = self._hash(label)
        return " ".join(_WORDS[drawn[index] % len(_WORDS)] for index in range(count))

    def _hash(self, label: str) -> bytes:
        facts = [self.seed, self.rollout_id, self.turn_index, list(self.items), dict(self.parameters), label]
        return hashlib.sha256(compact_sorted(facts)).digest()


Script = Callable[[PolicyTurn], list[Item]]


@dataclass(frozen=True, slots=True)
class Generation:
    """One call's output and its tokens."""

    output: list[Item]
    token_ids: list[int]
    logprobs: list[float]


def generate(turn: PolicyTurn, script: Script) -> Generation:
    """Run the script and give its tokens log probabilities. They are multiples of 1/64, so float32 holds them exactly."""
    output = script(turn)
    ids = encode(output)
    drawn = hashlib.shake_256(compact_sorted([turn.seed, turn.rollout_id, turn.turn_index, ids])).digest(len(ids))
    return Generation(output, ids, [-value / 64 for value in drawn])


def encode(items: Sequence[Item]) -> list[int]:
    """Token ids of a conversation; item by item, so that a prefix of items is a prefix of tokens."""
    ids: list[int] = []
    for item in items:
        data = compact_sorted(item)
        steps = range(0, len(data), _BYTES_PER_TOKEN)
        ids.extend(_FIRST_TOKEN + int.from_bytes(data[at : at + _BYTES_PER_TOKEN], "big") for at in steps)
    return ids


def is_from_model(item: Mapping[str, Any]) -> bool:
    """Whether the policy said this item."""
    return item.get("type") == "function_call" or item.get("role") == "assistant"


def carried_from(items: Sequence[Item]) -> int:
    """Where the items begin that no model call has seen yet: behind the last one that the policy said."""
    return max((index + 1 for index, item in enumerate(items) if is_from_model(item)), default=0)


def message(role: str, content: str) -> Item:
    """A message item."""
    return {"type": "message", "role": role, "content": content}


def function_call(turn: PolicyTurn, number: int, name: str, arguments: Mapping[str, Any]) -> Item:
    """The turn's n-th function call."""
    return {
        "type": "function_call",
        "name": name,
        "arguments": compact_sorted(dict(arguments)).decode(),
        "call_id": f"fc-{turn.turn_index}-{number}",
        "status": "completed",
    }


def function_output(call: Mapping[str, Any], output: str) -> Item:
    """What an action returned."""
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}
