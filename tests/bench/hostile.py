"""`python -m tests.bench.hostile`: peak memory of `validate` on the worst input of each kind, each in a process of its own.

Prints a table; the ceiling is asserted in `tests/hostile/test_memory.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.worst import Worst, worst_inputs

MEASURING = """
import json, os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
print(json.dumps([used.ru_maxrss, used.ru_utime + used.ru_stime, status]))
"""
"""Runs a command and prints its peak in KiB, processor seconds and wait status. Linux counts the memory of whoever starts a process
as that process's own until it executes: only a small one may start what is measured."""


@dataclass(frozen=True)
class Cost:
    """What one validation took, and what it answered."""

    peak_bytes: int
    cpu_s: float
    exit_code: int
    report: str
    said: str


def cost_of(worst: Worst, folder: Path) -> Cost:
    """Write the input below `folder`, validate it in a child, and remove it."""
    run = folder / "run"
    subprocess.run([sys.executable, "-m", "tests.hostile.worst", worst.name, str(run)], check=True)
    answer = folder / "answer.json"
    arguments = ["validate", str(run), "--level", worst.level, "--format", "json", "--output", str(answer)]
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURING, sys.executable, "-m", "ckptctl", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
    )
    peak_kib, cpu_s, status = json.loads(done.stdout)
    report = answer.read_text() if answer.exists() else ""
    shutil.rmtree(folder)
    said = done.stderr.decode(errors="replace")
    return Cost(peak_kib * 1024, cpu_s, os.waitstatus_to_exitcode(status), report, said)


def first_words(cost: Cost, worst: Worst) -> str:
    """The first finding or gap that is about the input."""
    if not cost.report:
        return cost.said.strip()[-200:]
    for target in json.loads(cost.report)["targets"]:
        for finding in target["findings"]:
            if worst.word in json.dumps(finding):
                return f"{target['verdict']}: {finding['rule']} {finding['message']}"
        for outcome in target["outcomes"]:
            if worst.word in outcome["reason"] and outcome["outcome"] == "could_not_run":
                return f"{target['verdict']}: {outcome['rule']} could not run: {outcome['reason']}"
    return f"NOT NAMED {[(target['verdict'], [item['rule'] for item in target['findings']]) for target in json.loads(cost.report)['targets']]}"


def main() -> None:
    """Print one line for each input."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="inputs whose name holds this")
    wanted = parser.parse_args()
    highest = 0
    for worst in worst_inputs():
        if wanted.only not in worst.name:
            continue
        began = time.perf_counter()
        cost = cost_of(worst, Path(tempfile.mkdtemp(prefix="ckptctl-hostile-")))
        highest = max(highest, cost.peak_bytes)
        print(
            f"{worst.name:38} {cost.peak_bytes / (1 << 20):6.0f} MiB {cost.cpu_s:6.1f} s CPU {time.perf_counter() - began:6.1f} s"
            f"  exit {cost.exit_code:3}  {first_words(cost, worst)[:150]}",
            flush=True,
        )
    print(f"highest: {highest / (1 << 20):.0f} MiB")


if __name__ == "__main__":
    main()
