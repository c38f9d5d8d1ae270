"""What the commands of `ckptctl sim` answer: one document each, with its text for people."""

from __future__ import annotations

from shlex import quote
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr

from ckptctl.domain.amounts import plural, set_time
from ckptctl.domain.document import Count, Document, NonEmpty
from ckptctl.domain.safe_text import safe
from ckptctl.sim.equivalence import Comparison
from ckptctl.sim.fault_order import Planted


class ProcessStatus(Document):
    """One process of a cluster."""

    name: NonEmpty
    role: NonEmpty
    pid: Count
    is_alive: bool
    url: NonEmpty
    phase: str | None
    """Phase of its fence; null when it does not answer, or has none."""

    @property
    def state(self) -> str:
        """One word for people."""
        return self.phase or ("runs" if self.is_alive else "ended")


class ClusterAnswer(Document):
    """`sim up`, `restart`, `down` and `status`."""

    schema_version: Literal[1] = 1
    run_dir: NonEmpty
    config: NonEmpty
    checkpoint_dir: NonEmpty
    incarnation: Count
    restore_expected: bool = Field(description="whether its processes still wait for one")
    processes: list[ProcessStatus]
    run: dict[str, Any] | None = Field(
        default=None, description="how far the run is; null when the controller does not answer"
    )

    def text(self) -> str:
        """For people."""
        lines = [f"cluster `{safe(self.run_dir)}`, incarnation {self.incarnation}"]
        lines += [
            f"  {safe(item.name):<12} {item.role:<13} pid {item.pid:<7} {safe(item.url):<22} {item.state}"
            for item in self.processes
        ]
        lines.append(f"configuration: `{safe(self.config)}`")
        if self.restore_expected and any(item.is_alive for item in self.processes):
            lines.append(f"it waits for a restore: `ckptctl restore --config {quote(safe(self.config))}`")
        if not any(item.is_alive for item in self.processes):
            lines.append(f"fresh processes: `ckptctl sim restart --dir {quote(safe(self.run_dir))}`")
        return "\n".join([*lines, *([] if self.run is None else [run_line(self.run, self.run_dir)])]) + "\n"


class RunAnswer(Document):
    """`sim run` and `sim step`."""

    schema_version: Literal[1] = 1
    run: dict[str, Any]
    _run_dir: str | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, run: dict[str, Any], run_dir: str) -> Self:
        """With the directory of its cluster, which the text names in commands."""
        answer = cls(run=run)
        answer._run_dir = run_dir
        return answer

    def text(self) -> str:
        """For people."""
        return run_line(self.run, self._run_dir) + "\n"


class ServerMenu(Document):
    """What can be ordered of one server."""

    server: NonEmpty
    operations: list[str]
    kinds: list[str]


class FaultAnswer(Document):
    """`sim fault`."""

    schema_version: Literal[1] = 1
    server: NonEmpty | None = Field(description="null with `--list` of every server")
    faults: list[dict[str, Any]] = Field(description="ordered and not used up")
    menu: list[ServerMenu] = Field(default=[], description="with `--list`")
    planted: Planted | None = Field(default=None, description="the session that was planted now, or made uncertain")

    def text(self) -> str:
        """For people."""
        if self.menu:
            return "\n".join(line for item in self.menu for line in _menu_lines(item)) + "\n"
        server = safe(self.server or "")
        lines = [] if self.planted is None else [_planted_line(server, self.planted)]
        if self.faults:
            lines.append(f"`{server}` will meet:")
            lines += [_fault_line(item) for item in self.faults]
        return "\n".join(lines or [f"`{server}` has no faults left"]) + "\n"


def _planted_line(server: str, planted: Planted) -> str:
    """A planted session is there at once and no order that is left: without this line nothing would tell of it."""
    name = f"`{safe(planted.rollout_id)}` attempt {planted.attempt_index}"
    if planted.kind == "orphan_session":
        return f"`{server}` has an orphan session now: {name}"
    return f"`{server}` has an uncertain session now: {name}{', made for this' if planted.is_new else ''}"


def _fault_line(item: dict[str, Any]) -> str:
    if item["kind"] == "clock":
        return f"  clock off by {set_time(item['delay_s'])}, until cleared"
    times = item["times"] or "until cleared"
    return f"  {safe(str(item['kind']))} at {safe(str(item['operation']))}, times: {times}"


def _menu_lines(item: ServerMenu) -> list[str]:
    names = [("operations", item.operations), ("kinds", item.kinds)]
    return [f"`{safe(item.server)}`", *(f"  {name}: {safe(', '.join(values))}" for name, values in names)]


class DemoAnswer(Document):
    """`sim demo`."""

    schema_version: Literal[1] = 1
    run_dir: NonEmpty
    exit_code: Count
    snapshot: str | None = None
    proved: list[str] = Field(description="what was shown, in order")
    failure: str | None = Field(default=None, description="the step that failed, and what it said")
    comparison: Comparison | None = None

    def text(self) -> str:
        """For people."""
        lines = [f"  ok  {safe(line)}" for line in self.proved]
        if self.failure is not None:
            lines.append(f"failed: {safe(self.failure)}")
        elif self.comparison is not None:
            lines.append("")
            lines.append(self.comparison.text().rstrip("\n"))
        return "\n".join(lines) + "\n"


def run_line(run: dict[str, Any], run_dir: str | None = None) -> str:
    """How far a run is. Without a goal no new prompt is drawn, whatever a restore brought back."""
    finished, goal, unfinished = run["finished_groups"], run["goal_groups"], run["unfinished_groups"]
    parts = [
        f"{finished} of {plural(goal, 'group')} finished" if goal else f"{plural(finished, 'group')} finished",
        f"{unfinished} begun",
        f"{plural(run['in_flight'], 'rollout')} in flight"
        + ("" if run["is_admission_open"] else " (admission is closed)"),
        f"train step {run['train_step']}",
    ]
    line = ", ".join(parts)
    if not goal and not run["restore_expected"]:
        place = "" if run_dir is None else f" --dir {quote(safe(run_dir))}"
        line += f"\nno goal yet: `ckptctl sim run{place}` draws prompts"
    return line + "".join(f"\n  problem: {safe(str(problem))}" for problem in run["problems"][:10])
