"""Runs damaged inputs through a reader and tells what is no clean answer: another exception, too much time, too much memory."""

from __future__ import annotations

import random
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ckptctl.domain.finding import Defect, DefectError
from tests.fuzz.mutations import mutated
from tests.fuzz.readers import Reader

MOST_CPU_S = 5.0
"""An input of 256 KiB that takes longer hangs the reader."""
MOST_GROWTH_BYTES = 256 << 20
"""How far the peak of the whole process may rise over a run."""
MOST_TEXT = 20_000


class HangError(BaseException):
    """Raised by the timer; no reader can catch it."""


@dataclass(frozen=True)
class Fault:
    """One input that got no clean answer."""

    reader: str
    what: str
    data: bytes
    trace: str = ""


@dataclass
class Tally:
    """What came of a run."""

    inputs: int = 0
    values: int = 0
    defects: int = 0
    faults: list[Fault] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    """Each fault by the line that raised it: a thousand inputs may show one mistake."""


def fuzz(reader: Reader, runs: int, seed: int, *, most_faults: int = 20) -> Tally:
    """Read `runs` damaged inputs. The same seed gives the same inputs."""
    tally = Tally()
    before = _peak_bytes()
    for data in damaged_inputs(reader, runs, seed):
        tally.inputs += 1
        fault = check(reader, data, tally)
        if fault is not None:
            tally.kinds[fault.what] += 1
            if tally.kinds[fault.what] == 1:
                tally.faults.append(fault)
            if len(tally.faults) >= most_faults:
                break
        if tally.inputs % 256 == 0 and _peak_bytes() - before > MOST_GROWTH_BYTES:
            tally.faults.append(Fault(reader.name, f"memory grew by {_peak_bytes() - before} bytes", data))
            before = _peak_bytes()
    return tally


def damaged_inputs(reader: Reader, runs: int, seed: int) -> Iterator[bytes]:
    """The inputs of a run."""
    chance = random.Random(f"{reader.name} {seed}")
    for _ in range(runs):
        yield mutated(chance, reader.samples, reader.tokens)


def check(reader: Reader, data: bytes, tally: Tally | None = None) -> Fault | None:
    """Read one damaged input; the fault, if there is no clean answer."""
    tally = tally or Tally()
    try:
        with timed():
            reader.read(reader.taken(data))
    except DefectError as error:
        tally.defects += 1
        unclear = [why for defect in error.defects or (Defect(""),) if (why := what_is_unclear(defect))]
        return Fault(reader.name, unclear[0], data) if unclear else None
    except HangError as error:
        return Fault(reader.name, f"more than {MOST_CPU_S} s", data, trace_of(error))
    except Exception as error:
        return Fault(reader.name, told(error), data, trace_of(error))
    tally.values += 1
    return None


def what_is_unclear(defect: Defect) -> str:
    """Why a defect's text cannot be shown as it is; empty when it can."""
    if not defect.message:
        return "a defect without a message"
    texts = (defect.message, defect.location, defect.expected, defect.actual)
    if sum(map(len, texts)) > MOST_TEXT:
        return f"a defect's text is {sum(map(len, texts))} characters long: {defect.message[:60]}"
    unsafe = [text for text in texts if not text.isprintable() and _has_controls(text)]
    return f"a defect's text has control characters: {unsafe[0][:60]!r}" if unsafe else ""


def _has_controls(text: str) -> bool:
    return any(
        ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 or 0xD800 <= ord(character) < 0xE000
        for character in text
    )


@contextmanager
def timed() -> Iterator[None]:
    """Raise HangError when the body takes too much CPU."""

    def expired(_number: int, _frame: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def told(error: BaseException) -> str:
    """What an exception is and where it was raised, in a few words."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename.rpartition('/')[2]}:{frame.lineno}"


def trace_of(error: BaseException) -> str:
    """The last frames of an exception."""
    return "".join(traceback.format_exception(error, limit=-12))


def _peak_bytes() -> int:
    """Of this program: what `getrusage` tells begins with the memory of whoever started it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
