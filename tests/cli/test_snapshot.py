"""`ckptctl snapshot` on the command line: what it refuses before it looks at anything."""

import signal
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from ckptctl.cli.app import app
from tests.command_line import REPOSITORY, clean_environment

INTERVALS = {
    "120": "takes a duration with a unit",
    "2 weeks": "takes a duration with a unit",
    "0s": "needs an interval above zero",
}


@pytest.mark.parametrize("interval", INTERVALS)
def test_an_interval_is_a_duration_above_zero(interval, tmp_path):
    """`--every` refuses what is no interval, as a usage error."""
    result = CliRunner().invoke(app, ["snapshot", "--every", interval, "--config", str(tmp_path / "none.yaml")])

    assert 2 == result.exit_code
    assert INTERVALS[interval] in result.stderr


def test_the_configured_interval_must_be_there(tmp_path):
    """`--every config` names the key that is missing."""
    config = {
        "checkpointing": {"checkpoint_dir": str(tmp_path)},
        "ckptctl": {"controller": {"url": "http://127.0.0.1:1"}, "participants": {}},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    result = CliRunner().invoke(
        app,
        ["snapshot", "--every", "config", "--config", str(tmp_path / "run.yaml")],
        env={"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "t"},
    )

    assert 2 == result.exit_code
    assert "rollout_checkpointing.snapshot_attempt_interval_s" in result.stderr


STRUCK = """
import os, sys
class Striker:
    def find_spec(self, name, path=None, target=None):
        if name == "ckptctl.domain.transaction":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Striker())
from ckptctl.__main__ import main
sys.argv = ["ckptctl", "snapshot", "--every", "1d", "--config", "none.yaml"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
def test_a_wish_before_the_loop_is_there_kills_nothing(number, tmp_path):
    """A round begins anyway, with the configuration as it is: what was asked for happens."""
    done = subprocess.run(
        [sys.executable, "-c", STRUCK.format(number=int(number))],
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 2 == done.returncode
    assert "`none.yaml` does not exist" in done.stderr.replace(f"{tmp_path}/", "")


def test_options_of_the_loop_need_the_loop(tmp_path):
    """Alone they would say nothing."""
    result = CliRunner().invoke(app, ["snapshot", "--max-failures", "2", "--config", str(tmp_path / "none.yaml")])

    assert 2 == result.exit_code
    assert "belong to `--every`" in result.stderr
