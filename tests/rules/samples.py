"""Good and bad samples of every rule: a valid snapshot with a few things changed, in words that the README can quote.

`world` changes what was to be saved, with every digest and count computed afterwards as a correct writer would; `evidence` changes
what lies on disk. Both are edits of `tests.edits`. A good sample lets its rule pass; a bad one makes it, and nothing else, fail.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ckptctl.domain.evidence import Evidence, Part
from tests.builders import (
    World,
    a_bootstrap_world,
    a_pack_evidence,
    a_published_evidence,
    a_world,
    an_anchor_evidence,
    an_evidence,
    data_plane_evidence,
    edited,
)

GOOD: dict[str, list["Sample"]] = {}
BAD: dict[str, list["Sample"]] = {}
_BASES: dict[str, Callable[..., Evidence]] = {
    "snapshot": an_evidence,
    "published snapshot": a_published_evidence,
    "bootstrap snapshot": an_evidence,
    "anchor": an_anchor_evidence,
    "bootstrap anchor": an_anchor_evidence,
    "data plane": data_plane_evidence,
    "pack": a_pack_evidence,
}


@dataclass(frozen=True)
class Sample:
    """One sample. `word` and `artifact` are what a finding of it mentions and blames; `is_incompatible` its verdict."""

    rule: str
    title: str
    base: str = "snapshot"
    world: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Whole fields of the evidence; `level` full brings the facts of staged rows with it."""
    word: str = ""
    artifact: str | None = None
    is_incompatible: bool = False
    is_warning: bool = False
    """The rule is an error, this breach of it only a warning."""
    also: tuple[str, ...] = ()
    """Rules of severity warning that the same thing breaks."""

    def build(self) -> Evidence:
        """The sample as evidence."""
        return _BASES[self.base](self.evidence, world=self.written(), **self.facts)

    def written(self) -> World:
        """What was saved, before anything happened to it on disk."""
        start = _start(self.base.startswith("bootstrap"))
        return edited(start, self.world) if self.world else start


def gone(place: str, path: str) -> dict[str, Any]:
    """Edits of evidence: the file of one part is not there."""
    return {
        place: lambda part: Part(part.path, "missing"),
        "tree": lambda tree: tuple(entry for entry in tree if entry.path != path),
    }


@lru_cache(maxsize=2)
def _start(is_bootstrap: bool) -> World:
    return a_bootstrap_world() if is_bootstrap else a_world()


def good(rule: str, title: str, **facts: Any) -> None:
    """Register a sample that its rule passes."""
    GOOD.setdefault(rule, []).append(Sample(rule, title, **facts))


def bad(rule: str, title: str, word: str, **facts: Any) -> None:
    """Register a sample that breaks exactly its rule."""
    BAD.setdefault(rule, []).append(Sample(rule, title, word=word, **facts))
