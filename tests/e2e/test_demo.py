"""The product's promise on real processes: snapshot, SIGKILL, restore, and the result of an uninterrupted run."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ckptctl.cli.app import app
from ckptctl.sim.cluster_options import read_record
from ckptctl.sim.processes import OWNER_ENV, is_alive
from ckptctl.sim.run_files import read_log

pytestmark = pytest.mark.e2e


def test_a_killed_and_restored_run_ends_like_an_uninterrupted_one(tmp_path):
    """`sim demo` proves it: equal results, each mutation once, N+1 once, N never, no finished group again."""
    result = CliRunner().invoke(
        app, ["sim", "demo", "--dir", str(tmp_path), "--prompts", "4", "--turns", "4", "--format", "json"]
    )
    assert 0 == result.exit_code, result.output
    answer = json.loads(result.stdout)
    comparison = answer["comparison"]

    assert comparison["equal"]
    assert (8, 4, 1) == (comparison["rollouts"], comparison["groups"], comparison["restores"])
    account = comparison["account"]
    assert account["continued"] + account["restarted"] > 0
    assert comparison["rollouts"] == sum(account.values())
    assert 5 == len(answer["proved"])
    (restore,) = read_log(str(tmp_path / "interrupted/restores.jsonl"))
    assert restore["snapshot"].endswith(answer["snapshot"])
    for name in ("uninterrupted", "interrupted"):
        record = read_record(str(tmp_path / name))
        assert not [process.name for process in record.processes if is_alive(process.identity)]
        assert record.token() not in "".join(path.read_text() for path in Path(record.run_dir, "logs").iterdir())
    assert OWNER_ENV not in os.environ
