"""Golden outputs: `tests/cli/golden/<command>/<case>/` holds the words of a command line (`args`, one a line, written by hand) and what
it answers on the frozen samples: `exit`, `stdout`, `stderr`. Only `python -m tests.regenerate` writes the last three.

The cases run in a copy of the samples, which none of them changes, and whose place is written `SAMPLES` in the answers. A case may say in `env` what is set.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.command_line import Ran, run

HERE = Path(__file__).resolve().parent
SAMPLES, GOLDEN = HERE / "samples", HERE / "cli" / "golden"
ANSWERS = ("exit", "stdout", "stderr")
TWO_HOURS_S = 7200


def cases() -> list[Path]:
    """Every case's folder."""
    return sorted(path.parent for path in GOLDEN.glob("*/*/args"))


def name_of(case: Path) -> str:
    """`validate/turn`."""
    return case.relative_to(GOLDEN).as_posix()


@contextmanager
def copied_samples() -> Iterator[Path]:
    """A copy of the samples; its files are as new as if they had just been written, but for deletions that broke off long ago."""
    with tempfile.TemporaryDirectory(prefix="ckptctl-samples-") as scratch:
        place = Path(scratch).resolve() / "samples"
        shutil.copytree(SAMPLES, place, copy_function=shutil.copyfile)
        for leftover in place.rglob("trash_snapshot_*"):
            for path in (*leftover.rglob("*"), leftover):
                os.utime(path, (time.time() - TWO_HOURS_S,) * 2)
        yield place


def answer_of(case: Path, place: Path) -> dict[str, str]:
    """What the case's command line answers: the text of its three files."""
    words = (case / "args").read_text(encoding="utf-8").splitlines()
    lines = (case / "env").read_text(encoding="utf-8").splitlines() if (case / "env").exists() else []
    ran = run(*words, folder=place, environment=dict(line.split("=", 1) for line in lines))
    return as_files(ran, place, has_times=case.parent.name == "inspect")


def as_files(ran: Ran, place: Path, *, has_times: bool) -> dict[str, str]:
    """An answer as the golden files have it: without the place of the copy, and without the age of its files."""
    stdout = timeless(ran.stdout) if has_times else ran.stdout
    texts = {"exit": f"{ran.status}\n", "stdout": stdout, "stderr": ran.stderr}
    return {name: text.replace(str(place), "SAMPLES") for name, text in texts.items()}


def timeless(text: str) -> str:
    """A text without the ages of files, and without the widths of columns that follow from them."""
    if text.startswith("{"):
        return re.sub(r'("(?:age_s|untouched_s|written_at)"): [0-9.]+', r'\1: "TIME"', text)
    text = re.sub(r"\b[0-9-]{10} [0-9:]{8} UTC", "TIME", text)
    return re.sub(r"(?<=\S) {2,}", "  ", re.sub(r"\b[0-9.]+ (?:ms|s|min|h)\b", "AGE", text))


def tree_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def golden_files() -> dict[Path, str]:
    """Every golden file and what it must hold."""
    with copied_samples() as place:
        wanted = {case / name: text for case in cases() for name, text in answer_of(case, place).items()}
        assert tree_of(SAMPLES) == tree_of(place), "a golden command line changed the samples"
    return wanted
