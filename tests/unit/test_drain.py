"""The drain of the benchmark on very little: its counts are exact, so they can be asserted."""

import json
import subprocess
import sys

import pytest


@pytest.mark.long
def test_waiting_is_cheap():
    """However long policy calls take, as many requests; receipts go in one request to each agent. Beside it, the two that do not."""
    program = [sys.executable, "-m", "tests.bench.drain", "2", "16"]
    found = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    requests = {(item["coordinator"], item["length_s"]): item["requests"] for item in found["drains"]}
    ours, rival = found["outboxes"]

    assert 1 == len({requests["ckptctl", length_s] for length_s in (1.0, 4.0, 16.0, 64.0)})
    assert 100 * requests["ckptctl", 64.0] < requests["polling", 64.0]
    assert (16, 2, 16, 16) == (ours["receipts"], ours["acknowledge"], rival["receipts"], rival["acknowledge"])
