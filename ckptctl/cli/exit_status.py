"""The "Exit status" list at the end of each command's help, generated from the errors package."""

from __future__ import annotations

import textwrap

from ckptctl.errors import EXIT_MEANINGS, ExitCode

ALWAYS = (ExitCode.DONE, ExitCode.BUG, ExitCode.USAGE, ExitCode.NOTHING_THERE)
ENDINGS = (ExitCode.INTERRUPTED, ExitCode.BROKEN_PIPE, ExitCode.TERMINATED)
VERDICTS = (ExitCode.NOT_CHECKED, ExitCode.INCOMPATIBLE, ExitCode.INVALID)
SIM = (ExitCode.REFUSED, ExitCode.UNREACHABLE, ExitCode.SERVER_REFUSED, ExitCode.STORAGE)
LIVE = (ExitCode.BUSY, ExitCode.UNREACHABLE, ExitCode.SERVER_REFUSED, ExitCode.STORAGE)

WIDTH = 76
"""The list fits a terminal of 80 columns: click indents it by two and leaves two free."""

OF_COMMAND: dict[str, tuple[ExitCode, ...]] = {
    "snapshot": (ExitCode.REFUSED, ExitCode.ABORTED, ExitCode.RELEASE_PENDING, ExitCode.ADMISSION_CLOSED, *LIVE),
    "validate": (ExitCode.WARNINGS, *VERDICTS, ExitCode.STORAGE),
    "publish": (*VERDICTS, ExitCode.REFUSED, ExitCode.RELEASE_PENDING, ExitCode.ADMISSION_CLOSED, *LIVE),
    "restore": (*VERDICTS, ExitCode.REFUSED, ExitCode.RELEASE_PENDING, ExitCode.ADMISSION_CLOSED, *LIVE),
    "gc": (ExitCode.REFUSED, ExitCode.ABORTED, ExitCode.RELEASE_PENDING, ExitCode.ADMISSION_CLOSED, *LIVE),
    "inspect": (*VERDICTS, ExitCode.REFUSED, ExitCode.ADMISSION_CLOSED, *LIVE),
    "slurm": (ExitCode.STORAGE,),
    "help": (ExitCode.STORAGE,),
    "slurm claim": (ExitCode.REFUSED, ExitCode.BUSY, ExitCode.STORAGE),
    "sim": SIM,
    "sim compare": (ExitCode.INVALID, *SIM),
    "sim demo": (*VERDICTS, ExitCode.ABORTED, ExitCode.RELEASE_PENDING, ExitCode.ADMISSION_CLOSED, ExitCode.BUSY, *SIM),
}
"""What each command can end with besides ALWAYS and ENDINGS."""

ONLY: dict[str, tuple[ExitCode, ...]] = {"hook": (ExitCode.DONE, ExitCode.USAGE)}
"""Commands that end with nothing else; usage is a hook's name that there is not."""


def codes_of(command: str) -> tuple[ExitCode, ...]:
    """Every status of a command, in order."""
    if command in ONLY:
        return ONLY[command]
    return tuple(sorted({*ALWAYS, *OF_COMMAND[command], *ENDINGS}))


def epilog(command: str) -> str:
    """The list as help text; the first line keeps the help formatter from re-wrapping it, so it is wrapped here."""
    lines = [
        textwrap.fill(
            EXIT_MEANINGS[code],
            WIDTH,
            initial_indent=f"{int(code):>4}  ",
            subsequent_indent=" " * 6,
            break_on_hyphens=False,
        )
        for code in codes_of(command)
    ]
    return "\b\nExit status:\n" + "\n".join(lines)
