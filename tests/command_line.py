"""Command lines as a user types them: in this process (quick), or as a process of their own (what only a process can show)."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

REPOSITORY = Path(__file__).resolve().parent.parent
WIDTH = {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
FOREIGN = ("CKPTCTL_", "SLURM_", "NEMO_GYM_", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CI", "GITHUB_", "TERM_PROGRAM")
"""What of the environment could change an answer."""


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    status: int
    stdout: str
    stderr: str


def clean_environment() -> dict[str, str]:
    """The environment without anything that changes an answer."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)} | WIDTH


def run(*words: str, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command line in this process, in `folder`."""
    from ckptctl.cli.app import app

    absent = {name: None for name in os.environ if name.startswith(FOREIGN)}
    with working_directory(folder or Path.cwd()):
        shown = CliRunner().invoke(
            app,
            list(words),
            prog_name="ckptctl",
            env={**absent, **WIDTH, **(environment or {})},
            catch_exceptions=False,
        )
    return Ran(shown.exit_code, shown.stdout, shown.stderr)


def run_process(*words: str, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a command line as a process."""
    done = subprocess.run(
        command(*words),
        cwd=folder,
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def command(*words: str) -> list[str]:
    """The words that start ckptctl as a process."""
    return [sys.executable, "-m", "ckptctl", *words]


@contextmanager
def working_directory(folder: Path) -> Iterator[None]:
    """Be in `folder` for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
