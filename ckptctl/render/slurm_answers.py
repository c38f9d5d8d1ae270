"""Answers of `ckptctl slurm`, and the list of scripts as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from ckptctl.domain.document import Document
from ckptctl.render.console import draw_table, open_table, render


class ScriptFacts(Document):
    """One script."""

    name: str
    purpose: str


class ScriptList(Document):
    """The answer of `ckptctl slurm list`."""

    schema_version: Literal[1] = 1
    scripts: tuple[ScriptFacts, ...]

    @classmethod
    def of(cls, purposes: Mapping[str, str]) -> Self:
        """From names and purposes."""
        return cls(scripts=tuple(ScriptFacts(name=name, purpose=text) for name, text in purposes.items()))


class ScriptAnswer(Document):
    """The answer of `ckptctl slurm show`."""

    schema_version: Literal[1] = 1
    name: str
    text: str


class ClaimAnswer(Document):
    """The answer of `ckptctl slurm claim`."""

    schema_version: Literal[1] = 1
    checkpoint_dir: str
    token: str


def scripts_text(listed: ScriptList) -> str:
    """One line each where there is room."""
    table = open_table("script", "what it is for", fold=frozenset({"what it is for"}))
    for script in listed.scripts:
        table.add_row(script.name, script.purpose)
    return render(lambda console: draw_table(console, table))
