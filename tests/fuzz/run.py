"""`python -m tests.fuzz.run`: a long run over all readers, or one; prints what came of it and keeps the inputs that found a fault.

python -m tests.fuzz.run --runs 40000 --seed 7           every reader, and whole snapshots
python -m tests.fuzz.run --reader tar --runs 1000000     one of them

Inputs that are chosen by what they reach: `tests.fuzz.guided`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.engine import Tally, fuzz
from tests.fuzz.readers import readers
from tests.fuzz.snapshots import SNAPSHOTS, fuzz_snapshots


def main() -> None:
    """Run and print one line for each reader; status 1 when anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--reader", choices=[*readers(), SNAPSHOTS], action="append", help="which (default: all)")
    parser.add_argument("--runs", type=int, default=10_000, help="inputs for each (default 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (default 0)")
    parser.add_argument("--found", type=Path, help="folder for the inputs that found a fault")
    wanted = parser.parse_args()
    names = wanted.reader or [*readers(), SNAPSHOTS]
    total, has_faults = 0, False
    for name in names:
        began = time.perf_counter()
        tally = (
            fuzz_snapshots(wanted.runs, wanted.seed)
            if name == SNAPSHOTS
            else fuzz(readers()[name], wanted.runs, wanted.seed)
        )
        _show(name, tally, time.perf_counter() - began, wanted.found)
        total += tally.inputs
        has_faults = has_faults or bool(tally.faults)
    print(f"{'total':22} {total:>9,} inputs")
    sys.exit(1 if has_faults else 0)


def _show(name: str, tally: Tally, seconds: float, found: Path | None) -> None:
    print(
        f"{name:22} {tally.inputs:>9,} inputs {tally.values:>9,} read {tally.defects:>9,} refused {sum(tally.kinds.values()):>6} faults"
        f" {tally.inputs / max(seconds, 1e-9):>9,.0f}/s",
        flush=True,
    )
    for number, fault in enumerate(tally.faults):
        print(f"    {fault.what} ({tally.kinds[fault.what]} times)\n{fault.trace}", flush=True)
        if found is not None:
            found.mkdir(parents=True, exist_ok=True)
            (found / f"{name}-{number}").write_bytes(fault.data)


if __name__ == "__main__":
    main()
