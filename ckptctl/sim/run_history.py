"""What really happened in a run directory, put together from its logs: results that stand, and each rollout's mutations.

The history of a run is what the restored snapshot holds plus what followed its restore. So a result of an earlier
incarnation stands only where the last restore kept it, and the mutations of a continued attempt are those that the
restored session held (up to its revision) and those that its successor added. A successor that began anew over a
restored session has nothing of it; its revisions count from its own start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ckptctl.errors import NothingThereError
from ckptctl.sim.run_files import DISPATCHES, RESTORES, RESULTS, read_log

Line = dict[str, Any]
Played = tuple[str, int, int]
"""Rollout, attempt, incarnation."""


class Mutation(NamedTuple):
    """One successful call of a session that is not a read."""

    server: str
    revision: int
    turn: int | None
    route: str
    is_start: bool = False
    """Whether it began the session anew."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The logs of one run directory."""

    results: tuple[Line, ...]
    dispatches: tuple[Line, ...]
    restores: tuple[Line, ...]
    played: Mapping[Played, tuple[Mutation, ...]]
    """The mutations of each attempt in each incarnation."""
    held: Mapping[Played, tuple[Line, ...]]
    """The sessions that an attempt took over from the one before: server and revision."""

    def standing_results(self) -> dict[str, Line]:
        """The result of each rollout that the history holds."""
        standing: dict[str, Line] = {}
        for line in self.results:
            if line["kind"] == "sibling" and not self._is_lost(line):
                standing[line["rollout_id"]] = line
        return standing

    def standing_groups(self) -> frozenset[str]:
        """The finished groups that the history holds."""
        return frozenset(
            line["group_id"]
            for line in self.results
            if line["kind"] == "group"
            and all(line["group_id"] in restore["finished_groups"] for restore in self._later_restores(line))
        )

    def mutations_of(self, result: Line) -> list[Mutation]:
        """Every mutation behind one result, in order of server and revision. Doubles stay doubles."""
        return sorted(self._chain(result["rollout_id"], result["attempt_index"], result["incarnation"]))

    def _is_lost(self, line: Line) -> bool:
        """Whether a restore went back behind this result."""
        for restore in self._later_restores(line):
            kept = {sibling["rollout_id"] for sibling in restore["siblings"] if sibling["status"] == "sealed"}
            if line["group_id"] not in restore["finished_groups"] and line["rollout_id"] not in kept:
                return True
        return False

    def _later_restores(self, line: Line) -> Iterator[Line]:
        return (restore for restore in self.restores if restore["incarnation"] > line["incarnation"])

    def _chain(self, rollout: str, attempt: int, incarnation: int) -> Iterator[Mutation]:
        played = self.played.get((rollout, attempt, incarnation), ())
        starts = {mutation.server: mutation.revision for mutation in played if mutation.is_start}
        for mutation in played:
            yield mutation._replace(revision=mutation.revision - starts.get(mutation.server, 1) + 1)
        for session in self.held.get((rollout, attempt, incarnation), ()):
            if session["server"] in starts:
                continue
            for mutation in self._before(rollout, attempt - 1, incarnation):
                if mutation.server == session["server"] and mutation.revision <= session["revision"]:
                    yield mutation

    def _before(self, rollout: str, attempt: int, incarnation: int) -> Iterator[Mutation]:
        """The chain of an attempt in the newest earlier incarnation that played it or held its session."""
        for earlier in range(incarnation - 1, 0, -1):
            key = (rollout, attempt, earlier)
            if key in self.played or key in self.held:
                return self._chain(*key)
        return iter(())


def read_history(run_dir: str) -> RunHistory:
    """Read all logs of a run directory. Raises NothingThereError, StorageError."""
    if not Path(run_dir, RESULTS).exists():
        raise NothingThereError(f"`{run_dir}` holds no run of an embedded cluster", hint=None)
    audit = [line for path in sorted(Path(run_dir).glob("audit-*.jsonl")) for line in read_log(str(path))]
    played: dict[Played, list[Mutation]] = {}
    held: dict[Played, list[Line]] = {}
    for line in audit:
        if line["event"] == "mutation":
            key = (line["rollout"], line["attempt"], line["incarnation"])
            facts = (line["server"], line["revision"], line["turn"], line["route"], line.get("kind") == "start")
            played.setdefault(key, []).append(Mutation(*facts))
        for session in line["sessions"] if line["event"] == "restored" else ():
            key = (session["rollout_id"], session["attempt_index"], line["incarnation"])
            held.setdefault(key, []).append({"server": line["server"], "revision": session["revision"]})
    return RunHistory(
        results=read_log(f"{run_dir}/{RESULTS}"),
        dispatches=read_log(f"{run_dir}/{DISPATCHES}"),
        restores=read_log(f"{run_dir}/{RESTORES}"),
        played={key: tuple(mutations) for key, mutations in played.items()},
        held={key: tuple(sessions) for key, sessions in held.items()},
    )
