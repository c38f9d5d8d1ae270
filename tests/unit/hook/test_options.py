"""Options of a hook: what is wrong is complained of, and never stops it."""

import pytest

from ckptctl.errors import ExitCode
from ckptctl.hook import options, verdict


def test_options_are_taken_in_both_forms():
    """`--name value` and `--name=value`."""
    found = options.parse(["prolog", "--deadline", "2m", "--level=full", "--state-dir=/a", "--textfile-dir", "/b"])

    assert (120.0, "full", "/a", "/b", []) == (
        found.deadline_s,
        found.level,
        found.state_dir,
        found.textfile_dir,
        found.complaints,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--deadline"],
        ["--deadline", "soon"],
        ["--deadline", "0"],
        ["--deadline", "2h"],
        ["--deadline=٣s"],
        ["--level", "deep"],
        ["--state-dir", "relative"],
        ["--frobnicate"],
        ["word"],
    ],
)
def test_a_wrong_option_changes_nothing_and_is_told(words):
    """A slip in a site's script must not drain every node."""
    found, plain = options.parse(["epilog", *words]), options.parse(["epilog"])

    assert 1 == len(found.complaints)
    assert (plain.deadline_s, plain.level, plain.state_dir) == (found.deadline_s, found.level, found.state_dir)


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("1.5s", 1.5), ("500ms", 0.5), ("2m", 120)])
def test_durations(text, seconds):
    """With a unit or in seconds."""
    assert seconds == options.duration_s(text)


@pytest.mark.parametrize(
    ("words", "is_hook"),
    [
        (["hook", "prolog"], True),
        (["hook", "task-prolog", "--level", "full"], True),
        (["hook", "prolog", "--help"], False),
        (["hook", "-h"], False),
        (["hook"], False),
        (["validate", "hook"], False),
    ],
)
def test_what_is_a_hooks_command_line(words, is_hook):
    """One that asks for help is a person's."""
    assert is_hook == options.is_hook(words)


def test_words_are_those_of_the_table_of_exit_statuses():
    """The package may not import them, so they are written once more, and are the same."""
    assert set(verdict.WORDS) <= {int(code) for code in ExitCode}
    assert "invalid" == verdict.of_status(int(ExitCode.INVALID), 1).word
    assert "incompatible" == verdict.of_status(int(ExitCode.INCOMPATIBLE), 1).word
    assert "failed" == verdict.of_status(int(ExitCode.BUG), 1).word
    assert "hung" == verdict.of_status(None, 1).word
    assert "signal 9" in verdict.of_status(-9, 1).reason
