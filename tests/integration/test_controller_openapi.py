"""The controller interface as schemathesis finds it: every answer of a running controller is what `schemas/controller-openapi.json` says.

The server is the README's example. Left out is one check: that whatever the document allows is taken. JSON Schema cannot say that `1.0` is
no integer here, that a path stays inside its directory, or that a redispatch mapping comes with outcome `restored`; each of these is a 422.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "tests" / "examples" / "minimal_controller.py"
DOCUMENT = REPOSITORY / "schemas" / "controller-openapi.json"
TOKEN, SECONDS, PATIENCE_S = "token-of-the-run", 40, 60


def ordinary_python() -> str:
    """The Python of the ordinary environment, which has FastAPI and uvicorn; else this one."""
    installed = REPOSITORY / ".venv" / "bin" / "python"
    return str(installed) if installed.exists() else sys.executable


@pytest.fixture
def url(tmp_path):
    """A running controller."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        found = f"http://127.0.0.1:{one.getsockname()[1]}"
    config = tmp_path / "run.yaml"
    config.write_text(
        f"checkpointing: {{checkpoint_dir: {tmp_path}/checkpoints}}\nckptctl: {{controller: {{url: '{found}'}}}}\n"
    )
    environment = {**os.environ, "NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": TOKEN}
    process = subprocess.Popen([ordinary_python(), str(EXAMPLE), str(config)], env=environment)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(found):
            assert process.poll() is None, "the example ended"
            assert time.monotonic() < deadline, "the example does not answer"
            time.sleep(0.1)
        yield found
        assert process.poll() is None, "the example did not survive"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ckpt-control/v1/status"):
            return True
    except OSError:
        return False


def test_every_answer_is_as_documented(url, tmp_path):
    """No 5xx, no undocumented status, body or type; bad requests and missing credentials are refused; 40 seconds of them."""
    schemathesis = Path(sys.executable).with_name("schemathesis")
    if not schemathesis.exists():
        pytest.skip("needs the environment of tests/integration/run.sh")
    command = [
        str(schemathesis), "run", str(DOCUMENT), "--url", url, "--header", f"Authorization: Bearer {TOKEN}",
        "--checks", "all", "--exclude-checks", "positive_data_acceptance", "--max-time", str(SECONDS), "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
