"""Commands whose working directory was removed under them: relative paths mean nothing, which is said in words."""

import subprocess

import pytest

from tests.command_line import REPOSITORY, clean_environment, command
from tests.runs import a_run

REMOVED = 'cd "$0" && rmdir "$0" && exec "$@"'
"""A shell that removes the directory that it is in."""
CONFIG = "../run.yaml"


def run_without(place, *words):
    folder = place / "gone"
    folder.mkdir()
    return subprocess.run(
        ["/bin/sh", "-c", REMOVED, str(folder), *command(*words)],
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        *((name, "--config", CONFIG) for name in ("snapshot", "publish", "restore", "gc", "inspect")),
        ("inspect", "--config", CONFIG, "--live", "--output", "x"),
        ("gc", "--config", CONFIG, "--metrics-textfile", "x.prom"),
        ("slurm", "claim", "--config", CONFIG),
        ("sim", "status", "--dir", "../run"),
        ("validate", "../run"),
    ],
    ids=" ".join,
)
def test_a_relative_path_means_nothing(words, tmp_path):
    """Every command says so, with the path; none ends with a traceback."""
    done = run_without(tmp_path, *words)

    assert (3, "") == (done.returncode, done.stdout)
    relative = next(word for word in words if word.startswith("../"))
    assert f"the working directory is gone, so `{relative}` means nothing" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_answer_has_no_place(tmp_path):
    """A file for it is refused before anything is done; the metrics are a warning, as ever."""
    run = str(a_run(tmp_path / "run", step_3=1))
    refused = run_without(tmp_path, "validate", run, "--output", "x.txt")
    done = run_without(tmp_path, "validate", run, "--metrics-textfile", "x.prom")

    assert (3, "error[nothing-there]: the working directory is gone, so `x.txt` means nothing") == (
        refused.returncode,
        refused.stderr.splitlines()[0],
    )
    assert 0 == done.returncode
    assert "warning: the metrics were not written: cannot write `x.prom`: the working directory is gone" in done.stderr
