"""How long a start takes: hooks, `--version` and completion beside an empty Python, the other commands beside a hello world of typer.

Each is a process of its own, isolated as hooks are, in turns; the shortest of several rounds counts.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.goldens import SAMPLES

HELLO = "import typer\napp = typer.Typer()\n@app.command()\ndef hello():\n    print('hello')\n@app.command()\ndef bye():\n    print('bye')\napp(['hello'])\n"
GOAL_LIGHT, GOAL_TYPER = 3.0, 1.3


def bench_startup(rounds: int) -> None:
    """Row "start" of the table. A hook is measured for a job without snapshots, as most are: with some it starts ckptctl as well."""
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as folder:
        job = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_WORK_DIR": folder}
        ours = {
            "--version": (("--version",), {}),
            "completion": ((), {"_CKPTCTL_COMPLETE": "complete_bash", "COMP_WORDS": "ckptctl val", "COMP_CWORD": "1"}),
            "hook prolog": (("hook", "prolog"), job),
            "hook epilog": (("hook", "epilog"), job),
            "hook task-prolog": (("hook", "task-prolog"), job),
        }
        _bench("an empty Python", ("-c", ""), ours, rounds, GOAL_LIGHT, Path(folder))
        config = ("--config", str(SAMPLES / "turn.yaml"))
        others = {
            "--help": (("--help",), {}),
            "restore --select": (("restore", "--select", *config), {}),
            "inspect": (("inspect", str(SAMPLES / "turn")), {}),
        }
        _bench("a hello world of typer", ("-c", HELLO), others, rounds, GOAL_TYPER, SAMPLES)


def _bench(
    rival: str,
    words: tuple[str, ...],
    ours: dict[str, tuple[tuple[str, ...], dict[str, str]]],
    rounds: int,
    goal: float,
    folder: Path,
) -> None:
    works = {rival: (words, {}), **{name: (("-m", "ckptctl", *given), extra) for name, (given, extra) in ours.items()}}
    walls: dict[str, float] = dict.fromkeys(works, float("inf"))
    cpus: dict[str, float] = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, (arguments, variables) in works.items():
            wall_s, cpu_s = _measured([sys.executable, "-I", *arguments], variables, folder)
            walls[name], cpus[name] = min(walls[name], wall_s), min(cpus[name], cpu_s)
    print(f"start, beside {rival}: {walls[rival] * 1000:.1f} ms, cpu {cpus[rival] * 1000:.1f} ms")
    for name in ours:
        wall, cpu = walls[name] / walls[rival], cpus[name] / cpus[rival]
        print(
            f"  {name:<18} {walls[name] * 1000:8.1f} ms  {wall:5.2f} times   cpu {cpus[name] * 1000:7.1f} ms  {cpu:5.2f} times"
        )
    print(f"  goal: {goal:g} times\n", flush=True)


def _measured(words: list[str], variables: dict[str, str], folder: Path) -> tuple[float, float]:
    """Seconds of one run: wall, and processor time of all its processes that were waited for."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        words,
        cwd=folder,
        env={"LANG": "C.UTF-8", **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
