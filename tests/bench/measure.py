"""How the programs measure: one after the other in turns, the best of several rounds, memory in processes of their own."""

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Timing:
    """The shortest of several runs: what else the machine did is not the subject."""

    wall_s: float
    cpu_s: float


def in_turns(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Timing]:
    """Run each of them `rounds` times, in turns, so that what else the machine does hits all alike."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            found[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: Timing(min(wall for wall, _ in runs), min(cpu for _, cpu in runs)) for name, runs in found.items()}


def peak_mib(work: Callable[[], Any]) -> float:
    """How much memory a work takes at most, beyond what there was before it: in a copy of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            ctypes.CDLL(None).malloc_trim(0)  # what earlier works left free would be taken for nothing
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
            before = status_mib("VmRSS")
            work()
            os.write(writing, f"{status_mib('VmHWM') - before}".encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return float(text)


def status_mib(name: str) -> float:
    """`VmRSS` (now) or `VmHWM` (at most) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def compare(title: str, times: Mapping[str, Timing], *notes: str) -> None:
    """One comparison, ours first: a ratio above 1 means that ckptctl took less time."""
    (ours, first), *others = times.items()
    print(title)
    print(f"  {ours:<34} {first.wall_s * 1000:10.1f} ms   cpu {first.cpu_s * 1000:10.1f} ms")
    for name, timing in others:
        ratio, cpu_ratio = timing.wall_s / first.wall_s, timing.cpu_s / first.cpu_s
        print(
            f"  {name:<34} {timing.wall_s * 1000:10.1f} ms   cpu {timing.cpu_s * 1000:10.1f} ms"
            f"   ratio {ratio:6.3g} (cpu {cpu_ratio:.3g})"
        )
    for note in notes:
        print(f"  {note}")
    print(flush=True)
