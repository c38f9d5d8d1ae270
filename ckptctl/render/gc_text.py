"""What `gc` did or would do, for people: every item, what becomes of it, and every reason."""

from __future__ import annotations

from collections import Counter
from shlex import quote

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import duration, plural, size
from ckptctl.domain.retention import GcDone, GcResult
from ckptctl.domain.safe_text import safe
from ckptctl.render.console import GAP, render, say

UNDELETE = "; `--undelete` brings it back"
"""Ends a reason; said once, with the whole command, below all items."""
ACTION, SIZE = "action", "size"
ROOM = 40
"""Columns that reasons get at least before they begin further left."""

HEADS = {
    "collected": "collected: ",
    "planned": "planned: ",
    "nothing_to_do": "nothing to do: ",
    "undeleted": "undeleted: ",
    "pinned": "pinned: ",
    "unpinned": "unpinned: ",
}
WORDS = {
    "kept": "keep",
    "moved": "trashed",
    "deleted": "deleted",
    "gone": "gone",
    "held_open": "held open",
    "failed": "FAILED",
}
PLANNED = {"trash": "to trash", "delete": "delete"}
STYLES = {"kept": "green", "failed": "bold red", "held_open": "yellow"}
MEANINGS = {
    "gone": "somebody else deleted it",
    "held_open": "some of its files are still open somewhere; the next run deletes them",
}


def gc_text(result: GcResult, *, to_terminal: bool | None = None, width: int | None = None) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        head = Text(HEADS[result.outcome], style="bold")
        head.append(_sentence(result), style="not bold")
        say(console, head, 0)
        if result.policy is not None:
            _draw_policy(console, result)
        if result.items:
            _draw_items(console, result)
        for warning in result.warnings:
            told = safe(warning).replace("`ckptctl gc --", f"`{_command(result)} --")
            say(console, f"warning: {told}", style="yellow")

    return render(draw, to_terminal=to_terminal, width=width)


def _sentence(result: GcResult) -> str:
    if result.snapshot is not None:
        return safe(result.snapshot)
    kept = sum(item.action == "keep" for item in result.items)
    if result.outcome == "nothing_to_do":
        return f"{plural(kept, 'item')} kept"
    counts = Counter(_word(item) for item in result.items)
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if word != "keep") or "nothing goes"
    sizes = sum(item.size_bytes or 0 for item in result.items if item.action != "keep")
    ending = "; nothing was changed" if result.outcome == "planned" else ""
    return f"{told} ({size(sizes)}), {counts['keep']} kept{ending}"


def _draw_policy(console: Console, result: GcResult) -> None:
    policy = result.policy
    assert policy is not None, "asked by the caller"
    say(console, f"in {safe(result.checkpoint_dir)}")
    say(
        console,
        f"policy: the newest {policy.keep_latest_k} of each anchor, "
        f"at least {policy.min_valid_copies} valid ({policy.level}), grace {duration(policy.grace_period_s)}",
    )
    if result.archive is not None:
        say(console, f"archive: {safe(result.archive)}")


def _draw_items(console: Console, result: GcResult) -> None:
    """Each item on a line, its reasons below; where the terminal is narrow those begin further left."""
    words = [_word(item) for item in result.items]
    sizes = ["" if item.size_bytes is None else size(item.size_bytes) for item in result.items]
    word_width, size_width = (
        max(len(text) for text in (title, *found)) for title, found in ((ACTION, words), (SIZE, sizes))
    )
    deep = 2 + word_width + GAP + size_width + GAP
    indent = deep if not console.is_terminal or console.width >= deep + ROOM else 4
    say(console, f"{ACTION:<{word_width}}  {SIZE:>{size_width}}  item and reasons", style="dim")
    for item, word, measured in zip(result.items, words, sizes, strict=True):
        line = Text(f"{word:<{word_width}}", style=STYLES.get(item.outcome, "magenta"))
        line.append(f"  {measured:>{size_width}}  ", style="default not bold")
        say(
            console, line.append(safe(item.path), style="default bold" if item.action != "keep" else "default not bold")
        )
        for reason in _reasons(item):
            say(console, f"- {reason}", indent)
    if any(item.outcome == "moved" or (item.kind == "trashed" and item.action == "keep") for item in result.items):
        say(
            console,
            f"`{_command(result)} --undelete NAME` brings one back from the trash",
            style="dim",
        )


def _command(result: GcResult) -> str:
    """This command for this directory; without a configuration or a place it would be refused."""
    return f"ckptctl gc {quote(safe(result.checkpoint_dir))}"


def _word(item: GcDone) -> str:
    return PLANNED[item.action] if item.outcome == "planned" else WORDS[item.outcome]


def _reasons(item: GcDone) -> list[str]:
    told = [safe(reason.removesuffix(UNDELETE)) for reason in item.reasons]
    if item.outcome in MEANINGS:
        told.append(MEANINGS[item.outcome])
    if item.problem:
        told.append(safe(item.problem))
    if item.trash_entry is not None:
        told.append(f"in the trash as {safe(item.trash_entry)}")
    return told
