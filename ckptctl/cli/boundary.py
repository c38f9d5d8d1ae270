"""The error boundary: every CkptctlError becomes one text or one JSON object on stderr, and its exit status.

It sits in `invoke` of the group class, because only there it gives the right code in a test runner and in a real process alike.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from traceback import print_exception, walk_tb
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ckptctl.cli.answer import Aside, abandon_stdout, lost_because
from ckptctl.cli.metrics import RunNotes, metrics_path_in, note_usage, write_metrics
from ckptctl.cli.nagios import is_asked_for as is_alert
from ckptctl.cli.stopping import ending_in_order
from ckptctl.errors import CkptctlError, ExitCode, StorageError, UsageError


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON; decided on the raw words, because a usage error leaves nothing parsed."""
    following = (*arguments[1:], "")
    return (
        any(
            word == "--format=json" or (word == "--format" and after == "json")
            for word, after in zip(arguments, following, strict=False)
        )
        or os.environ.get("CKPTCTL_FORMAT") == "json"
    )


def report_error(error: CkptctlError, *, as_json: bool, config: str | None = None) -> None:
    """Write one error to stderr. `config`: what the command line named, for the command that the hint says comes next."""
    from ckptctl.render.errors import error_json, error_text
    from ckptctl.render.next_command import with_config

    if error.hint and config:
        error.hint = with_config(error.hint, config)
    if as_json:
        Aside().write(error_json(error))
    else:
        Aside().say(error_text(error), red=f"error[{error.code}]")


class BoundaryGroup(TyperGroup):
    """A typer group whose errors have codes."""

    words: Sequence[str] = ()
    """The command line of this invocation, as it was given."""
    notes: RunNotes = RunNotes()
    """What its command notes, for the metrics of the run."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options before the command; as typer's, in our words."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except TyperException as problem:
            _reword(problem)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn a CkptctlError into its exit status."""
        try:
            with ending_in_order(terminates=metrics_path_in(self.words) is not None):
                result = super().invoke(ctx)
                sys.stdout.flush()
        except TyperException as problem:
            _reword(problem)
            raise
        except CkptctlError as error:
            self.notes.error = error
            if is_alert(self.words):
                raise typer.Exit(_say_unknown(error.message)) from error
            settings = ctx.find_root().obj
            named = settings.config if getattr(settings, "is_config_named", False) else None
            report_error(error, as_json=_format_of(ctx) == "json", config=named)
            raise typer.Exit(int(error.exit_code)) from error
        except BrokenPipeError:
            abandon_stdout()  # the reader went away: nothing to say
            raise typer.Exit(int(ExitCode.BROKEN_PIPE)) from None
        except KeyboardInterrupt:
            Aside().clear()
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As typer's, but usage errors look like all others, also as JSON, and help into a closed pipe is 141."""
        words = self.words = list(sys.argv[1:] if args is None else args)
        notes = self.notes = RunNotes()
        status: Any = int(ExitCode.BUG)
        try:
            status = self._main(args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
        except SystemExit as end:
            status = end.code
            if isinstance(end.__context__, TyperException) and is_alert(words):
                status = _say_unknown("the command line is wrong, see stderr")
                raise SystemExit(status) from end
            raise
        except Exception as bug:
            if not is_alert(words):
                raise
            print_exception(bug)
            status = _say_unknown("ckptctl failed by a bug of its own, see stderr")
            raise SystemExit(status) from bug
        finally:
            known = status if isinstance(status, int) else int(ExitCode.DONE)
            if known == ExitCode.USAGE:
                note_usage(notes, words, tuple(self.commands))
            write_metrics(notes, known)
        return status

    def _main(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        standalone_mode: bool,
        windows_expand_args: bool,
        **extra: Any,
    ) -> Any:
        try:
            status = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except TyperException as problem:
            if not standalone_mode:
                raise
            named = next((word for word in self.words if word in self.commands), None)
            _report_usage(problem, "ckptctl" if named is None else f"ckptctl {named}", as_json=wants_json(self.words))
            sys.exit(int(ExitCode.USAGE))
        except BrokenPipeError:
            abandon_stdout()
            sys.exit(int(ExitCode.BROKEN_PIPE))
        except OSError as error:
            _end_with_lost_words(error)
            raise
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # typer makes a status 1 of it
                sys.exit(int(ExitCode.BROKEN_PIPE))
            raise
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status


def _say_unknown(message: str) -> int:
    """A monitoring plugin that cannot tell says so on stdout, whatever kept it from that."""
    from ckptctl.planning.alert import AlertState
    from ckptctl.render.alert_text import unknown_line

    sys.stdout.write(unknown_line(message))
    sys.stdout.flush()
    return int(AlertState.UNKNOWN)


def _end_with_lost_words(error: OSError) -> None:
    """End with the right status when help or a usage error, which typer writes by itself, could not be written."""
    stream = _stream_of(error)
    if stream is sys.stdout:
        abandon_stdout()
        lost = StorageError(operation="write", path="standard output", detail=lost_because(error), cause=error)
        report_error(lost, as_json=False)
        sys.exit(int(lost.exit_code))
    if stream is sys.stderr:
        sys.exit(int(ExitCode.USAGE))


def _stream_of(error: OSError) -> object:
    """The stream that typer's own `echo` was writing to; after a failure the stream itself does not show it."""
    found = [frame.f_locals.get("file") for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "echo"]
    return found[-1] if found else None


def _report_usage(problem: TyperException, command: str, *, as_json: bool) -> None:
    """An error of the parser in the form of all others; a command that does nothing by itself shows its help instead.

    `command` is the one to ask for help where the parser does not know: it names none for an option without its value.
    """
    told = problem.format_message()
    if told.startswith("Usage: ") and not as_json:
        Aside().write(f"{told}\n")
        return
    words = re.sub(r"\s*\n\s*", " ", told).replace("(Possible options: ", "(possible options: ")
    known = getattr(getattr(problem, "ctx", None), "command_path", command)
    hint = f"see `{known} --help`"
    report_error(UsageError(words[:1].lower() + words[1:].rstrip("."), hint=hint), as_json=as_json)


def _reword(problem: TyperException) -> None:
    """Drop what pydantic puts before typer's reason why a value does not do."""
    from ckptctl.domain.document import reason_of

    problem.message = reason_of(problem.message)


def _format_of(ctx: Any) -> str:
    settings = ctx.find_root().obj
    return getattr(settings, "format", "text") or "text"
