"""A run and its checkpoint directories in Prometheus' text format, for node_exporter's textfile collector.

Every sample has the labels `command` and `checkpoint_dir`, so that the files of several commands and runs do not contradict each
other. What is not known is left out rather than written as a zero; what is one of several words has a sample for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from ckptctl.domain.finding import VerdictName
from ckptctl.domain.metrics import DirectoryFacts, RunFacts, SeenSnapshot
from ckptctl.domain.safe_text import safe

Labels = Mapping[str, str]
VERDICTS: tuple[VerdictName, ...] = get_args(VerdictName)

HELP: dict[str, str] = {
    "ckptctl_build_info": "The version of ckptctl that wrote these samples; always 1.",
    "ckptctl_last_run_timestamp_seconds": "When the command, or its last round, ended.",
    "ckptctl_last_run_duration_seconds": "How long it took.",
    "ckptctl_last_run_exit_status": "What it ended with (see the table of exit statuses; 0 is done).",
    "ckptctl_last_run_info": "How it ended, in words: outcome, code of the error and of its cause; always 1.",
    "ckptctl_last_run_verdict": "1 for the verdict that it came to, 0 for the others.",
    "ckptctl_running": "1 while `snapshot --every` goes on, 0 when the command has ended.",
    "ckptctl_rounds": "Rounds of `snapshot --every` since it began, by how they ended.",
    "ckptctl_consecutive_failures": "Rounds of `snapshot --every` that failed in a row.",
    "ckptctl_max_consecutive_failures": "How many of them end it.",
    "ckptctl_interval_seconds": "Distance at which `snapshot --every` begins its rounds.",
    "ckptctl_gc_items": "Items that `gc` looked at, by what became of them.",
    "ckptctl_gc_bytes": "Bytes of the items that `gc` moved or deleted, or was to.",
    "ckptctl_directory_readable": "1 when all of the checkpoint directory could be looked at; 0: what could not is missing here.",
    "ckptctl_snapshots": "Published snapshots, by verdict; at level quick unless this command looked deeper.",
    "ckptctl_bytes": "What lies in the checkpoint directory beside the trainer's own files.",
    "ckptctl_newest_published_snapshot_timestamp_seconds": "When the newest published snapshot was written.",
    "ckptctl_newest_published_snapshot_age_seconds": "Its age at the end of the run.",
    "ckptctl_newest_published_snapshot_bytes": "Its size.",
    "ckptctl_newest_published_snapshot_info": "Its place, and how deep it was looked at; always 1.",
    "ckptctl_newest_valid_snapshot_timestamp_seconds": "When the newest valid snapshot was written.",
    "ckptctl_newest_valid_snapshot_age_seconds": "Its age at the end of the run.",
    "ckptctl_newest_valid_snapshot_bytes": "Its size.",
    "ckptctl_newest_valid_snapshot_info": "Its place, and how deep it was looked at; always 1.",
    "ckptctl_admission_closed_seconds": "How long the newest snapshot attempt that ended kept admission closed.",
    "ckptctl_unfinished_transaction": "1 when an interrupted transaction waits to be finished.",
    "ckptctl_release_pending": "1 when a snapshot is published, but not everybody was released.",
    "ckptctl_admission_may_be_closed": "1 when an interrupted transaction may have left admission closed.",
    "ckptctl_locked": "1 when a coordinator that may be alive holds the lock.",
}
"""Every metric, in the order of the file. Names are promises, as ids and exit statuses are."""


@dataclass(slots=True)
class _Samples:
    """Lines by the name of their metric."""

    base: Labels
    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, value: float | None, **labels: str) -> None:
        """One sample; nothing when the value is not known."""
        if value is None:
            return
        told = ",".join(f'{key}="{escape_label(text)}"' for key, text in {**self.base, **labels}.items())
        number = str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
        self.lines.setdefault(name, []).append(f"{name}{{{told}}} {number}")


def metrics_text(run: RunFacts) -> str:
    """The whole file."""
    only = run.directories[0].checkpoint_dir if len(run.directories) == 1 else ""
    samples = _Samples({"command": run.command, "checkpoint_dir": only})
    _add_run(samples, run)
    for directory in run.directories:
        inner = _Samples({"command": run.command, "checkpoint_dir": directory.checkpoint_dir}, samples.lines)
        _add_directory(inner, directory)
    return "".join(_blocks(samples.lines))


def escape_label(text: str) -> str:
    r"""A label's value: backslash, quote and line feed are escaped, and whatever UTF-8 or a terminal could not take."""
    return safe(text, keep_newlines=True).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _blocks(lines: Mapping[str, list[str]]) -> Iterator[str]:
    for name, told in HELP.items():
        if name in lines:
            yield f"# HELP {name} {told}\n# TYPE {name} gauge\n" + "".join(f"{line}\n" for line in lines[name])


