"""`--metrics-textfile FILE`: what became of a run, for node_exporter's textfile collector, written however the command ends.

Commands note on their way what there is to tell; the boundary writes it once the exit status is known, and `snapshot --every`
after each round. A file that cannot be written is a warning: it never decides what becomes of the work, nor how the command ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckptctl import __version__
from ckptctl.cli.place import demand_place
from ckptctl.errors import CkptctlError, ExitCode, NothingThereError, StorageError, UsageError

if TYPE_CHECKING:
    from ckptctl.domain.finding import Level, Report, VerdictName
    from ckptctl.domain.inspection import DirectoryInspection
    from ckptctl.domain.metrics import CollectedFacts, RoundFacts
    from ckptctl.domain.restore import RestoreResult
    from ckptctl.domain.retention import GcResult
    from ckptctl.domain.transaction import TransactionResult
    from ckptctl.workflows.inspect import Inspection

NAME = "--metrics-textfile"
_VERDICTS: dict[int, VerdictName] = {
    ExitCode.NOT_CHECKED: "incomplete",
    ExitCode.INCOMPATIBLE: "incompatible",
    ExitCode.INVALID: "invalid",
}
"""What a command found that ended with an error of this status."""
_ENDINGS: dict[int, str] = {
    ExitCode.BUG: "bug",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "stopped",
    ExitCode.BROKEN_PIPE: "broken-pipe",
}
"""What ended it where no error of ours did."""


@dataclass(slots=True)
class RunNotes:
    """What a command notes on its way."""

    path: str | None = None
    """Where the metrics go; None: nobody asked for them."""
    command: str = ""
    began_s: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    """How long the last round took; None: the whole run counts."""
    directories: list[str] = field(default_factory=list)
    """Absolute paths of the checkpoint directories that the command is about."""
    outcome: str = ""
    verdict: VerdictName | None = None
    proofs: dict[str, tuple[VerdictName, Level]] = field(default_factory=dict)
    """By path, as `safe` writes it."""
    rounds: RoundFacts | None = None
    collected: CollectedFacts | None = None
    seen: DirectoryInspection | None = None
    """An overview that the command made by itself."""
    error: CkptctlError | None = None

    def about(self, checkpoint_dir: str) -> None:
        """The command is about this directory."""
        if checkpoint_dir not in self.directories:
            self.directories.append(checkpoint_dir)

    def report(self, report: Report, paths: Sequence[str]) -> None:
        """What `validate` came to, and the paths that it was given."""
        from ckptctl.domain.safe_text import safe
        from ckptctl.workflows.inspect import checkpoint_dir_of
        from ckptctl.workflows.targets import absolute

        self.verdict = report.verdict
        whole = report.share is None
        self.proofs = {item.path: (item.verdict, item.level) for item in report.targets if whole}
        self.directories = []
        for path in map(absolute, paths):
            checkpoint_dir = checkpoint_dir_of(path)
            inside = f"{safe(checkpoint_dir)}/"
            if any(item.kind in {"anchor", "snapshot"} and item.path.startswith(inside) for item in report.targets):
                self.about(checkpoint_dir)

    def inspected(self, result: Inspection) -> None:
        """What `inspect PATH` showed."""
        from ckptctl.domain.inspection import DirectoryInspection, SnapshotInspection

        self.verdict = result.verdict
        if isinstance(result, SnapshotInspection):
            self.proofs[result.path] = (result.verdict, result.level)
        elif isinstance(result, DirectoryInspection) and result.kind == "checkpoint_dir":
            self.seen = result

    def transaction(self, result: TransactionResult, level: Level | None) -> None:
        """What `snapshot` or `publish` did; `level`: how deep the published snapshot was validated, where that is known."""
        from ckptctl.domain.safe_text import safe

        self.outcome = result.outcome
        if result.outcome == "published" and result.snapshot is not None:
            self.verdict = "valid"
            if level is not None:
                self.proofs[safe(result.snapshot)] = ("valid", level)

    def restored(self, result: RestoreResult) -> None:
        """What `restore` did, or chose; whatever it chose had been validated in full."""
        from ckptctl.domain.safe_text import safe

        self.outcome = result.outcome
        if result.snapshot is not None:
            self.verdict = "valid"
            self.proofs[safe(result.snapshot)] = ("valid", "full")

    def collect(self, result: GcResult) -> None:
        """What `gc` did."""
        from collections import Counter

        from ckptctl.domain.metrics import CollectedFacts

        self.outcome = result.outcome
        sizes: Counter[str] = Counter()
        for item in result.items:
            sizes[item.outcome] += item.size_bytes or 0
        counts: Counter[str] = Counter(item.outcome for item in result.items)
        self.collected = CollectedFacts(counts, {name: size for name, size in sizes.items() if name != "kept"})


def _demand(path: str) -> None:
    """Refuse a place where the file may not lie. One where it cannot be written is told when that is tried. Raises UsageError."""
    if path in {"", "-"}:
        raise UsageError(f"`{NAME}` names no file", hint=f"for example `{NAME} /var/lib/node_exporter/ckptctl.prom`")
    with suppress(StorageError, NothingThereError):
        demand_place(path, NAME)


def _take(ctx: Any, path: str | None) -> None:
    """Refuse a place where the file may not lie, before anything is done."""
    if path is None:
        return
    _demand(path)
    root = ctx.find_root()
    root.command.notes.path, root.command.notes.command = path, ctx.info_name


MetricsOption = Annotated[
    str | None,
    typer.Option(
        NAME,
        metavar="FILE",
        help="Also write how it ended and how the directory stands, for Prometheus (*.prom).",
        callback=_take,
        expose_value=False,
        show_default=False,
    ),
]


def metrics_path_in(words: Sequence[str]) -> str | None:
    """The file that the raw words name; after a usage error nothing else is left to ask."""
    following = (*words[1:], "")
    for word, after in zip(words, following, strict=False):
        if word == NAME or word.startswith(f"{NAME}="):
            return (after if word == NAME else word.partition("=")[2]) or None
    return None


def note_usage(notes: RunNotes, words: Sequence[str], commands: Sequence[str]) -> None:
    """A command line that could not be parsed: where its metrics go, if that is a place for them."""
    path = metrics_path_in(words)
    if path is None or notes.path is not None:
        return
    try:
        _demand(path)
    except UsageError:
        return
    notes.path, notes.command = path, next((word for word in words if word in commands), "")
    notes.error = UsageError("the command line", hint=None)


def write_metrics(notes: RunNotes, status: int, *, is_going_on: bool = False) -> None:
    """Write them, where they were asked for. What goes wrong with that is a warning."""
    if notes.path is None:
        return
    from ckptctl.cli.answer import Aside, write_to
    from ckptctl.domain.safe_text import inert, safe
    from ckptctl.render.metrics_text import metrics_text

    try:
        write_to(notes.path, metrics_text(_facts(notes, status, is_going_on=is_going_on)).encode())
    except CkptctlError as error:
        Aside().say(inert(f"warning: the metrics were not written: {safe(error.message)}\n"))


def _facts(notes: RunNotes, status: int, *, is_going_on: bool) -> Any:
    from ckptctl.cli.offline import offline_world
    from ckptctl.cli.options import Settings
    from ckptctl.domain.metrics import RunFacts
    from ckptctl.domain.safe_text import safe
    from ckptctl.workflows.observe import observe_directory

    quiet = Settings(quiet=True, format="json")
    directories = tuple(
        observe_directory(
            offline_world(quiet, path),
            path,
            notes.proofs,
            seen=notes.seen if notes.seen is not None and notes.seen.path == safe(path) else None,
        )
        for path in notes.directories
    )
    return RunFacts(
        command=notes.command,
        version=__version__,
        exit_status=status,
        ended_at_s=time.time(),
        seconds=time.monotonic() - notes.began_s if notes.seconds is None else notes.seconds,
        outcome=notes.outcome,
        error_code=_ENDINGS.get(status, "") if notes.error is None else notes.error.code,
        cause_code="" if notes.error is None else notes.error.cause_code or "",
        verdict=notes.verdict if notes.error is None else _VERDICTS.get(status, notes.verdict),
        is_going_on=is_going_on,
        rounds=notes.rounds,
        collected=notes.collected,
        directories=directories,
    )
