"""Starts all processes of a cluster from one that has imported everything: `python -m ckptctl.sim.launch < PLAN`.

The plan is JSON: {life_line, processes: [{role, settings, log}]}. Each process becomes a fork in a session of its own, with
its output in its log; the answer is a JSON list of {pid, start_ticks} in the same order. A cluster of six processes then costs
one start of Python, not six. When nobody takes the answer, the processes are ended again. `life_line` is the number of a
descriptor (see that module): whoever asked for the cluster may be gone before it is recorded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import Any

from ckptctl.sim import controller_process, process
from ckptctl.sim.life_line import end_unless_recorded, is_cut
from ckptctl.sim.processes import ProcessIdentity, identity_of, stop


def main() -> int:
    """Fork every process of the plan and say who they are."""
    plan = json.load(sys.stdin)
    life_line = plan["life_line"]
    started: list[ProcessIdentity] = []
    if is_cut(life_line):
        return 1
    try:
        for entry in plan["processes"]:
            started.append(_fork(entry, life_line))  # noqa: PERF401 - what was started before a failure must be known
        answer = [{"pid": identity.pid, "start_ticks": identity.start_ticks} for identity in started]
        sys.stdout.write(json.dumps(answer))
        sys.stdout.flush()
    except BaseException:
        stop(started, kill=True)
        raise
    return 0


def _fork(entry: dict[str, Any], life_line: int) -> ProcessIdentity:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = _serve(entry, life_line)
        except BaseException:
            traceback.print_exc()  # nobody else would: the process ends before the interpreter does
            raise
        finally:
            sys.stderr.flush()
            os._exit(status)
    identity = identity_of(pid)
    if identity is None:
        raise RuntimeError(f"the {entry['role']} ended at once")
    return identity


def _serve(entry: dict[str, Any], life_line: int) -> int:
    """The child's whole life."""
    os.setsid()
    end_unless_recorded(life_line)
    log = os.open(entry["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve = controller_process.main if entry["role"] == "controller" else process.main
    return serve(["--settings", entry["settings"]])


if __name__ == "__main__":
    sys.exit(main())
