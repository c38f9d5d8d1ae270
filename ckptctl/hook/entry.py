"""The watchdog of a hook: starts its work, waits as long as it may take and no longer, and ends with 0.

After its start it touches no file system; what it says to Slurm (the lines of a TaskProlog; of another hook, on stderr, why
nothing was recorded) comes from the worker. A
TaskProlog's stderr goes through the pipe that Slurm parses for `export`, so nothing may be written there: not even a
traceback of ours.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

RECORDING_S = 1.0
"""How long the worker may take to write down its verdict after the deadline of the reader."""


def run(words: list[str]) -> NoReturn:
    """Run the hook that `words` name. Ends the process with 0, whatever happens."""
    try:
        signal.signal(signal.SIGTERM, _end)  # slurmd at its own limit: SIGKILL follows 10 ms later
        _open_streams(is_silent=words[0] == "task-prolog")
        _watch(words)
    finally:
        os._exit(0)


def _watch(words: list[str]) -> None:
    from ckptctl.hook import children, options, work  # noqa: PLC0415 - a failing import must not print to Slurm's pipe

    began_s = time.monotonic()
    settings = options.parse(words)
    environment = dict(os.environ)
    begin = work.prepare_task if settings.hook == "task-prolog" else work.watch_job
    answer = children.ask(lambda: begin(settings, environment, began_s), began_s + settings.deadline_s + RECORDING_S)
    stream = 1 if settings.hook == "task-prolog" else 2  # the protocol's lines, or a complaint for the log of slurmd
    with open(stream, "wb", closefd=False) as told:
        told.write(answer.data)


def _open_streams(*, is_silent: bool) -> None:
    """No pipe of ours may get the number of a stream that the parent had closed."""
    null = os.open("/dev/null", os.O_RDWR)
    while null < 3:
        null = os.dup(null)
    if is_silent:
        os.dup2(null, 2)


def _end(_number: int, _frame: object) -> None:
    os._exit(0)
