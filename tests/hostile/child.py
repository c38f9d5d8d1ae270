"""`python -m tests.hostile.child FOLDER STEP`: judge every STEP-th case in this process, and print what was said and done, as JSON.

What is opened is seen twice: every `os.open` by the path that its descriptor has, and everything else by the interpreter's audit
events. Anything that would run, import, connect or unpickle something is an event too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.hostile.cases import Case, cases
from tests.hostile.judged import judge, snapshot_of, told, unsafe_characters, written

_SILENT = frozenset(
    {"os.listdir", "os.scandir", "object.__getattr__", "object.__setattr__", "object.__delattr__", "sys._getframe"}
)
_KINDS = (
    "open",
    "os.",
    "shutil.",
    "subprocess.",
    "socket.",
    "pickle.",
    "marshal.",
    "import",
    "exec",
    "compile",
    "ctypes.",
    "pty.",
)


class Watch:
    """What this process did while it was watched."""

    def __init__(self) -> None:
        self.is_on = self.is_inside = False
        self.opened: list[str] = []
        self.events: list[str] = []
        self._open = os.open
        os.open = self._watched_open  # type: ignore[assignment]
        sys.addaudithook(self._heard)

    def _watched_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self.is_inside = True
        try:
            descriptor = self._open(path, flags, mode, dir_fd=dir_fd)
        finally:
            self.is_inside = False
        if self.is_on:
            self.opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                self.events.append(f"opened for writing: {path}")
        return descriptor

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and not self.is_inside and event not in _SILENT and event.startswith(_KINDS):
            self.events.append(f"{event} {arguments[:1]!r}"[:200])

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch for a while."""
        self.opened, self.events = [], []
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False


def facts_of(case: Case, folder: Path, watch: Watch) -> dict[str, Any]:
    """What became of one case."""
    try:
        run = written(folder, case)
    except PermissionError:
        return {"name": case.name, "skipped": "only the superuser may make a device"}
    with watch.on():
        report = judge(run, case)
    target = snapshot_of(report)
    found = told(case, target, run)
    return {
        "name": case.name,
        "wanted": case.verdict,
        "verdict": target.verdict,
        "told": [finding.message for finding in found],
        "hints": [finding.hint for finding in found],
        "findings": [f"{finding.rule} {finding.artifact}: {finding.message}"[:300] for finding in target.findings],
        "outside": sorted(
            {path for path in watch.opened if not path.startswith(f"{run}/") and path != str(run)} - _allowed()
        ),
        "opened": len(watch.opened),
        "events": watch.events[:20],
        "unsafe": sorted(unsafe_characters(report)),
    }


def _demand_sight(watch: Watch) -> None:
    """A watch that sees nothing proves nothing."""
    with watch.on():
        os.close(os.open("/etc/hostname", os.O_RDONLY))
        with open("/etc/hostname", "rb"):
            pass
        os.system("true")
    assert watch.opened == ["/etc/hostname"], watch.opened
    assert [event.split()[0] for event in watch.events] == ["open", "os.system"], watch.events


def _allowed() -> set[str]:
    """The one thing outside that is looked at: how much memory this process holds."""
    return {f"/proc/{os.getpid()}/statm"}


def main() -> None:
    """Judge and print."""
    folder, step = Path(os.path.realpath(sys.argv[1])), int(sys.argv[2])
    watch = Watch()
    _demand_sight(watch)
    warm = Case("warm", "config.yaml", lambda path: None, "")
    facts_of(warm, folder / "warm", watch)  # whatever is imported late is imported now
    answers = []
    for number, case in enumerate(cases()[::step]):
        place = folder / str(number)
        answers.append(facts_of(case, place, watch))
        shutil.rmtree(place)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
