"""Play seeds of the simulation: one, with its trace, or many side by side. Exit 0 when every invariant held."""

from __future__ import annotations

import argparse
import sys

from tests.simulation import sandbox
from tests.simulation.soak import STRETCH, Sum, play_many
from tests.simulation.stories import play

TELL_EVERY = 100


def main() -> int:
    """Parse, play, tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="play one seed and tell what happened")
    what.add_argument("--seeds", type=int, nargs=2, metavar=("FROM", "COUNT"), help="play many")
    parser.add_argument("--trace", action="store_true", help="with --seed: every message and every system call")
    parser.add_argument("--workers", type=int, help="processes for --seeds (default: as many as there are CPUs)")
    options = parser.parse_args()
    if options.seed is not None:
        with sandbox.installed():
            report = play(options.seed, keeps_trace=options.trace)
        sys.stdout.write("\n".join([*report.trace, report.text(), f"  digest {report.digest}"]) + "\n")
        return 1 if report.breaches else 0
    total = Sum()
    for part in play_many(*options.seeds, workers=options.workers):
        for report in part.failed:
            sys.stdout.write(report.text() + "\n")
        total.add(part)
        if total.seeds % TELL_EVERY < STRETCH:
            hit = total.tally.hit()
            sys.stdout.write(f"{total.seeds} seeds, {len(total.failed)} failed, {hit}\n")
        sys.stdout.flush()
    total.failed, failed = [], total.failed
    sys.stdout.write(f"{total.text()}\nfailed: {', '.join(str(report.seed) for report in failed) or 'none'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
