"""Signals while the process starts and while a command works: the statuses of the table, no traceback, nothing left behind."""

import signal
import subprocess
import sys

import pytest

from tests.command_line import REPOSITORY, clean_environment
from tests.goldens import SAMPLES

STRUCK = """
import os, sys
class Striker:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Striker())
from ckptctl.__main__ import main
sys.argv = ["ckptctl", "validate", "turn"]
main()
"""
"""A process that is sent a signal at the very moment when it imports a module."""


def struck(number, module, **options):
    return subprocess.run(
        [sys.executable, "-c", STRUCK.format(module=module, number=int(number))],
        cwd=SAMPLES,
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("module", ["ckptctl.cli.app", "typer", "ckptctl.workflows.validate", "pydantic", "msgspec"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 143)])
def test_a_signal_between_two_imports(number, status, module):
    """Before there is a command, and when one brings in what it runs with."""
    done = struck(number, module)

    assert (status, "", "") == (done.returncode, done.stdout, done.stderr)


def test_an_interrupt_before_signals_are_heard():
    """The first import of all."""
    done = struck(signal.SIGINT, "ckptctl.cli.stopping")

    assert (130, "", "") == (done.returncode, done.stdout, done.stderr)


def test_a_hang_up_that_the_caller_ignores_stays_ignored():
    """`nohup ckptctl ...` goes on to its end."""
    done = struck(signal.SIGHUP, "pydantic", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))

    assert (0, "") == (done.returncode, done.stderr)
    assert "verdict: valid" in done.stdout


WORKING = """
import os, sys
import ckptctl.workflows.gc as gc
from ckptctl.__main__ import main
def struck(*facts, **more):
    assert os.path.lexists("run/.ckptctl/lock")
    os.kill(os.getpid(), {number})
gc.plan_gc = struck
sys.argv = ["ckptctl", "gc", "run"]
main()
"""
"""A process that is sent a signal while it holds the lock."""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 143), (signal.SIGTERM, 143)])
def test_a_signal_while_a_command_works_lets_go_of_the_lock(tmp_path, number, status):
    """It ends in order: whoever comes next need not wait for a lease to end."""
    (tmp_path / "run" / "bootstrap").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", WORKING.format(number=int(number))],
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (status, "", "") == (done.returncode, done.stdout, done.stderr)
    assert not (tmp_path / "run" / ".ckptctl" / "lock").exists()
