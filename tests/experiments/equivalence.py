"""Killed at a random moment after a publication, restored, played to the end: is the run equal to one that nobody interrupted?

`python -m tests.experiments.equivalence --environment counter --moments 20 --seed 1` starts real clusters, holds them at a drawn place
(before a model call, or before a tool), takes a snapshot with the real program, lets a drawn amount of work follow that no snapshot holds,
ends every process with SIGKILL, starts fresh ones, restores, and compares with an uninterrupted run (`sim.equivalence`). It prints counts: moments,
equal ones, tools that ran twice or not at all, finished work that was done again, and from which turn rollouts went on. Each moment is a
function of the seed, the environment and its number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptctl.sim.cluster_client import ClusterClient
from ckptctl.sim.cluster_options import read_record
from ckptctl.sim.equivalence import Comparison, compare
from ckptctl.sim.run_files import read_log
from ckptctl.sim.run_history import Line, RunHistory, read_history
from ckptctl.sim.workplace import ADD_TASK, CREATE_EVENT, SEND_MAIL
from tests.e2e.lives import Life, owning

TURNS = 4
OPTIONS: dict[str, tuple[str, ...]] = {
    "counter": ("--env", "counter"),
    "workplace": ("--env", "workplace"),
    "genrm": ("--env", "genrm"),
    "mixed": ("--env", "counter", "--env", "workplace", "--env", "genrm", "--agents", "2", "--prompts", "3"),
}
GROUPS = {"mixed": 3}
SIBLINGS = 2
GENERATE = ("policy_model", "generate")
TOOLS = {
    "counter": (("counter", "increment"),),
    "workplace": (("workplace", CREATE_EVENT), ("workplace", SEND_MAIL), ("workplace", ADD_TASK)),
    "genrm": (("genrm", "register"),),
}
"""Where rollouts can be held besides before a model call: what an agent asks for in the middle of a turn."""
IN_EACH_TURN = {GENERATE, TOOLS["counter"][0]}
"""The others happen about once in a rollout."""
PACE = ("--turn-delay", "0.02")


class Played(Life):
    """A run of one environment, or of all of them."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.name, self.groups = name, GROUPS.get(name, 2)
        self.sim("up", "--prompts", "2", "--turns", str(TURNS), *PACE, *OPTIONS[name])

    def hold(self, server: str, operation: str, after_calls: int) -> None:
        """So many requests are served, then whoever sends one waits."""
        late = {"operation": operation, "kind": "late", "times": after_calls}
        wait = {"operation": operation, "kind": "refuse", "code": "checkpoint_parked", "times": 0}

        async def order() -> None:
            async with ClusterClient(read_record(str(self.folder))) as client:
                if after_calls:
                    await client.fault(server, late)
                await client.fault(server, wait)

        asyncio.run(order())

    def calls(self) -> int:
        """How many model calls were answered in this incarnation; each has a line in its rollout's lineage file."""
        incarnation = read_record(str(self.folder)).incarnation
        paths = (self.folder / "capture" / str(incarnation)).rglob("*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in paths)

    def made(self, server: str, operation: str) -> int:
        """How often the held request was answered in this incarnation."""
        if (server, operation) == GENERATE:
            return self.calls()
        incarnation = read_record(str(self.folder)).incarnation
        lines = (
            line for path in self.folder.glob(f"audit-{server}-{incarnation}-*.jsonl") for line in read_log(str(path))
        )
        return sum(line["event"] == "mutation" and line["route"] == operation for line in lines)

    def wait(self, is_met: Callable[[], bool]) -> None:
        """Until `is_met`, or until the run has come to its end."""
        while not is_met() and self.sim("status")["run"]["finished_groups"] < self.groups:
            time.sleep(0.01)

    def die_and_come_back(self, path: str) -> dict[str, Any]:
        """Every process is killed; fresh ones are restored from this snapshot, and the run is played to its end."""
        self.sim("down", "--kill")
        self.sim("restart", "--restore-expected")
        answer = self.ckptctl("restore")
        assert ("restored", path) == (answer["outcome"], answer["snapshot"])
        self.finish()
        return answer

    def compared_with(self, whole: Played) -> Comparison:
        """The comparison that `sim compare` makes."""
        return compare(str(whole.folder), str(self.folder), self.name)


def uninterrupted(folder: Path, name: str) -> Played:
    """A run from its beginning to its end, all processes of which are gone."""
    life = Played(folder, name)
    try:
        life.finish()
        life.sim("down")
    finally:
        life.end()
    return life


@dataclass
class Moment:
    """What became of one moment."""

    held_at: str
    comparison: Comparison
    rollouts: list[dict[str, Any]]
    """What the restore answered of each rollout that was in flight."""
    turns: list[int]
    """From which turn each continued rollout went on."""
    twice: int
    """Tools that ran twice in the history of a result."""
    redone: int
    """Rollouts that the snapshot holds as finished and that were sent again."""
    verdict: str


def play_moment(whole: Played, folder: Path, drawn: random.Random) -> Moment:
    """Hold, snapshot, work, kill, restore, play on, compare; `drawn` decides where and how much."""
    life = Played(folder, whole.name)
    try:
        kinds = TOOLS if whole.name == "mixed" else (whole.name,)
        tools = [place for kind in kinds for place in TOOLS[kind]]
        place = GENERATE if drawn.random() < 0.5 else drawn.choice(tools)
        most = life.groups * SIBLINGS * (TURNS if place in IN_EACH_TURN else 1)
        allowed = drawn.randrange(most)
        life.hold(*place, allowed)
        life.sim("run", "--until-groups", str(life.groups))
        life.wait(lambda: life.made(*place) >= allowed)
        path: str = life.ckptctl("snapshot", "--force")["snapshot"]
        life.sim("fault", "--server", place[0], "--clear")
        more = life.mutations() + drawn.randrange(life.groups * SIBLINGS * TURNS)
        life.wait(lambda: life.mutations() >= more)
        answer = life.die_and_come_back(path)
        found = life.compared_with(whole)
        verdict = life.ckptctl("validate", path, "--level", "full")["verdict"]
    finally:
        life.end()
    history, continued = read_history(str(folder)), {
        item["rollout_id"] for item in answer["rollouts"] if item["mode"] == "continue" and item["replacement_attempt"]
    }  # fmt: skip
    turns = [record["turn_index"] for record in boundaries(path) if record["rollout_id"] in continued]
    where = f"{place[0]}/{place[1]} after {allowed}"
    return Moment(where, found, answer["rollouts"], turns, run_twice(history), redone(history), verdict)


def boundaries(snapshot: str) -> list[dict[str, Any]]:
    """The boundary records that a snapshot holds."""
    found = []
    for path in Path(snapshot, "agent").rglob("agent-part-*.tar"):
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member)
                assert content is not None, "only files"
                found.append(json.load(content))
    return found


