"""The admission-closed window: what a snapshot asks of servers while calls drain, its own time, and what it costs a run.

Counts come from `tests.bench.drain` on virtual time, next to the same coordinator polling and sending receipts one by one. Times come from
an embedded cluster of real processes on loopback, as `ckptctl inspect --timings` tells them; throughput from the same run without snapshots.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ckptctl.adapters.local_store import LocalStore
from ckptctl.workflows.judging import judge_staged
from tests.bench.measure import MEBIBYTE

TURNS = 6
GENERATIONS = 4


@dataclass(frozen=True)
class RealRun:
    """A run in real processes: its rollouts, the length of their policy calls, and how often a snapshot is taken."""

    agents: int
    rollouts: int
    call_s: float
    every_s: float


def bench_window(run: RealRun, drained: int, rounds: int) -> None:
    """Drains of `drained` rollouts on virtual time, and a real run with snapshots and without."""
    agents, rollouts = run.agents, drained
    print(
        f"admission-closed window: {agents} agents, {rollouts} rollouts in policy calls of which so much is left (virtual time)"
    )
    program = [sys.executable, "-m", "tests.bench.drain", str(agents), str(rollouts)]
    found = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    _print_drains(found["drains"])
    _print_outboxes(found["outboxes"], agents)
    _bench_run(run, rounds)


def _print_drains(drains: list[dict]) -> None:
    ours = [item for item in drains if item["coordinator"] == "ckptctl"]
    for item in ours:
        (other,) = [other for other in drains if other["length_s"] == item["length_s"] and other is not item]
        print(
            f"  {item['length_s']:>4.0f} s left: ckptctl {item['requests']:>4} requests {item['bytes'] / 1024:>7.1f} KiB, closed"
            f" {item['closed_s']:6.2f} s   at 10 Hz {other['requests']:>6} requests {other['bytes'] / 1024:>8.1f} KiB, closed"
            f" {other['closed_s']:6.2f} s   ratio {other['requests'] / item['requests']:6.1f}"
        )
    growth = ours[-1]["requests"] / ours[0]["requests"]
    times = ours[-1]["length_s"] / ours[0]["length_s"]
    print(
        f"  a drain {times:.0f} times as long: {growth:.2f} times the requests (goal: no more than its logarithm)",
        flush=True,
    )


def _print_outboxes(outboxes: list[dict], agents: int) -> None:
    for item in outboxes:
        lots = agents * -(-item["receipts"] // (1000 * agents))
        print(
            f"  {item['receipts']:,} receipts owed, {item['coordinator']:<11}: {item['acknowledge']:>5} requests to agents"
            f" ({item['acknowledge'] / lots:.2f} per agent and 1,000; goal 1), {item['confirm']} + {item['pages']} to the controller,"
            f" {item['requests']} in all until commit",
            flush=True,
        )


def _bench_run(run: RealRun, rounds: int) -> None:
    rollouts = run.rollouts
    print(
        f"  a run of {rollouts} rollouts, policy calls of {run.call_s:g} s, processes on loopback, a snapshot every {run.every_s:g} s"
    )
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as name:
        alone_s, _ = _run(Path(name) / "alone", run, has_snapshots=False)
        with_s, timings = _run(Path(name) / "with", run, has_snapshots=True)
        print(
            f"  throughput: {rollouts / alone_s:.2f} rollouts/s without, {rollouts / with_s:.2f} with snapshots: {alone_s / with_s:.2f} of it"
        )
        closed, own = timings["admission_closed_s"], timings["own_s"]
        print(f"  {closed['count']} snapshots, admission closed: p50 {closed['p50']:.3f} s, p95 {closed['p95']:.3f} s")
        print(
            f"  own time between requests: p50 {own['p50'] * 1000:.1f} ms, p95 {own['p95'] * 1000:.1f} ms (goal p95 50 ms)"
        )
        steps = {step["name"]: step["seconds"] for step in timings["steps"]}
        for step in ("save", "validate", "write-checksums", "sync", "publish"):
            print(f"    {step:<16} p50 {steps[step]['p50'] * 1000:7.1f} ms   p95 {steps[step]['p95'] * 1000:7.1f} ms")
        _compare_validation(Path(name) / "with" / "checkpoints", timings, rounds)


def _run(folder: Path, run: RealRun, *, has_snapshots: bool) -> tuple[float, dict]:
    """Seconds of the whole run, and its timings."""
    at = ("--dir", str(folder))
    groups = run.rollouts // GENERATIONS
    size = ("--agents", run.agents, "--prompts", groups, "--generations", GENERATIONS, "--turns", TURNS)
    _ckptctl("sim", "up", *at, *map(str, size), "--in-flight", str(run.rollouts), "--generation-delay", str(run.call_s))
    taking = None
    try:
        began_s = time.monotonic()
        if has_snapshots:
            command = [
                sys.executable,
                "-m",
                "ckptctl",
                "-q",
                "snapshot",
                "--every",
                f"{run.every_s:g}s",
                "--config",
                f"{folder}/ckptctl.yaml",
            ]
            taking = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _ckptctl("sim", "run", *at, "--wait")
        took_s = time.monotonic() - began_s
    finally:
        if taking is not None:
            taking.terminate()
            taking.wait()
        _ckptctl("sim", "down", *at)
    if not has_snapshots:
        return took_s, {}
    return took_s, json.loads(_ckptctl("inspect", f"{folder}/checkpoints", "--timings", "--format", "json"))


def _compare_validation(checkpoint_dir: Path, timings: dict, rounds: int) -> None:
    """The same work on the same files, once more: what was published last, judged as it was before publication."""
    published = [item["snapshot"] for item in timings["transactions"] if item["outcome"] == "published"]
    snapshot = checkpoint_dir / published[-1]
    one = json.loads(_ckptctl("inspect", str(snapshot), "--timings", "--format", "json"))
    (inside_s,) = [step["seconds"] for step in one["last_steps"] if step["name"] == "validate"]
    size = sum(path.stat().st_size for path in snapshot.rglob("*") if path.is_file())
    alone = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        judge_staged(LocalStore(), str(snapshot), "standard", None)
        alone.append(time.perf_counter() - began_s)
    print(
        f"  validation of the last one ({size / MEBIBYTE:.1f} MiB): {inside_s * 1000:.1f} ms in the window, {median(alone) * 1000:.1f} ms"
        f" by itself: {inside_s / median(alone):.2f} times (goal 2)\n",
        flush=True,
    )


def _ckptctl(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "ckptctl", *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
