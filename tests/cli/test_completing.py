"""Completion as a shell asks for it: with the committed script in a real bash, and in the words of zsh's and fish's."""

import os
import shutil
import subprocess
import sys

import pytest

from ckptctl.rules import ALL_RULES
from tests.command_line import REPOSITORY, clean_environment
from tests.runs import a_run

BASH = """
source {script}
COMP_WORDS=({line})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_ckptctl_completion ckptctl
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p ckptctl >&2
"""


@pytest.fixture
def place(tmp_path):
    """A folder with a run and its configuration, and `ckptctl` on the path."""
    root = a_run(tmp_path / "run", step_3=2, bootstrap=1)
    (root / "step_3/rollout_snapshots/tmp_snapshot_000009").mkdir()
    (root / ".ckptctl/trash/1790000000.step_3.snapshot_000007").mkdir(parents=True)
    (tmp_path / "run.yaml").write_text("checkpointing: {enabled: true, checkpoint_dir: run, save_period: 1}\n")
    program = tmp_path / "bin" / "ckptctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ckptctl "$@"\n')
    program.chmod(0o755)
    return tmp_path


def environment(place):
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**clean_environment(), "PYTHONPATH": str(REPOSITORY), "PATH": path}


def in_bash(place, line: str) -> list[str]:
    """What bash has to offer after a line, with the committed file."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    script = REPOSITORY / "completions" / "ckptctl.bash"
    done = subprocess.run(
        [bash, "--norc", "-c", BASH.format(script=script, line=f"{line[:-1]} ''" if line.endswith(" ") else line)],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "_ckptctl_completion" in done.stderr
    return done.stdout.split()


def asked(place, shell: str, line: str, **more: str):
    """The answer to a shell, and its status."""
    done = subprocess.run(
        [sys.executable, "-m", "ckptctl"],
        cwd=place,
        env={**environment(place), "_CKPTCTL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    return done.returncode, done.stdout


NEWEST = "step_3/rollout_snapshots/snapshot_000002"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ckptctl ", {"snapshot", "validate", "publish", "restore", "gc", "inspect", "hook", "sim", "slurm", "help"}),
        ("ckptctl sim f", {"fault"}),
        ("ckptctl --config run.yaml re", {"restore"}),
        ("ckptctl restore --s", {"--select"}),
        ("ckptctl validate --level ", {"quick", "standard", "full"}),
        ("ckptctl validate --level=f", {"--level=full"}),
        ("ckptctl --format j", {"json", "junit"}),
        ("ckptctl validate --select SUM --ignore SUM00", {f"SUM00{number}" for number in range(1, 10)}),
        ("ckptctl gc run --pin step_3/", {"step_3/snapshot_000001", "step_3/snapshot_000002"}),
        ("ckptctl gc --config run.yaml --pin boot", {"bootstrap/snapshot_000001"}),
        ("ckptctl gc run --undelete ", {"1790000000.step_3.snapshot_000007"}),
        ("ckptctl inspect run/step_3/", {f"run/{NEWEST}", "run/step_3/rollout_snapshots/snapshot_000001"}),
        ("ckptctl validate run/" + NEWEST[:-1], {f"run/{NEWEST}", "run/step_3/rollout_snapshots/snapshot_000001"}),
        ("ckptctl publish run/", {"run/step_3/rollout_snapshots/tmp_snapshot_000009"}),
        ("ckptctl validate --output ", set()),
        ("ckptctl nonsense ", set()),
        ("ckptctl gc --config gone.yaml --pin s", set()),
    ],
)
def test_what_bash_offers(place, line, wanted):
    """Commands, options, values, rules, names of snapshots; nothing where bash's own names of files are better."""
    assert wanted == set(in_bash(place, line))


def test_rules_are_offered_with_their_names(place):
    """zsh and fish show beside each word what it means."""
    rule = ALL_RULES[0]
    _, zsh = asked(place, "zsh", f"ckptctl validate --explain {rule.id}")
    _, fish = asked(place, "fish", f"ckptctl validate --explain {rule.id}", _TYPER_COMPLETE_FISH_ACTION="get-args")

    assert f"""_arguments '*: :(("{rule.id}":"{rule.name}"))'""" == zsh
    assert f"{rule.id}\t{rule.name}" == fish


def test_where_nothing_fits_names_of_files_are_left_to_the_shell(place):
    """zsh is told so; fish asks first."""
    is_args = {"_TYPER_COMPLETE_FISH_ACTION": "is-args"}

    assert (0, "_files") == asked(place, "zsh", "ckptctl snapshot --config ")
    assert (1, "") == asked(place, "fish", "ckptctl snapshot --config ", **is_args)
    assert (0, "") == asked(place, "fish", "ckptctl sn", **is_args)


def test_names_that_are_no_plain_words_are_not_offered(place):
    """A folder whose name a shell would take apart, or run."""
    (place / "run" / "step_3" / "rollout_snapshots" / "snapshot_$(touch x)").mkdir()
    (place / "run" / ".ckptctl" / "trash" / "`touch y`").mkdir()

    assert {"1790000000.step_3.snapshot_000007"} == set(in_bash(place, "ckptctl gc run --undelete "))
    assert not (place / "x").exists()
