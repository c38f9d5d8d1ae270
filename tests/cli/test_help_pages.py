"""`ckptctl help COMMAND`: a page for each command, whose examples are lines that the command takes, and which man(1) can show."""

import json
import shlex
import shutil
import subprocess

import pytest

from ckptctl.cli.completing import _walk, read_words
from ckptctl.cli.examples import EXAMPLES
from tests.command_line import run
from tests.regenerate import command_paths
from tests.schemas import problems

PATHS = command_paths()
KNOWN = read_words()["root"]


@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_a_page_begins_with_the_help_of_its_command(words):
    """What `--help` prints, word for word, and then what it has no room for."""
    page = run("help", *words)

    assert 0 == page.status, page.stderr
    assert page.stdout.startswith(run(*words, "--help").stdout.rstrip())
    assert "\nEnvironment:\n" in page.stdout


@pytest.mark.parametrize("words", PATHS, ids=" ".join)
def test_a_page_fits_eighty_columns(words):
    """No line is wider, none ends in the middle of a name, and an example that goes on is one line to a shell."""
    lines = run("help", *words).stdout.splitlines()
    examples = [line.removeprefix("  $ ") for line in "\n".join(lines).replace(" \\\n     ", "").splitlines()]

    assert [] == [line for line in lines if len(line) > 80]
    assert [] == [line for line in lines if line.endswith("-") and not line.startswith("  $ ")]
    assert {item for _, item in EXAMPLES.get(" ".join(words), ())} <= set(examples)


def test_the_json_page_has_its_schema():
    """Examples and statuses as data."""
    page = run("help", "snapshot", "--format", "json").stdout

    assert [] == problems(page, "help.v1.json")
    assert 23 in [item["status"] for item in json.loads(page)["statuses"]]


def test_what_is_no_command_is_a_usage_error():
    """With the commands that there are."""
    done = run("help", "sim", "nonsense")

    assert 2 == done.status
    assert "there is no command `sim nonsense`" in done.stderr
    assert "fault" in done.stderr


def test_every_command_has_examples():
    """The root and each of its commands; those of `sim` are told together."""
    assert {words[0] if words else "" for words in PATHS} == set(EXAMPLES)


@pytest.mark.parametrize("line", [line for items in EXAMPLES.values() for _, line in items])
def test_an_example_is_a_line_that_its_command_takes(line):
    """Every word that looks like an option is one of that command, and has its value."""
    program, *words = shlex.split(line.partition(" | ")[0])
    command, awaited, given = _walk(KNOWN, words)
    options = {word.partition("=")[0] for word in words if word.startswith("-")}

    assert ("ckptctl", None) == (program, awaited)
    assert set() == options - set(command["options"])
    assert command is not KNOWN
    assert command["arguments"] or not given["arguments"]


@pytest.mark.parametrize("words", [(), ("validate",), ("sim", "fault")], ids=" ".join)
def test_man_shows_a_page_without_complaint(words):
    """groff finds nothing wrong with it, and what has columns keeps them."""
    page = run("help", *words, "--man").stdout

    assert page.startswith(f'.TH "{"-".join(("ckptctl", *words)).upper()}" "1"')
    assert not [line for line in page.splitlines() if line.startswith("'")]
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("there is no groff here; the form of the lines was looked at")
    done = subprocess.run(
        [groff, "-man", "-Tascii", "-ww", "-z"], input=page, capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
