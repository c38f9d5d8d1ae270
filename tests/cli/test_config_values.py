"""Values of the configuration that no system call takes: config-invalid, whichever command reads them."""

from __future__ import annotations

import json

import pytest

from tests.command_line import run
from tests.runs import a_run

URL = {"url": "http://127.0.0.1:9"}
TEXT = "/tmp/a\0b"
COMMANDS = (
    ("snapshot",),
    ("publish",),
    ("restore", "--plan"),
    ("gc", "--dry-run"),
    ("inspect",),
    ("inspect", "--live"),
    ("slurm", "claim"),
)


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("checkpointing.checkpoint_dir", {"controller": URL}),
        ("ckptctl.token_file", {"controller": URL, "token_file": ...}),
        ("ckptctl.token_env", {"controller": URL, "token_env": ...}),
        ("ckptctl.controller.url", {"controller": {"url": "http://a\0b:9"}}),
    ],
)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_nul(words, key, own, tmp_path):
    """Told with its key."""
    root = a_run(tmp_path / "run", step_3=1)
    config = tmp_path / "run.yaml"
    place = TEXT if key.startswith("checkpointing") else str(root)
    own = {name: TEXT if value is ... else value for name, value in own.items()}
    config.write_text(json.dumps({"checkpointing": {"enabled": True, "checkpoint_dir": place}, "ckptctl": own}))
    ended = run(*words, "--config", str(config), "--format", "json")

    assert 2 == ended.status, ended
    assert "config-invalid" == json.loads(ended.stderr)["code"]
    assert f"`{key}` must " in json.loads(ended.stderr)["message"]
