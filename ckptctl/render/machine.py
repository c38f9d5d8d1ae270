"""Results as JSON: one object, one trailing newline, ASCII only (safe in any locale and any log)."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel

from ckptctl.domain.document import Document
from ckptctl.domain.safe_text import inert_json


class VersionAnswer(Document):
    """The answer of `ckptctl --version`."""

    schema_version: Literal[1] = 1
    name: Literal["ckptctl"] = "ckptctl"
    version: str


def to_json(document: BaseModel) -> str:
    """The machine-readable form of any result document."""
    return inert_json(document.model_dump_json(indent=1, ensure_ascii=True)) + "\n"


def to_json_line(document: BaseModel) -> str:
    """The same on one line, for commands that answer again and again."""
    return inert_json(json.dumps(document.model_dump(mode="json"), ensure_ascii=True)) + "\n"
