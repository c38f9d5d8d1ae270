"""The README's example of a controller: it starts, ckptctl takes a snapshot of it together with embedded participants, and that is valid."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.e2e.test_participants import READY_PAUSE_S, READY_TRIES, free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.long]

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "minimal_controller.py"


def ckptctl(*words, expect=0):
    done = subprocess.run(
        [sys.executable, "-m", "ckptctl", *map(str, words)], capture_output=True, text=True, timeout=240, check=False
    )
    assert expect == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def participants(tmp_path):
    """Embedded participants; their own controller stays out of it. Yields the cluster's folder."""
    folder = tmp_path / "cluster"
    ckptctl("sim", "up", "--dir", folder, "--prompts", "2", "--turns", "1")
    yield folder
    ckptctl("sim", "down", "--dir", folder, "--kill")


def configured(cluster, folder):
    """The cluster's configuration with the example as its controller, in a checkpoint directory of its own."""
    config = yaml.safe_load((cluster / "ckptctl.yaml").read_text())
    config["checkpointing"]["checkpoint_dir"] = str(folder / "checkpoints")
    config["ckptctl"]["controller"]["url"] = f"http://127.0.0.1:{free_ports(1)[0]}"
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(config))
    return path, config["ckptctl"]["controller"]["url"]


def wait_ready(url, process):
    import time

    for _ in range(READY_TRIES):
        assert process.poll() is None, "the example ended"
        try:
            with urllib.request.urlopen(f"{url}/ckpt-control/v1/status") as reply:
                return json.loads(reply.read())
        except OSError:
            time.sleep(READY_PAUSE_S)
    raise AssertionError("the example does not answer")


def test_snapshots_of_the_example(participants, tmp_path):
    """Two snapshots while its loop goes on; both are valid down to the last byte, and it is admitting again."""
    config, url = configured(participants, tmp_path)
    token = (participants / "control.token").read_text().strip()
    environment = {**os.environ, "NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": token}
    process = subprocess.Popen([sys.executable, str(EXAMPLE), str(config)], env=environment)
    try:
        assert "ckptctl-controller" == wait_ready(url, process)["interface"]
        taken = [json.loads(ckptctl("snapshot", "--force", "--config", config, "--format", "json")) for _ in range(2)]
        report = json.loads(ckptctl("validate", tmp_path / "checkpoints", "--level", "full", "--format", "json"))
        live = json.loads(ckptctl("inspect", "--live", "--config", config, "--format", "json"))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)

    assert ["published", "published"] == [item["outcome"] for item in taken]
    assert "valid" == report["verdict"]
    assert "open" == live["controller"]["admission"]
