"""Where the process starts. Looks at the arguments first, so that `--version` and hooks do not pay for typer (design: start-up).

Everything else is `cli.app`'s business.
"""

from __future__ import annotations

import errno
import os
import sys

try:
    from ckptctl.hook.options import is_hook
except KeyboardInterrupt:
    os._exit(130)  # the few milliseconds until signals are heard

ALLOCATIONS_BEFORE_COLLECTION = 20_000
"""Imports make 100,000 objects that stay: looking through them 150 times, as 700 does, took 7 % of a command's start."""


def main() -> None:
    """Run ckptctl on this process's arguments; never returns normally."""
    if is_hook(sys.argv[1:]):
        from ckptctl.hook import entry  # noqa: PLC0415 - a hook ends with 0, by itself, whatever happens

        entry.run(sys.argv[2:])
    try:
        from ckptctl.cli import stopping  # noqa: PLC0415 - a hook does not need it
    except KeyboardInterrupt:
        os._exit(130)  # as above
    stopping.end_at_once()
    _open_missing_streams()
    if os.environ.get("_CKPTCTL_COMPLETE"):
        from ckptctl.cli import completing  # noqa: PLC0415 - a shell asks at a key press

        if completing.is_asked():
            sys.exit(completing.answer())
    if sys.argv[1:] == ["--version"]:
        from ckptctl import __version__  # noqa: PLC0415 - keeps this path free of heavy imports

        try:
            sys.stdout.write(f"ckptctl {__version__}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - flushed at exit without complaint
            sys.exit(141)
        except OSError as error:
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - as above
            reason = "it is closed" if error.errno == errno.EBADF else error.strerror
            sys.stderr.write(f"error[storage]: cannot write `standard output`: {reason}\n")
            sys.exit(32)
        sys.exit(0)
    import gc  # noqa: PLC0415 - as above

    gc.set_threshold(ALLOCATIONS_BEFORE_COLLECTION)
    from ckptctl.cli.app import app  # noqa: PLC0415 - typer and pydantic cost 150 ms: only where they are used

    app(prog_name="ckptctl")


def _open_missing_streams() -> None:
    """A parent may have closed any of the three: no file of ours may get their number.

    Of stderr nobody wants to hear; but whoever closed stdout gets no answer, so what stands in for it refuses to be written.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            access = os.O_RDONLY if number == 1 else os.O_RDWR
            os.set_inheritable(os.open(os.devnull, access), True)  # the lowest number that is free: this one
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - until exit


if __name__ == "__main__":
    main()
