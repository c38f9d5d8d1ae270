"""Every exit status of the table, and the test that reaches it with a command line. A status without a test is no promise.

Statuses of files alone are reached here too, in one list that reads like the table.
"""

import ast
from pathlib import Path

import pytest

from ckptctl.errors import ExitCode
from tests.command_line import run
from tests.goldens import SAMPLES

TESTS = Path(__file__).resolve().parent.parent
LIFE = "e2e/test_json_answers.py::test_every_answer_of_a_life_with_failures"
HERE = "cli/test_exit_statuses.py::test_status_of_files_alone"

REACHED_BY: dict[ExitCode, tuple[str, ...]] = {
    ExitCode.DONE: (HERE, LIFE),
    ExitCode.BUG: ("cli/test_boundary.py::test_a_bug_is_a_traceback_and_1",),
    ExitCode.USAGE: (HERE, "cli/test_boundary.py::test_a_failure_is_one_json_object_on_stderr"),
    ExitCode.NOTHING_THERE: (HERE, "cli/test_restore.py::test_nothing_to_restore_is_3"),
    ExitCode.WARNINGS: (HERE,),
    ExitCode.NOT_CHECKED: (HERE,),
    ExitCode.INCOMPATIBLE: (HERE, "cli/test_restore.py::test_another_run_is_incompatible"),
    ExitCode.INVALID: (HERE, "cli/test_restore.py::test_a_damaged_newest_is_passed_over_and_told"),
    ExitCode.REFUSED: (LIFE, "workflows/test_snapshot_outcomes.py::test_what_is_refused_before_anything_is_closed"),
    ExitCode.BUSY: (LIFE, "workflows/test_snapshot_outcomes.py::test_what_is_refused_before_anything_is_closed"),
    ExitCode.ABORTED: (
        LIFE,
        "workflows/test_snapshot_outcomes.py::test_a_call_that_outlasts_the_deadline_aborts_the_attempt",
    ),
    ExitCode.RELEASE_PENDING: (
        LIFE,
        "workflows/test_snapshot_outcomes.py::test_a_server_that_refuses_to_resume_makes_the_release_pending",
    ),
    ExitCode.ADMISSION_CLOSED: (
        LIFE,
        "workflows/test_snapshot_outcomes.py::test_an_abort_that_cannot_release_everybody_keeps_admission_closed",
    ),
    ExitCode.UNREACHABLE: (LIFE,),
    ExitCode.SERVER_REFUSED: (LIFE,),
    ExitCode.STORAGE: (
        "cli/test_options.py::test_output_that_cannot_be_written",
        "cli/test_boundary.py::test_a_full_disk_behind_stdout_is_a_storage_failure",
    ),
    ExitCode.INTERRUPTED: ("cli/test_boundary.py::test_an_interrupt_is_130",),
    ExitCode.BROKEN_PIPE: ("cli/test_boundary.py::test_a_broken_pipe_is_no_message",),
    ExitCode.TERMINATED: ("e2e/test_kill_at_each_step.py::test_terminated_while_preparing",),
}


def test_every_status_has_a_test():
    """The table of tests has a line for each status of the design's table, and each test is there."""
    assert list(ExitCode) == list(REACHED_BY)
    for names in REACHED_BY.values():
        for name in names:
            path, _, function = name.partition("::")
            defined = {
                node.name
                for node in ast.walk(ast.parse((TESTS / path).read_text(encoding="utf-8")))
                if isinstance(node, ast.FunctionDef)
            }
            assert function in defined, name


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ExitCode.DONE, ("validate", "turn")),
        (ExitCode.DONE, ("restore", "--select", "--config", "turn.yaml")),
        (ExitCode.DONE, ("gc", "leftovers", "--dry-run")),
        (ExitCode.DONE, ("inspect", "turn")),
        (ExitCode.USAGE, ("validate", "--level", "deep", "turn")),
        (ExitCode.USAGE, ("snapshot",)),
        (ExitCode.NOTHING_THERE, ("validate", "not-there")),
        (ExitCode.WARNINGS, ("validate", "--strict", "damaged/stranger")),
        (ExitCode.DONE, ("validate", "--level", "full", "turn")),
        (ExitCode.NOT_CHECKED, ("validate", "--select", "LED003", "damaged/torn-ledger")),
        (ExitCode.INCOMPATIBLE, ("validate", "other-schemas")),
        (ExitCode.INVALID, ("validate", "two-generations")),
        (ExitCode.INVALID, ("restore", "--plan", "--no-fallback", "--config", "two-generations.yaml")),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_status_of_files_alone(status, words):
    """What the frozen samples end with."""
    assert status == run(*words, folder=SAMPLES).status
