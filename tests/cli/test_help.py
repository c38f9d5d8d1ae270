"""Every command's help: whole sentences, lines that fit, the exit statuses of that command, and nothing that promises what is not there."""

import re
from typing import get_args

import pytest

from ckptctl.cli.exit_status import OF_COMMAND, codes_of
from ckptctl.errors import EXIT_MEANINGS, ExitCode
from tests.command_line import run, run_process
from tests.regenerate import command_paths

PATHS = command_paths()
COMMANDS = [words for words in PATHS if words and words not in {("sim",), ("slurm",)}]
GLOBAL_OPTIONS = ("--config", "--format", "--output", "--verbose", "--quiet")


def helped(words):
    ran = run(*words, "--help")
    assert (0, "") == (ran.status, ran.stderr)
    return ran.stdout


def named(words):
    return " ".join(words) or "root"


def test_the_walk_sees_every_command():
    """At least the seven commands and nine of `sim`, and nothing twice."""
    assert len(PATHS) >= 17
    assert len(set(PATHS)) == len(PATHS)


@pytest.mark.parametrize("words", PATHS, ids=named)
def test_help_fits_eighty_columns(words):
    """No line is longer than a small terminal is wide; no sentence is cut off."""
    text = helped(words)

    assert [] == [line for line in text.splitlines() if len(line) > 80]
    assert "..." not in text.replace("[OPTIONS]...", "").replace("[ARGS]...", "").replace("[PATH]...", "").replace(
        "[COMMAND]...", ""
    )
    assert [] == [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_help_ends_with_the_exit_statuses(words):
    """Each status of the command with its meaning, in order, from the one table."""
    text = helped(words).partition("Exit status:\n")[2]
    name = " ".join(words) if " ".join(words) in OF_COMMAND else words[0]
    found = re.findall(r"^ +(\d+)  (.+(?:\n {8}\S.*)*)", text, flags=re.MULTILINE)
    expected = [(str(int(code)), EXIT_MEANINGS[code]) for code in codes_of(name)]

    assert expected == [(code, re.sub(r"\s+", " ", meaning)) for code, meaning in found]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words != ("hook",)], ids=named)
def test_every_command_takes_the_global_options(words):
    """They stand in each command's own help. A hook has none of them: its start costs next to nothing."""
    text = helped(words)

    assert [] == [option for option in GLOBAL_OPTIONS if option not in text]


def test_short_help_is_one_whole_sentence():
    """In the list of commands every line ends with a full stop."""
    for words in ((), ("sim",)):
        lines = helped(words).partition("Commands:\n")[2].splitlines()
        assert len(lines) >= 7
        assert [] == [line for line in lines if not line.endswith(".")]


def test_every_status_is_somebodys():
    """No status of the table is without a command that can end with it."""
    assert set(ExitCode) == {code for command in OF_COMMAND for code in codes_of(command)}


def test_kinds_of_faults_are_those_of_the_cluster():
    """Help must not import the cluster, so it says the kinds by itself; they are the same."""
    from ckptctl.cli.sim_options import FAULT_KINDS
    from ckptctl.sim.fault_order import Kind

    assert get_args(Kind) == FAULT_KINDS


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("complete_bash", {"COMP_WORDS": "ckptctl val", "COMP_CWORD": "1"}, "validate"),
        ("complete_bash", {"COMP_WORDS": "ckptctl sim de", "COMP_CWORD": "2"}, "demo"),
        ("complete_zsh", {"_TYPER_COMPLETE_ARGS": "ckptctl res"}, "restore"),
        (
            "complete_fish",
            {"_TYPER_COMPLETE_ARGS": "ckptctl pub", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            "publish",
        ),
    ],
)
def test_completion_answers(shell, words, expected):
    """What the committed scripts call gives the command that was meant."""
    ran = run_process(environment={"_CKPTCTL_COMPLETE": shell, **words})

    assert expected in ran.stdout
