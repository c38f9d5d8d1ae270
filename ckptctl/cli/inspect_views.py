"""The views of `ckptctl inspect` that look at more than one thing at once: one rollout through all parts and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckptctl.cli.answer import emit
from ckptctl.cli.options import Settings

if TYPE_CHECKING:
    from ckptctl.domain.finding import Level

HTML = "--html"


def demand_one_question(asked: set[str], path: str | None, level: str | None) -> None:
    """Refuse options that do not go together; `asked` are those that were given.

    Raises:
        UsageError: there are two questions, or one lacks what it is about.
    """
    from ckptctl.errors import UsageError

    alone = "leave the other options out"
    if "--timings" in asked and (asked & {"--live", "--bundle"} or level is not None):
        raise UsageError("`--timings` reads journals and nothing else", hint=alone)
    if "--live" in asked and (path is not None or level is not None or "--bundle" in asked):
        raise UsageError("`--live` looks at servers, not at PATH", hint="`--config FILE` says which servers")
    for option in ("--rollout", "--diff"):
        if option in asked and asked & ({"--timings", "--live", "--bundle", "--rollout", "--diff"} - {option}):
            raise UsageError(f"`{option}` is a question of its own", hint=alone)
    if HTML in asked and asked & {"--timings", "--live", "--diff", "--bundle"}:
        raise UsageError(f"`{HTML}` is about a snapshot or a checkpoint directory", hint=alone)
    if "--diff" in asked and path is None:
        raise UsageError("`--diff` compares two snapshots", hint="`ckptctl inspect --diff OLDER NEWER`")
    if "--bundle" in asked and path is None:
        raise UsageError("`--bundle` needs the PATH of a snapshot", hint="`ckptctl inspect CHECKPOINT_DIR` lists them")


def show_rollout(settings: Settings, path: str | None, rollout: str, level: Level | None) -> int:
    """Print the story of one rollout. Returns the status of the worst snapshot that names it.

    Raises:
        UsageError: the level is too shallow, or PATH is no place of snapshots.
        NothingThereError: no snapshot there names the rollout.
    """
    from ckptctl.cli.offline import run_in
    from ckptctl.errors import UsageError
    from ckptctl.render.machine import to_json
    from ckptctl.render.rollout_text import rollout_text
    from ckptctl.workflows.inspect import checkpoint_dir_of
    from ckptctl.workflows.inspect_rollout import inspect_rollout
    from ckptctl.workflows.targets import absolute
    from ckptctl.workflows.validate import VERDICT_CODES

    if level == "quick":
        raise UsageError("`--rollout` reads every part, which level quick does not", hint="leave `--level` out")
    wanted = None if path is None else absolute(path)
    result = run_in(
        settings,
        None if wanted is None else checkpoint_dir_of(wanted),
        lambda world, where, _run: inspect_rollout(world, wanted or where, rollout, level or "standard"),
    )
    as_json = settings.format == "json"
    emit(settings, to_json(result) if as_json else rollout_text(result, verbose=settings.verbose))
    return int(VERDICT_CODES[result.verdict])


def show_diff(settings: Settings, older: str, newer: str, level: Level | None) -> int:
    """Print what happened between two snapshots. Returns the status that the comparison gives.

    Raises:
        UsageError: the level is too shallow, or one of them is no snapshot.
        NothingThereError: one is not there.
    """
    from ckptctl.cli.offline import offline_world
    from ckptctl.errors import UsageError
    from ckptctl.render.diff_text import diff_text
    from ckptctl.render.machine import to_json
    from ckptctl.workflows.inspect import checkpoint_dir_of
    from ckptctl.workflows.inspect_diff import inspect_diff
    from ckptctl.workflows.targets import absolute

    if level == "quick":
        raise UsageError("`--diff` reads every part, which level quick does not", hint="leave `--level` out")
    before, after = absolute(older), absolute(newer)
    world = offline_world(settings, checkpoint_dir_of(after))
    result = inspect_diff(world, before, after, level or "standard")
    emit(settings, to_json(result) if settings.format == "json" else diff_text(result, verbose=settings.verbose))
    return result.exit_code


def write_html(
    ctx: Any, settings: Settings, path: str | None, html: str, rollout: str | None, level: Level | None
) -> int:
    """Write the page about PATH, as safely as an answer with `--output` is written, and print the answer that it was made from.

    Returns the status of the worst verdict.

    Raises:
        UsageError: the place is a checkpoint's own, or an input; or there is no page about PATH.
        NothingThereError: there is nothing at PATH.
        StorageError: it cannot be written.
    """
    import os.path

    from ckptctl.cli.answer import Aside, write_to
    from ckptctl.cli.offline import run_in
    from ckptctl.cli.place import demand_no_input, demand_place
    from ckptctl.domain.amounts import size
    from ckptctl.domain.rollout_story import RolloutInspection
    from ckptctl.domain.safe_text import safe
    from ckptctl.render.inspect_html import html_page
    from ckptctl.render.inspect_text import inspection_text
    from ckptctl.render.machine import to_json
    from ckptctl.render.rollout_text import rollout_text
    from ckptctl.workflows.inspect import checkpoint_dir_of
    from ckptctl.workflows.inspect_page import gather_page
    from ckptctl.workflows.targets import absolute
    from ckptctl.workflows.validate import VERDICT_CODES

    file = absolute(html)
    demand_place(file, HTML)
    demand_no_input(ctx, file, settings.config, HTML)
    wanted = None if path is None else absolute(path)
    found = run_in(
        settings,
        None if wanted is None else checkpoint_dir_of(wanted),
        lambda world, where, _run: gather_page(world, wanted or where, rollout, level),
    )
    data = html_page(found).encode()
    write_to(file, data)
    if not settings.quiet:
        Aside().say(f"page: {safe(os.path.realpath(file))} ({size(len(data))})\n")
    answer = found.inspection if rollout is None else found.rollouts[0]
    if settings.format == "json":
        emit(settings, to_json(answer))
    elif isinstance(answer, RolloutInspection):
        emit(settings, rollout_text(answer, verbose=settings.verbose))
    else:
        settings.notes.inspected(answer)
        emit(settings, inspection_text(answer, verbose=settings.verbose))
    return int(VERDICT_CODES[answer.verdict])
