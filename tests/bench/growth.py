"""How time and memory of a whole validation grow with the number of records, and with the bytes of each."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.large import write_large
from tests.bench.measure import MEBIBYTE

_PROGRAM = """
import json, sys, time
from pathlib import Path
from ckptctl.adapters.local_store import LocalStore
from ckptctl.workflows.validate import ValidateRequest, validate
wall, cpu = time.perf_counter(), time.process_time()
report = validate(LocalStore(), ValidateRequest(paths=(sys.argv[1],), level=sys.argv[2]))
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps([report.verdict, time.perf_counter() - wall, time.process_time() - cpu, peak]))
"""


def bench_growth(rows: int, tokens: int, rounds: int) -> None:
    """The last row of the table: 1, 2 and 4 times the records, then 1, 2 and 4 times the bytes."""
    print(
        f"growth of a whole validation, from {rows:,} staged rows of {tokens:,} tokens (each run in a process of its own)"
    )
    sizes = [(rows * times, tokens, f"{times} x records") for times in (1, 2, 4)]
    sizes += [(rows, tokens * times, f"{times} x bytes") for times in (2, 4)]
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as folder:
        for number, (count, length, what) in enumerate(sizes):
            snapshot = write_large(Path(folder) / str(number), count, length)
            size = sum(path.stat().st_size for path in snapshot.rglob("*") if path.is_file())
            line = f"  {what:<12} {count:>9,} rows {size / MEBIBYTE:>8.0f} MiB"
            for level in ("standard", "full"):
                verdict, wall_s, cpu_s, peak_mib = best_of([_run(snapshot, level) for _ in range(rounds)])
                line += f"   {level} {verdict} {wall_s:6.2f} s (cpu {cpu_s:.2f}) peak {peak_mib:4.0f} MiB"
            print(line, flush=True)
    print("  goal: linear in records and bytes; at most 600 MiB\n", flush=True)


def best_of(runs: list[tuple[str, float, float, float]]) -> tuple[str, float, float, float]:
    """The quickest run, with the largest peak of all."""
    verdict, wall_s, cpu_s, _ = min(runs, key=lambda run: run[1])
    return verdict, wall_s, cpu_s, max(run[3] for run in runs)


def _run(snapshot: Path, level: str) -> tuple[str, float, float, float]:
    command = [sys.executable, "-c", _PROGRAM, str(snapshot), level]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    verdict, wall_s, cpu_s, peak_mib = json.loads(done.stdout)
    return verdict, wall_s, cpu_s, peak_mib
