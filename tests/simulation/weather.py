"""What goes wrong, and when: a plan of a few faults (`faults`), and the points at which they strike.

Points are messages of a coordinator (each with its fate), system calls of any process, and both together as *events*, by whose
number crashes, signals, clock jumps and freezes are placed. A plan is only armed while a command runs that is meant to suffer.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable

from tests.fakes.mortal import DeadError
from tests.simulation.coverage import MESSAGE, Tally
from tests.simulation.faults import (
    CODES,
    DISK_ERRORS,
    FILE_SERVER,
    STATUSES,
    TORN,
    UNKNOWN_CODE,
    DiskFault,
    EventFault,
    Fault,
    MessageFault,
    can_fail,
)
from tests.simulation.kernel import COORDINATOR, Process
from tests.simulation.network import RUBBISH, Fate, Message


class Weather:
    """Implements `kernel.Weather`, and judges messages."""

    def __init__(self, rng: random.Random, now_s: Callable[[], float]) -> None:
        self._rng = rng
        self._now_s = now_s
        self.plan: list[Fault] = []
        self.is_armed = False
        self.spared = "/nowhere"
        """Below this path no call fails: there lie the logs by which the run is judged."""
        self.step = ""
        """The step of the coordinator that acted last."""
        self.tally = Tally()
        self.trace: list[str] = []
        """Everything that was decided, and when."""
        self.kill: Callable[[Process], None] = lambda _: None
        self.power: Callable[[], None] = lambda: None
        self.signal: Callable[[], None] = lambda: None
        self.freeze: Callable[[Process, float], None] = lambda *_: None
        self.jump_files: Callable[[float], None] = lambda _: None
        self.processes: Callable[[str], list[Process]] = lambda _: []
        self.struck: list[str] = []
        """Faults that happened, in order."""

    def digest(self) -> str:
        """What tells two schedules apart."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    # --- points --------------------------------------------------------------------------------------------------------------

    def judge(self, message: Message) -> Fate | None:
        """The fate of one message."""
        if message.caller is None or message.caller.party != COORDINATOR:
            return None
        self._point(message.caller, f"send {message.server} {message.operation}")
        if not self.is_armed:
            return None
        self.tally.points[message.server, self.step, MESSAGE, True] += 1
        self.tally.asked[message.server, message.operation] += 1
        for fault in self.plan:
            if isinstance(fault, MessageFault) and self._fits(fault, message):
                fault.nth -= 1
                if fault.nth <= 0:
                    if fault.nth == -fault.times + 1 and fault.times:
                        self._use_up(fault)
                    fate = self._fate(fault, message)
                    what = f"{message.operation} {fate.code}".rstrip()
                    self._strike(fate.kind, message.server, what)
                    if fate.code:
                        self.tally.refusals[message.server, message.operation, fate.code] += 1
                    return fate
        return None

    def before_call(self, process: Process, call: str, path: str, *, is_write: bool) -> None:
        """A system call of a process."""
        self._point(process, f"{call} {path}")
        if not self.is_armed or path.startswith(self.spared):
            return
        self.tally.points[process.party, self.step, call, is_write] += 1
        for fault in self.plan:
            if (
                isinstance(fault, DiskFault)
                and fault.party == process.party
                and fault.step in (None, self.step)
                and (call == "write" if fault.fills else can_fail(fault.error, call, is_write=is_write))
            ):
                fault.nth -= 1
                if fault.nth > 0 or fault.fills:
                    continue
                if fault.nth == -fault.times + 1 and fault.times:
                    self._use_up(fault)
                self._strike(fault.error, process.party, f"{call} {path}")
                code = DISK_ERRORS[fault.error]
                raise OSError(code, os.strerror(code), path)

    def short_write(self, process: Process, path: str, size: int) -> int:
        """A write just before the disk is full is cut short."""
        for fault in self.plan if self.is_armed and not path.startswith(self.spared) else ():
            if isinstance(fault, DiskFault) and fault.fills and fault.party == process.party and fault.nth <= 0:
                fault.fills, fault.nth = False, 1
                self._strike(TORN, fault.party, "")
                return max(1, size // 2)
        return size

    def note(self, what: str) -> None:
        """Something for the trace."""
        self.trace.append(f"{self._now_s():.6f} {what}")

    def _point(self, process: Process, what: str) -> None:
        self.note(f"{process.name} {what}")
        if not self.is_armed:
            return
        if process.party == COORDINATOR:
            self.step = process.step
        for fault in list(self.plan):
            if isinstance(fault, EventFault) and fault.step in (None, self.step) and self._is_planned(fault):
                fault.at -= 1
                if fault.at <= 0:
                    self._use_up(fault)
                    self._happen(fault)
        process.demand_alive()

    def _is_planned(self, fault: Fault) -> bool:
        """Still: while somebody stood still, others went on."""
        return any(planned is fault for planned in self.plan)

    def _use_up(self, fault: Fault) -> None:
        self.plan[:] = [planned for planned in self.plan if planned is not fault]

    def _happen(self, fault: EventFault) -> None:
        struck = [] if fault.party == FILE_SERVER else self.processes(fault.party)
        if not struck and fault.party != FILE_SERVER:
            return
        self._strike(fault.kind, fault.party, f"{fault.amount_s:g}" if fault.amount_s else "")
        if fault.kind == "power":
            self.power()
            raise DeadError
        if fault.kind == "signal":
            self.signal()
        if fault.party == FILE_SERVER:
            self.jump_files(fault.amount_s)
        for process in struck:
            if fault.kind == "crash":
                self.kill(process)
            elif fault.kind == "jump":
                process.clock_offset_s += fault.amount_s
        if fault.kind == "freeze":
            self.freeze(struck[0], fault.amount_s)

    def _strike(self, kind: str, party: str, what: str) -> None:
        self.tally.faults[kind] += 1
        self.tally.triples[party, self.step, kind] += 1
        self.struck.append(f"{kind} at {party} in `{self.step}` {what}".rstrip())
        self.note(f"!! {kind} {party} {what}")

    # --- fates ---------------------------------------------------------------------------------------------------------------

    def _fits(self, fault: MessageFault, message: Message) -> bool:
        return (
            fault.operation in (None, message.operation)
            and fault.server in (None, message.server)
            and fault.step in (None, self.step)
        )

    def _fate(self, fault: MessageFault, message: Message) -> Fate:
        rng, kind = self._rng, fault.kind
        if kind == "refuse":
            codes = (*CODES.get(message.server, ()), UNKNOWN_CODE)
            return Fate(kind, code=fault.code or rng.choice(codes))
        if kind == "status":
            return Fate(kind, status=rng.choice(STATUSES), code="")
        if kind == "rubbish":
            return Fate(kind, body=rng.choice(RUBBISH))
        return Fate(kind, delay_s=rng.choice((0.05, 0.5, 1.9, 2.1, 5.0, 31.0, 400.0)))
