"""`ckptctl inspect` as typed: each kind of answer, and how it ends."""

import json

import pytest

from ckptctl.formats.config_file import encode_yaml
from tests.command_line import run
from tests.runs import a_run, damage


@pytest.fixture
def root(tmp_path):
    return a_run(tmp_path / "run", step_3=2)


SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "checkpoint_dir"),
        ("step_3", "anchor"),
        ("step_3/rollout_snapshots", "anchor"),
        (SNAPSHOT, "snapshot"),
        (f"{SNAPSHOT}/data_plane", "data_plane"),
    ],
)
def test_each_kind(root, path, kind) -> None:
    """In JSON one object that says what it is; in text the same verdict."""
    as_json = run("inspect", f"{root}/{path}", "--format", "json")
    text = run("inspect", path or ".", folder=root)

    assert (0, 0) == (as_json.status, text.status)
    assert (kind, "valid") == (json.loads(as_json.stdout)["kind"], json.loads(as_json.stdout)["verdict"])
    verdict = "looks whole (" if kind in ("checkpoint_dir", "anchor") else "valid at level standard ("
    assert f": {verdict}" in text.stdout.splitlines()[0]
    assert "" == as_json.stderr + text.stderr


def test_the_worst_verdict_is_the_status(root) -> None:
    """Invalid is 13 where it was looked for; another schema 12; what is not there 3."""
    damage(root, "step_3", 1)
    manifest = root / SNAPSHOT / "manifest.json"
    statuses = [run("inspect", str(root), *words).status for words in ((), ("--level", "standard"))]
    alone = run("inspect", f"{root}/step_3/rollout_snapshots/snapshot_000001")
    manifest.write_text(
        json.dumps({**json.loads(manifest.read_text()), "schema_version": 9}, indent=2, sort_keys=True) + "\n"
    )
    newer = run("inspect", f"{root}/{SNAPSHOT}")

    assert [0, 13] == statuses
    assert 13 == alone.status
    assert 12 == newer.status
    assert 3 == run("inspect", f"{root}/step_4").status


def test_the_configured_directory(root, tmp_path) -> None:
    """Without PATH the configuration says where; without either it is a usage error."""
    config = tmp_path / "run.yaml"
    config.write_bytes(encode_yaml({"checkpointing": {"checkpoint_dir": str(root)}}))

    assert str(root) in run("inspect", "--config", str(config)).stdout
    assert 0 == run("inspect", environment={"CKPTCTL_CONFIG": str(config)}).status
    assert 2 == run("inspect").status


def test_output_goes_to_a_file(root, tmp_path) -> None:
    """And nothing to stdout."""
    ran = run("inspect", str(root), "--format", "json", "--output", str(tmp_path / "answer.json"))

    assert (0, "") == (ran.status, ran.stdout)
    assert "checkpoint_dir" == json.loads((tmp_path / "answer.json").read_text())["kind"]


def a_live_config(tmp_path, root, **own):
    config = tmp_path / "live.yaml"
    section = {"controller": {"url": "http://127.0.0.1:9"}, "participants": {"agent": {"url": "http://127.0.0.1:9"}}}
    config.write_bytes(
        encode_yaml(
            {
                "checkpointing": {"checkpoint_dir": str(root), "enabled": True, "save_data_plane": True},
                "ckptctl": {**section, "control_timeout_s": 5, **own},
            }
        )
    )
    return str(config)


def test_live_servers_that_are_not_there(root, tmp_path) -> None:
    """Unreachable is 30; all that the configuration lacks stands beside it, and the token nowhere."""
    words = ("inspect", "--live", "--config", a_live_config(tmp_path, root))
    token = {"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "a-very-secret-token"}
    as_json, text = run(*words, "--format", "json", environment=token), run(*words, environment=token)
    answer = json.loads(as_json.stdout)

    assert (30, 30) == (as_json.status, text.status)
    assert {"agent", "controller", "token_capture.enabled"} <= {item["about"] for item in answer["problems"]}
    assert answer["exit_code"] == 30
    assert "live: not ready for a snapshot" in text.stdout
    assert "secret" not in as_json.stdout + as_json.stderr + text.stdout + text.stderr


def test_live_usage(root, tmp_path) -> None:
    """It needs a configuration, our section in it and a token; it takes no PATH and no level."""
    bare = tmp_path / "bare.yaml"
    bare.write_bytes(encode_yaml({"checkpointing": {"checkpoint_dir": str(root)}}))

    assert 2 == run("inspect", "--live").status
    assert 2 == run("inspect", "--live", "--config", str(bare)).status
    assert 2 == run("inspect", "--live", "--config", a_live_config(tmp_path, root)).status
    assert 2 == run("inspect", "--live", str(root)).status
    assert 2 == run("inspect", "--live", "--level", "full").status
