"""`ckptctl help COMMAND`: one page for each command, offline: its help, examples, and the statuses that it ends with.

Made of the commands themselves when it is asked for, so that it cannot be out of date; `--man` is the same for man(1).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ckptctl.cli.answer import emit
from ckptctl.cli.exit_status import OF_COMMAND, codes_of, epilog
from ckptctl.cli.options import ConfigOption, FormatOption, OutputOption, QuietOption, VerboseOption, remember


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("help", short_help="The page of a command: options, examples, exit statuses.", epilog=epilog("help"))(
        show_help
    )


def show_help(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="Which command; of a group also its own (sim fault).", show_default=False
        ),
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="As a manual page, for `man -l -`.")] = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Show the page of a command: what it does, its options, examples, and the statuses that it ends with."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    from ckptctl.render.help_page import help_page, manual_page
    from ckptctl.render.machine import to_json

    page = _page(ctx, tuple(command or ()))
    text = to_json(page) if settings.format == "json" else manual_page(page) if man else help_page(page)
    emit(settings, text)


def _page(ctx: Any, words: tuple[str, ...]) -> Any:
    """The page of one command. Raises UsageError for words that are none."""
    from ckptctl import __version__
    from ckptctl.cli.examples import EXAMPLES
    from ckptctl.errors import EXIT_MEANINGS, UsageError
    from ckptctl.render.help_page import ExampleLine, HelpPage, StatusLine

    here = ctx.find_root()
    for word in words:
        inner = getattr(here.command, "commands", {})
        if word not in inner:
            known = ", ".join(inner) or "none"
            raise UsageError(f"there is no command `{' '.join(words)}`", hint=f"commands there: {known}")
        here = type(ctx)(inner[word], info_name=word, parent=here)
    name = " ".join(words)
    key = name if name in OF_COMMAND else words[0] if words and words[0] in OF_COMMAND else None
    return HelpPage(
        command=name,
        version=__version__,
        summary=here.command.get_short_help_str(100),
        text=here.command.get_help(here),
        examples=tuple(ExampleLine(about=about, line=line) for about, line in EXAMPLES.get(name, ())),
        statuses=()
        if key is None
        else tuple(StatusLine(status=int(code), meaning=EXIT_MEANINGS[code]) for code in codes_of(key)),
    )
