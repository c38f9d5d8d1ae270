"""What a hook is told: options of its command line. A wrong one is complained of and passed over, never a failure.

By hand, since argparse costs as much as the interpreter's start and ends with 2 where a hook must end with 0.
"""

from __future__ import annotations

import os

HOOKS = ("prolog", "epilog", "task-prolog")
LEVELS = ("quick", "standard", "full")
DEADLINES_S = {"prolog": 10.0, "epilog": 10.0, "task-prolog": 60.0}
"""Of a hook's work. Slurm's own limit, where a site sets one, must be longer by a few seconds."""
LONGEST_S = 3600.0
ROOT_STATE_DIR = "/var/lib/ckptctl/hook"
HELP_WORDS = ("-h", "--help")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


class Settings:
    """What one run of a hook was asked for."""

    __slots__ = ("complaints", "deadline_s", "hook", "level", "state_dir", "textfile_dir")

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.deadline_s = DEADLINES_S[hook]
        self.level = "quick"
        self.state_dir = ROOT_STATE_DIR if os.geteuid() == 0 else f"/tmp/ckptctl-hook-{os.geteuid()}"  # noqa: S108 - its owner and mode are checked
        self.textfile_dir = ""
        self.complaints: list[str] = []


def is_hook(words: list[str]) -> bool:
    """Whether a command line is that of a hook that a scheduler runs; one that asks for help is not."""
    return words[:1] == ["hook"] and words[1:2] in [[name] for name in HOOKS] and not set(HELP_WORDS) & set(words[2:])


def parse(words: list[str]) -> Settings:
    """Settings from the words after `hook`; the first is its name."""
    settings = Settings(words[0])
    rest = words[1:]
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--deadline", "--level", "--state-dir", "--textfile-dir"):
            settings.complaints.append(f"unknown option {name!r}")
            continue
        if not equals:
            value = rest.pop(0) if rest else ""
        if not _take(settings, name, value):
            what = "takes an absolute path, so it passes over" if name.endswith("-dir") else "has no use for"
            settings.complaints.append(f"option {name} {what} {value!r}")
    settings.textfile_dir = settings.textfile_dir or settings.state_dir
    return settings


def _take(settings: Settings, name: str, value: str) -> bool:
    if name == "--deadline":
        seconds = duration_s(value)
        if seconds is None:
            return False
        settings.deadline_s = seconds
    elif name == "--level":
        if value not in LEVELS:
            return False
        settings.level = value
    elif not value.startswith("/"):
        return False
    elif name == "--state-dir":
        settings.state_dir = value
    else:
        settings.textfile_dir = value
    return True


def duration_s(text: str) -> float | None:
    """Seconds of `10s`, `500ms`, `2m` or `10`; None for what is none, or not above 0 and at most an hour."""
    number = text.rstrip("ms")
    unit = text[len(number) :]
    if unit not in _UNITS or not number.replace(".", "", 1).isascii() or not number.replace(".", "", 1).isdigit():
        return None
    seconds = float(number) * _UNITS[unit]
    return seconds if 0 < seconds <= LONGEST_S else None
