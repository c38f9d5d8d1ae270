"""The page of one command, as text, as JSON, and as a manual page (roff)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Literal

from pydantic import Field

from ckptctl.domain.document import Document

HEADS = {"Usage:": "SYNOPSIS", "Arguments:": "ARGUMENTS", "Options:": "OPTIONS", "Commands:": "COMMANDS"}
PAGE_WIDTH = 80
STATUS_HEAD = "Exit status:"
ENVIRONMENT = (
    ("CKPTCTL_CONFIG", "the run configuration, where --config is not given"),
    ("CKPTCTL_FORMAT", "how the answer is written, where --format is not given: text or json"),
    ("NEMO_GYM_CHECKPOINT_CONTROL_TOKEN", "the token of the servers; another name, or a file, in the configuration"),
    ("NO_COLOR", "when it is not empty: no colour"),
)


class ExampleLine(Document):
    """A command line. Without `about` it goes on with what the one before is for."""

    about: str
    line: str


class StatusLine(Document):
    """A status that the command ends with."""

    status: int
    meaning: str


class HelpPage(Document):
    """The answer of `ckptctl help`."""

    schema_version: Literal[1] = 1
    command: str = Field(description="its words; empty for ckptctl itself")
    version: str
    summary: str
    text: str = Field(description="what `--help` prints")
    examples: tuple[ExampleLine, ...]
    statuses: tuple[StatusLine, ...]


def help_page(page: HelpPage) -> str:
    """What `--help` prints, and then what it has no room for."""
    return f"{page.text.rstrip()}\n\n" + "\n\n".join(_more(page)) + "\n"


def _more(page: HelpPage) -> Iterator[str]:
    if page.examples:
        yield "Examples:\n" + "\n".join(line for item in page.examples for line in _example_lines(item))
    yield "Environment:\n" + "\n".join(f"  {name}\n      {told}" for name, told in ENVIRONMENT)
    inner = f"ckptctl help {page.command} COMMAND" if "\nCommands:\n" in page.text else "ckptctl help"
    yield f"See also: `{inner.replace('  ', ' ')}`, and the README for what things mean."


def _example_lines(item: ExampleLine) -> Iterator[str]:
    """Comment and command, within the page; a command goes on after a backslash, before an option or an argument."""
    yield from (f"  # {line}" for line in wrap(item.about, PAGE_WIDTH - 4, break_on_hyphens=False))
    line = "  $"
    for word in _words(item.line):
        if len(f"{line} {word} \\") > PAGE_WIDTH:
            yield f"{line} \\"
            line = "     "
        line += f" {word}"
    yield line


def _words(line: str) -> list[str]:
    """The words of a command line as they are written, an option with its value."""
    return re.findall(r"--?[a-z-]+ (?!-)(?:'[^']*'|\S+)|(?:'[^']*'|\S)+", line)


def manual_page(page: HelpPage) -> str:
    """The same for man(1): what has columns keeps them."""
    name = "-".join(("ckptctl", *page.command.split()))
    parts = [
        f'.TH "{name.upper()}" "1" "" "ckptctl {page.version}" "User Commands"',
        ".SH NAME",
        _roff(f"{name} - {page.summary}"),
    ]
    head, lines = "DESCRIPTION", [""]
    sections: list[tuple[str, list[str]]] = [(head, lines)]
    for line in page.text.splitlines():
        first = next((mark for mark in HEADS if line.startswith(mark)), None)
        if first is not None or line.strip() == STATUS_HEAD:
            rest = line.removeprefix(first or line).strip()
            lines = [f"  {rest}"] if rest else []
            sections.append((HEADS[first] if first is not None else "EXIT STATUS", lines))
            if first == "Usage:":
                lines = []
                sections.append(("DESCRIPTION", lines))
        else:
            lines.append(line)
    sections += [(told.partition(":\n")[0].upper(), told.splitlines()[1:]) for told in _more(page) if ":\n" in told]
    for head, lines in sections:
        body = "\n".join(lines).strip("\n")
        if body:
            parts += [f".SH {head}", ".nf", _roff(body), ".fi"]
    return "\n".join(parts) + "\n"


def _roff(text: str) -> str:
    """Text in which no line is a request and no character an escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in escaped.split("\n"))
