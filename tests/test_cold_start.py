"""What a start imports. Times are not asserted: what is not imported costs nothing on any machine."""

import ast
import os
import subprocess
import sys

import pytest

from tests.command_line import REPOSITORY, clean_environment
from tests.goldens import SAMPLES

LISTING = "import sys, runpy\nsys.argv = ['ckptctl', *{words!r}]\ntry:\n    runpy.run_module('ckptctl', run_name='__main__')\nexcept SystemExit:\n    pass\nprint('\\n' + repr(sorted(sys.modules)))"


def imported_by(*words, folder=REPOSITORY):
    """Names of all modules that are there after a command line ran in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING.format(words=list(words))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=folder,
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
    )
    return set(ast.literal_eval(done.stdout.rstrip("\n").rpartition("\n")[2]))


def heavy(modules, names):
    """Those of `names` that were imported, as a package or as one of its modules."""
    return sorted(name for name in names if any(found == name or found.startswith(f"{name}.") for found in modules))


def test_version_imports_next_to_nothing():
    """`--version` does not pay for typer, pydantic, rich, HTTP or an event loop."""
    assert [] == heavy(imported_by("--version"), ("typer", "pydantic", "rich", "httpx2", "asyncio", "yaml", "msgspec"))


@pytest.mark.parametrize(
    "words", [("--help",), ("validate", "--help"), ("sim", "up", "--help"), ("snapshot", "--help"), ("help", "--help")]
)
def test_help_imports_no_workflow(words):
    """Help needs the command line, and nothing that a command runs with."""
    never = (
        "yaml",
        "httpx2",
        "fastapi",
        "uvicorn",
        "ray",
        "transfer_queue",
        "torch",
        "ckptctl.workflows",
        "ckptctl.sim",
    )

    never += ("asyncio", "msgspec", "ckptctl.domain.document", "ckptctl.formats", "ckptctl.planning")

    assert [] == heavy(imported_by(*words), (*never, "ckptctl.adapters", "ckptctl.render", "ckptctl.rules"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_imports_next_to_nothing(monkeypatch, shell):
    """A key press does not pay for the command line, nor for patterns or paths."""
    line = "ckptctl validate --select L"
    monkeypatch.setenv("_CKPTCTL_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    never = (
        "typer",
        "pydantic",
        "rich",
        "httpx2",
        "asyncio",
        "yaml",
        "msgspec",
        "dataclasses",
        "pathlib",
        "subprocess",
    )

    assert [] == heavy(imported_by(), never)


SELECT = ("restore", "--select", "--config", "bootstrap-run.yaml")
OVERVIEW = ("inspect", "bootstrap-run")


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (
            SELECT,
            ("ckptctl.workflows.recovery", "ckptctl.workflows.publication", "ckptctl.render.restore_text", "asyncio"),
        ),
        (OVERVIEW, ("ckptctl.workflows.recovery", "ckptctl.workflows.publication", "asyncio")),
    ],
    ids=["restore --select", "inspect"],
)
def test_who_only_looks_does_not_start_what_finishes(words, never):
    """A path for a script, or an overview: no client, no server, nothing that publishes, releases or restores."""
    servers = ("httpx2", "fastapi", "uvicorn", "torch", "transfer_queue", "ckptctl.sim", "ckptctl.controller")

    assert [] == heavy(imported_by(*words, folder=SAMPLES), (*never, *servers, "ckptctl.adapters.channel"))


def test_validate_imports_no_client_and_no_server():
    """Proving files needs neither HTTP nor an event loop's servers, and never torch or pickle's users."""
    sample = str(REPOSITORY / "tests" / "samples" / "bootstrap-run")
    never = ("httpx2", "fastapi", "uvicorn", "ray", "transfer_queue", "torch", "ckptctl.sim", "ckptctl.controller")

    assert [] == heavy(imported_by("validate", sample), never)


HOOKED = """
import os, sys
folder, leave = sys.argv[1], os._exit
def tell_and_leave(status):
    with open(f"{folder}/{os.getpid()}", "w") as file:
        file.write(repr(sorted(sys.modules)))
    leave(status)
os._exit = tell_and_leave
before = set(sys.modules)
sys.argv = ["ckptctl", *sys.argv[2:]]
from ckptctl.__main__ import main
main()
"""


@pytest.mark.parametrize("hook", ["prolog", "epilog", "task-prolog"])
def test_a_hook_imports_the_standard_library_only(tmp_path, hook):
    """None of its processes brings in anything of ckptctl besides its own package, nor what costs much of the standard library."""
    environment = {"SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_WORK_DIR": str(tmp_path), "SLURM_JOB_ID": "1"}
    done = subprocess.run(
        [sys.executable, "-c", HOOKED, str(tmp_path), "hook", hook, "--state-dir", str(tmp_path / "state")],
        cwd=REPOSITORY,
        env=environment,
        timeout=60,
        check=False,
    )
    processes = [set(ast.literal_eval(path.read_text())) for path in tmp_path.iterdir() if path.is_file()]
    own = {name for modules in processes for name in modules if name.partition(".")[0] == "ckptctl"}
    never = (
        "argparse",
        "asyncio",
        "dataclasses",
        "inspect",
        "json",
        "logging",
        "pathlib",
        "re",
        "socket",
        "subprocess",
        "typing",
    )

    assert 0 == done.returncode
    assert len(processes) >= 2
    assert {"ckptctl", "ckptctl.__main__"} == {name for name in own if not name.startswith("ckptctl.hook")}
    assert [] == [
        name for modules in processes for name in heavy(modules, (*never, "typer", "pydantic", "rich", "msgspec"))
    ]
