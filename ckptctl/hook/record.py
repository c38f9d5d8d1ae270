"""What a hook leaves behind: a verdict file per job and hook, and Prometheus metrics. The only module here that writes files.

See the package's docstring for why this is not `adapters.durable`. The directory must be ours and nobody else's to write;
names are made of digits and fixed words; a file appears whole, by a rename, or not at all.

Verdicts: `job-<id>.<hook>.json`, mode 0600, the newest KEPT of them. Metrics: `ckptctl_hook.prom`, mode 0644, for
node_exporter's textfile collector; no path, name or id of a job is in it.
"""

from __future__ import annotations

import fcntl
import os
import time

from ckptctl.hook.options import Settings
from ckptctl.hook.verdict import FAILED, HUNG, REFUSED, WORDS, Verdict

KEPT = 1000
METRICS_NAME = "ckptctl_hook.prom"
LONGEST_TEXT = 4096
_LOCK_NAME = ".lock"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ABOUT = {
    "ckptctl_hook_runs_total": ("counter", "Runs of a hook for jobs with a checkpoint directory, by verdict."),
    "ckptctl_hook_last_exit_code": ("gauge", "Exit status of ckptctl in the last run, -1 when there was none."),
    "ckptctl_hook_last_verdict": ("gauge", "1 for the verdict of the last run."),
    "ckptctl_hook_last_unfinished": ("gauge", "Transactions that somebody must finish, as the last run saw them."),
    "ckptctl_hook_last_duration_seconds": ("gauge", "How long the last run took."),
    "ckptctl_hook_last_run_timestamp_seconds": ("gauge", "When the last run ended."),
}


def write_verdict(settings: Settings, environment: dict[str, str], found: Verdict) -> None:
    """One JSON object for this job and hook. Raises OSError."""
    job_id = environment.get("SLURM_JOB_ID", "")
    name = f"job-{job_id if job_id.isascii() and job_id.isdigit() and len(job_id) < 20 else 'unknown'}"
    fields: dict[str, object] = {
        "schema_version": 1,
        "hook": settings.hook,
        "job_id": job_id,
        "restart_count": environment.get("SLURM_JOB_RESTART_COUNT", environment.get("SLURM_RESTART_COUNT", "0")),
        "node": environment.get("SLURMD_NODENAME", ""),
        "verdict": found.word,
        "exit_code": found.exit_code,
        "reason": found.reason,
        "checkpoint_dir": found.directory,
        "found_by": found.found_by,
        "newest": found.newest,
        "unfinished": found.unfinished,
        "seconds": round(found.seconds, 3),
        "finished_at": round(time.time(), 3),
    }
    text = ",\n".join(f" {_json(key)}: {_json(value)}" for key, value in fields.items())
    folder = _own_folder(settings.state_dir)
    try:
        _replace(folder, f"{name}.{settings.hook}.json", f"{{\n{text}\n}}\n", mode=0o600)
        _forget_old(folder)
    finally:
        os.close(folder)


def write_metrics(settings: Settings, found: Verdict) -> None:
    """Counters and the last run of each hook. Raises OSError."""
    own = _own_folder(settings.state_dir)
    lock = os.open(_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=own)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another hook of this node; both are bounded by their watchdogs
        folder = os.open(settings.textfile_dir, _DIRECTORY)
        values = _decode(_read(folder, METRICS_NAME))
        _count(values, settings.hook, found)
        _replace(folder, METRICS_NAME, _encode(values), mode=0o644)
        os.close(folder)
    finally:
        os.close(lock)
        os.close(own)


def _count(values: dict[str, float], hook: str, found: Verdict) -> None:
    counter = f'ckptctl_hook_runs_total{{hook="{hook}",verdict="{found.word}"}}'
    values[counter] = values.get(counter, 0.0) + 1
    for word in (*WORDS.values(), HUNG, REFUSED, FAILED):
        values[f'ckptctl_hook_last_verdict{{hook="{hook}",verdict="{word}"}}'] = float(word == found.word)
    for name, value in (
        ("exit_code", -1 if found.exit_code is None else found.exit_code),
        ("unfinished", found.unfinished or 0),
        ("duration_seconds", round(found.seconds, 3)),
        ("run_timestamp_seconds", round(time.time(), 3)),
    ):
        values[f'ckptctl_hook_last_{name}{{hook="{hook}"}}'] = float(value)


def _own_folder(path: str) -> int:
    """A descriptor of a directory that is ours to write and nobody else's; it is made when it is absent. Raises OSError."""
    os.makedirs(path, 0o755, exist_ok=True)  # noqa: PTH103 - pathlib costs a third of the start
    folder = os.open(path, _DIRECTORY)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(folder)
        raise PermissionError(f"{path!r} belongs to somebody else, or others may write it")
    return folder


def _replace(folder: int, name: str, text: str, *, mode: int) -> None:
    """Make a file whole under its name; whoever reads sees the old one or the new one. Raises OSError."""
    draft = f".{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    if draft in os.listdir(folder):  # of a process of this number that was killed
        os.unlink(draft, dir_fd=folder)
    try:
        with os.fdopen(os.open(draft, flags, mode, dir_fd=folder), "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        if draft in os.listdir(folder):
            os.unlink(draft, dir_fd=folder)
        raise


def _forget_old(folder: int) -> None:
    names = [name for name in os.listdir(folder) if name.startswith("job-")]
    if len(names) <= KEPT:
        return
    ages = sorted((_age_order(folder, name), name) for name in names)
    for _, name in ages[: len(names) - KEPT]:
        try:
            os.unlink(name, dir_fd=folder)
        except OSError:  # another hook of this node forgets the same ones, or it is no file
            continue


def _age_order(folder: int, name: str) -> float:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _read(folder: int, name: str) -> str:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)


def _decode(text: str) -> dict[str, float]:
    """Series and values of an earlier file; lines that are none of ours are dropped."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        if series.partition("{")[0] in _ABOUT:
            try:
                values[series] = float(number)
            except ValueError:
                continue
    return values


def _encode(values: dict[str, float]) -> str:
    lines: list[str] = []
    for name, (kind, text) in _ABOUT.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [
            f"{series} {value:.15g}" for series, value in sorted(values.items()) if series.startswith(f"{name}{{")
        ]
    return "\n".join(lines) + "\n"


def _json(value: object) -> str:
    """One value as JSON: the module of that name costs more than everything else here."""
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return repr(value)
    return '"' + "".join(map(_json_character, str(value)[:LONGEST_TEXT])) + '"'


def _json_character(character: str) -> str:
    number = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 32 <= number < 127:
        return character
    if number < 1 << 16:
        return f"\\u{number:04x}"
    number -= 1 << 16
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