def run_twice(history: RunHistory) -> int:
    """How many mutations stand more than once, or in more than one form, in the history of one result."""
    count = 0
    for result in history.standing_results().values():
        places = Counter((item.server, item.revision) for item in history.mutations_of(result))
        count += sum(times - 1 for times in places.values())
    return count


def redone(history: RunHistory) -> int:
    """How many rollouts were sent after the last restore though it held them as finished."""
    restore: Line = history.restores[-1]
    sealed = {item["rollout_id"] for item in restore["siblings"] if item["status"] == "sealed"}
    sent = {line["rollout_id"] for line in history.dispatches if line["incarnation"] == restore["incarnation"]}
    again = {item["rollout_id"] for item in restore["redispatch"]}
    finished = {name for name in sent if name.rpartition("_g")[0] in restore["finished_groups"]}
    return len(finished | (sent & sealed - again))


@dataclass
class Total:
    """The counts of one environment."""

    moments: list[Moment] = field(default_factory=list)

    def text(self) -> str:
        """A few lines for people."""
        accounts: Counter[str] = Counter()
        for moment in self.moments:
            accounts.update(moment.comparison.account.model_dump())
        turns = Counter(turn for moment in self.moments for turn in moment.turns)
        told = ", ".join(f"{count} from turn {turn}" for turn, count in sorted(turns.items()))
        missing = sum(" is missing" in line for moment in self.moments for line in moment.comparison.differences)
        equal, valid = (
            sum(moment.comparison.equal for moment in self.moments),
            sum(moment.verdict == "valid" for moment in self.moments),
        )
        twice, again = sum(moment.twice for moment in self.moments), sum(moment.redone for moment in self.moments)
        lines = (
            f"moments {len(self.moments)}, equal {equal}, snapshots valid at level full {valid}",
            f"tools run twice {twice}, mutations missing {missing}, finished work redone {again}",
            "rollouts: " + ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in accounts.items()),
            f"continued: {told or 'none'}",
        )
        return "\n".join(lines)

    @property
    def is_equal(self) -> bool:
        """Whether nothing went wrong at any moment."""
        return all(
            moment.comparison.equal and not moment.twice and not moment.redone and moment.verdict == "valid"
            for moment in self.moments
        )


def run(name: str, moments: int, seed: int, folder: Path, *, first: int = 0) -> Total:
    """Play so many moments of one environment and tell each on a line."""
    whole = uninterrupted(folder / f"{name}-whole", name)
    total = Total()
    for number in range(first, first + moments):
        place = folder / f"{name}-{number}"
        moment = play_moment(whole, place, random.Random(f"{seed} {name} {number}"))
        total.moments.append(moment)
        state = "equal" if moment.comparison.equal else f"DIFFERENT: {moment.comparison.differences}"
        print(f"{name} {number}: held at {moment.held_at}; went on from turns {moment.turns}: {state}", flush=True)
        if moment.comparison.equal:
            shutil.rmtree(place)
    return total


def main() -> int:
    """Parse, play, print; 1 when anything was not equal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--environment", choices=(*OPTIONS, "all"), default="all")
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the number of the first moment, to play one again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the runs; those that were not equal stay there")
    options = parser.parse_args()
    names = tuple(OPTIONS) if options.environment == "all" else (options.environment,)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="ckptctl-equivalence-"))
    is_equal = True
    with owning():
        for name in names:
            began_s = time.monotonic()
            total = run(name, options.moments, options.seed, folder, first=options.first)
            print(f"--- {name}, seed {options.seed}, {time.monotonic() - began_s:.0f} s\n{total.text()}", flush=True)
            is_equal &= total.is_equal
    if is_equal and options.keep is None:
        with suppress(OSError):
            shutil.rmtree(folder)
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
