"""What `inspect` found, for people: the overview of a checkpoint directory. One thing in depth: `inspect_snapshot_text`.

Live servers: `inspect_live_text`.
"""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import duration, size
from ckptctl.domain.finding import Level
from ckptctl.domain.inspection import (
    AnchorView,
    DataPlaneInspection,
    DirectoryInspection,
    LiveInspection,
    LockView,
    SnapshotInspection,
    SnapshotView,
)
from ckptctl.domain.safe_text import safe
from ckptctl.render.console import draw_table, open_table, render, say
from ckptctl.render.inspect_snapshot_text import draw_data_plane_inspection, draw_snapshot_inspection
from ckptctl.render.next_command import with_config
from ckptctl.render.report_words import VERDICT_STYLE, verdict_words

TRASH_STATES = {
    "whole": "",
    "going": ": its deletion was interrupted; the next `ckptctl gc` ends it",
    "foreign": ": ckptctl did not put it here",
}
QUICK_LOOK = "quick look at names and manifests; `--level standard` judges the payload"


def inspection_text(
    result: DirectoryInspection | SnapshotInspection | DataPlaneInspection,
    *,
    verbose: int = 0,
    to_terminal: bool | None = None,
    width: int | None = None,
) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        if isinstance(result, SnapshotInspection):
            draw_snapshot_inspection(console, result, verbose)
        elif isinstance(result, DataPlaneInspection):
            draw_data_plane_inspection(console, result)
        else:
            _draw_directory(console, result)

    return render(draw, to_terminal=to_terminal, width=width)


def _draw_directory(console: Console, result: DirectoryInspection) -> None:
    head = Text(f"{'anchor' if result.kind == 'anchor' else 'checkpoint directory'} {safe(result.path)}: ")
    head.append(verdict_words(result.verdict, result.level), style=VERDICT_STYLE[result.verdict])
    head.append(f" ({QUICK_LOOK if result.level == 'quick' else f'level {result.level}'})")
    say(console, head, 0)
    draw_control(console, result)
    for warning in result.warnings:
        say(console, f"warning: {safe(warning)}", style="yellow")
    for anchor in result.anchors:
        console.print()
        _draw_anchor(console, anchor, result.level)
    _draw_rest(console, result)


def draw_control(console: Console, result: DirectoryInspection | LiveInspection, config: str | None = None) -> None:
    """Who holds the lock, and what is unfinished."""
    lock = result.lock
    say(console, f"lock: {safe(lock_words(result))}", style="yellow" if lock or result.lock_problem else "")
    for item in result.unfinished:
        is_running = lock is not None and not lock.is_dead
        state = "interrupted" if lock is None or lock.is_dead else "running" if lock.is_at_work else "running or stuck"
        state = "interrupted or running" if result.lock_problem else state
        told = f"{state}: {safe(item.name)}"
        told += f" under {safe(item.checkpoint_id)}" if item.checkpoint_id else ""
        told += f", begun at step {safe(item.last_step)}" if item.last_step else ", before its first step"
        told += "" if is_running else f"; {with_config(f'`{safe(item.finished_by)}`', config)} finishes it"
        say(console, told, style="bold yellow")
        for path in item.uses:
            say(console, f"uses {safe(path)}", 4, style="yellow")


def lock_words(result: DirectoryInspection | LiveInspection) -> str:
    """Who holds the lock, as far as anybody can tell."""
    if result.lock_problem:
        return "not known, because it could not be looked at"
    return "free" if result.lock is None else f"held by {result.lock.owner}, {lock_state(result.lock)}"


def lock_state(lock: LockView) -> str:
    """What is known of the owner of a lock."""
    if lock.is_dead:
        return "which is gone: the next command takes it over"
    if lock.silent_s is None:
        return "at work"
    return (
        f"! silent for {duration(lock.silent_s)} by this host's clock, although one that lives renews it within "
        f"{duration(lock.lease_s)}: hung, stopped, or gone on another host"
    )


def _draw_anchor(console: Console, anchor: AnchorView, level: Level) -> None:
    head = Text(f"{safe(anchor.name)}: ", style="bold")
    head.append(verdict_words(anchor.verdict, level), style=VERDICT_STYLE[anchor.verdict])
    version = "" if anchor.trainer_version is None else f", trainer version {anchor.trainer_version}"
    head.append(f"{version}{'' if anchor.is_durable else ', not durable'}", style="not bold")
    say(console, head, 0)
    for problem in anchor.problems:
        say(console, f"! {safe(problem)}", style="yellow")
    if not anchor.snapshots:
        said = f"its snapshots are not known: {safe(anchor.unlisted)}" if anchor.unlisted else "no snapshot"
        say(console, said, style="yellow" if anchor.unlisted else "")
        return
    titles = ("  snapshot", "verdict", "schema", "age", "size", "groups", "cont.", "sess.")
    table = open_table(*titles, right=frozenset(titles[2:]))
    for item in anchor.snapshots:
        table.add_row(
            Text(f"  {safe(item.name)}"),
            Text(verdict_words(item.verdict, level), style=VERDICT_STYLE[item.verdict]),
            _known(item.schema_found),
            "?" if item.age_s is None else duration(item.age_s),
            size(item.size_bytes),
            _known(item.counts.groups),
            _known(item.counts.continuations),
            _known(item.counts.sessions),
        )
    draw_table(console, table)
    for item in anchor.snapshots:
        _draw_notes(console, item)


def _draw_notes(console: Console, item: SnapshotView) -> None:
    if item.checkpoint_id:
        say(console, f"{safe(item.name)} is {safe(item.checkpoint_id)}", style="dim")
    if item.pinned is not None:
        say(console, f"{safe(item.name)} is pinned: {safe(item.pinned)}", style="cyan")
    if item.used_by is not None:
        say(console, f"{safe(item.name)} is in use by {safe(item.used_by)}", style="cyan")
    for problem in item.problems:
        say(console, f"! {safe(item.name)}: {safe(problem)}", style=VERDICT_STYLE[item.verdict])


def _draw_rest(console: Console, result: DirectoryInspection) -> None:
    if result.leftovers:
        console.print()
        head = Text("leftovers", style="bold")
        told = f" (`ckptctl gc {shlex.quote(safe(result.path))} --dry-run` tells what becomes of them)"
        say(console, head.append(told if result.kind == "checkpoint_dir" else "", style="not bold"), 0)
    for item in result.leftovers:
        measured = "" if item.size_bytes is None else f", {size(item.size_bytes)}"
        age = "" if item.untouched_s is None else f", untouched for {duration(item.untouched_s)}"
        say(console, f"{safe(item.path)}{measured}{age}: {safe(item.what)}")
    if result.trash:
        console.print()
        head = Text("trash", style="bold")
        told = f" (`ckptctl gc {shlex.quote(safe(result.path))} --undelete NAME` brings a snapshot back)"
        say(console, head.append(told, style="not bold"), 0)
    for entry in result.trash:
        measured = "" if entry.size_bytes is None else f", {size(entry.size_bytes)}"
        age = "" if entry.age_s is None else f", there for {duration(entry.age_s)}"
        say(console, f"{safe(entry.entry)}{measured}{age}{TRASH_STATES[entry.state]}")


def _known(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
