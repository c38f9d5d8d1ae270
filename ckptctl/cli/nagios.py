"""`inspect --nagios`: one line and the exit status of a monitoring plugin (0, 1, 2, 3), which mean other things than ours.

Whatever goes wrong is UNKNOWN (3) and one line on stdout, a mistyped command line included: 2 would be CRITICAL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ckptctl.cli.answer import emit
from ckptctl.cli.options import Settings

if TYPE_CHECKING:
    from ckptctl.domain.finding import Level
    from ckptctl.planning.alert import AgeLimits

NAME = "--nagios"
NagiosOption = Annotated[
    bool,
    typer.Option(
        NAME, help="One line for a monitoring plugin, with its exit status: 0 ok, 1 warning, 2 critical, 3 unknown."
    ),
]
WarnAgeOption = Annotated[
    str | None,
    typer.Option(
        "--warn-age",
        metavar="DURATION",
        help="With --nagios: warning when the newest valid snapshot is this old.",
        show_default=False,
    ),
]
CriticalAgeOption = Annotated[
    str | None,
    typer.Option(
        "--critical-age",
        metavar="DURATION",
        help="With --nagios: critical when the newest valid snapshot is this old.",
        show_default=False,
    ),
]


def is_asked_for(words: Sequence[str]) -> bool:
    """Whether a command line is that of a monitoring plugin, whatever else is wrong with it."""
    return NAME in words and "inspect" in words


def age_limits(*, is_wanted: bool, warn: str | None, critical: str | None, is_alone: bool) -> AgeLimits:
    """The limits that the options name. Raises UsageError for options that do not go together."""
    from ckptctl.cli.durations import parse_duration_s
    from ckptctl.errors import UsageError
    from ckptctl.planning.alert import AgeLimits

    if not is_wanted and (warn is not None or critical is not None):
        raise UsageError("`--warn-age` and `--critical-age` belong to `--nagios`", hint=None)
    if is_wanted and not is_alone:
        raise UsageError("`--nagios` looks at a checkpoint directory and nothing else", hint="leave the others out")
    limits = AgeLimits(
        None if warn is None else parse_duration_s(warn, "--warn-age"),
        None if critical is None else parse_duration_s(critical, "--critical-age"),
    )
    if limits.warn_s is not None and limits.critical_s is not None and limits.warn_s > limits.critical_s:
        raise UsageError("`--warn-age` is longer than `--critical-age`", hint="the warning comes first")
    return limits


def show_nagios(settings: Settings, path: str | None, level: Level | None, limits: AgeLimits) -> int:
    """Write the line; returns the plugin's exit status."""
    from ckptctl.cli.offline import run_in
    from ckptctl.errors import UsageError
    from ckptctl.planning.alert import judge_alert
    from ckptctl.render.alert_text import alert_line
    from ckptctl.workflows.observe import observe_directory
    from ckptctl.workflows.targets import absolute

    if settings.format == "json":
        raise UsageError("`--nagios` is a format of its own", hint="`ckptctl inspect --format json` has all of it")
    found = run_in(
        settings,
        None if path is None else absolute(path),
        lambda world, where, _run: observe_directory(world, where, {}, level=level or "quick"),
    )
    alert = judge_alert(found, limits)
    emit(settings, alert_line(alert, found, limits))
    return int(alert.state)