def _add_run(samples: _Samples, run: RunFacts) -> None:
    samples.add("ckptctl_build_info", 1, version=run.version)
    samples.add("ckptctl_last_run_timestamp_seconds", round(run.ended_at_s, 3))
    samples.add("ckptctl_last_run_duration_seconds", round(run.seconds, 3))
    samples.add("ckptctl_last_run_exit_status", run.exit_status)
    samples.add("ckptctl_last_run_info", 1, outcome=run.outcome, error=run.error_code, cause=run.cause_code)
    for verdict in VERDICTS if run.verdict is not None else ():
        samples.add("ckptctl_last_run_verdict", int(verdict == run.verdict), verdict=verdict)
    if run.rounds is not None:
        samples.add("ckptctl_running", int(run.is_going_on))
        for ended, count in run.rounds.ended.items():
            samples.add("ckptctl_rounds", count, outcome=ended)
        samples.add("ckptctl_consecutive_failures", run.rounds.failures_in_a_row)
        samples.add("ckptctl_max_consecutive_failures", run.rounds.most_failures)
        samples.add("ckptctl_interval_seconds", run.rounds.every_s)
    if run.collected is not None:
        for outcome, count in run.collected.items.items():
            samples.add("ckptctl_gc_items", count, outcome=outcome)
        for outcome, size_bytes in run.collected.bytes.items():
            samples.add("ckptctl_gc_bytes", size_bytes, outcome=outcome)


def _add_directory(samples: _Samples, found: DirectoryFacts) -> None:
    samples.add("ckptctl_directory_readable", int(found.obstacle is None))
    for verdict in VERDICTS if found.snapshots is not None else ():
        count = sum(item.verdict == verdict for item in found.snapshots or ())
        samples.add("ckptctl_snapshots", count, verdict=verdict)
    for kind, size_bytes in found.sizes_bytes.items():
        samples.add("ckptctl_bytes", size_bytes, kind=kind)
    _add_newest(samples, "ckptctl_newest_published_snapshot", found.newest())
    _add_newest(samples, "ckptctl_newest_valid_snapshot", found.newest("valid"))
    samples.add("ckptctl_admission_closed_seconds", found.admission_closed_s)
    if found.is_release_pending is not None:
        samples.add("ckptctl_unfinished_transaction", int(found.unfinished is not None))
    samples.add("ckptctl_release_pending", found.is_release_pending)
    samples.add("ckptctl_admission_may_be_closed", found.may_be_closed)
    samples.add("ckptctl_locked", found.is_locked)


def _add_newest(samples: _Samples, name: str, found: SeenSnapshot | None) -> None:
    if found is None:
        return
    samples.add(f"{name}_timestamp_seconds", found.written_at_s)
    samples.add(f"{name}_age_seconds", None if found.age_s is None else round(found.age_s, 3))
    samples.add(f"{name}_bytes", found.size_bytes)
    samples.add(f"{name}_info", 1, snapshot=found.path, anchor=found.anchor, verdict=found.verdict, level=found.level)
