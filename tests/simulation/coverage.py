"""What was struck, and what there was to strike: triples (party, step, fault), decision points, refusals.

A triple exists where the party came to a decision point of the fault's kind in that step: a message for the fates of messages, a system
call that can fail like that for errors of the disk, anything at all for crashes and clocks. So a step that nobody reaches, or in which
a server is not asked and touches no disk, adds nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.faults import (
    CODES,
    COORDINATOR_EVENTS,
    DEADLY,
    DISK_ERRORS,
    FILE_SERVER,
    MESSAGE_KINDS,
    TORN,
    can_fail,
)
from tests.simulation.kernel import COORDINATOR

Triple = tuple[str, str, str]
MESSAGE = "message"
MOST_TOLD = 40


@dataclass(slots=True)
class Tally:
    """What was injected, and what there was to inject into."""

    faults: Counter[str] = field(default_factory=Counter)
    triples: Counter[Triple] = field(default_factory=Counter)
    """(party, step, fault)."""
    points: Counter[tuple[str, str, str, bool]] = field(default_factory=Counter)
    """(party, step, `message` or system call, whether it writes) -> decision points there."""
    refusals: Counter[Triple] = field(default_factory=Counter)
    """(server, operation, code) of refusals that a coordinator got from the weather."""
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(server, operation) of the messages that could be refused."""

    def add(self, other: Tally) -> None:
        """Sum up."""
        self.faults += other.faults
        self.triples += other.triples
        self.points += other.points
        self.refusals += other.refusals
        self.asked += other.asked

    def existing(self) -> set[Triple]:
        """The triples that exist, as far as these seeds came."""
        found: set[Triple] = set()
        steps = {(step, is_live) for _, step, _, is_live in self.points if step}
        for party, step, call, is_write in self.points:
            if call == MESSAGE:
                found.update((party, step, kind) for kind in (*MESSAGE_KINDS, *DEADLY))
                continue
            found.update((party, step, error) for error in DISK_ERRORS if can_fail(error, call, is_write=is_write))
            if call == "write":
                found.add((party, step, TORN))
        for step in {step for step, _ in steps}:
            found.update((COORDINATOR, step, kind) for kind in COORDINATOR_EVENTS)
            found.add((FILE_SERVER, step, "jump"))
        for step in {step for _, step, call, _ in self.points if call == MESSAGE}:
            found.update((server, step, kind) for server in CODES for kind in ("crash", "jump"))
        return found

    def missed(self) -> list[Triple]:
        """Those of them that nothing hit."""
        return sorted(self.existing() - self.triples.keys())

    def hit(self) -> str:
        """How many of them were."""
        existing = self.existing()
        return f"{len(existing & self.triples.keys())} distinct (party, step, fault) of {len(existing)} that exist"

    def lines(self) -> list[str]:
        """For people."""
        missed = self.missed()
        codes = {(server, operation, code) for server, operation in self.asked for code in CODES[server]}
        refused = codes & self.refusals.keys()
        told = ", ".join("/".join(triple) for triple in missed[:MOST_TOLD])
        more = f" and {len(missed) - MOST_TOLD} more" if len(missed) > MOST_TOLD else ""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        places = {(party, step) for party, step, _, _ in self.points}
        return [
            f"{sum(self.faults.values())} faults: {faults}",
            f"{sum(self.points.values())} decision points at {len(places)} places (party, step)",
            self.hit(),
            f"never hit: {told or 'none'}{more}",
            f"{len(refused)} of {len(codes)} documented refusals (server, operation, code)",
        ]
