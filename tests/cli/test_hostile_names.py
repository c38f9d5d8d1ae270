"""Names and texts from files are data: no control character, no markup, no line of their own in any answer."""

import json

import pytest

from tests.cli.hostile import NAMES, RULER, hostile_manifest, hostile_run
from tests.command_line import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with both hostile checkpoint directories."""
    root = tmp_path_factory.mktemp("hostile")
    return root, hostile_run(root), hostile_manifest(root)


def commands(place):
    """Command lines that look at the hostile directories without any server."""
    root, run_dir, plain = place
    config = str(root / "run.yaml")
    snapshots = [next(one.glob("*/rollout_snapshots/snapshot_*")) for one in (plain, run_dir)]
    yield from (
        ("validate", str(run_dir)),
        ("validate", "-v", str(plain)),
        ("validate", "--strict", str(run_dir), str(plain)),
        ("inspect", str(run_dir)),
        ("inspect", str(next(run_dir.glob("step_*/rollout_snapshots/snapshot_*")))),
        ("inspect", str(plain), "--level", "standard"),
        ("inspect", str(run_dir), "--rollout", "g7_g0"),
        ("inspect", str(run_dir), "--rollout", "\x1b[31m::error::"),
        ("inspect", "--diff", *map(str, snapshots)),
        ("gc", "--dry-run", str(run_dir)),
        ("restore", "--plan", "--config", config),
        ("validate", f"{run_dir}/absent"),
        ("validate", "--select", "\x1b[31m", str(run_dir)),
    )


def test_text_has_no_character_that_acts(place):
    """Escapes, direction overrides and bells show as escapes."""
    for words in commands(place):
        ran = run(*words)
        assert [] == sorted(set(RULER) & set((ran.stdout + ran.stderr).replace("\n", ""))), words
        assert "Traceback" not in ran.stderr


def test_no_line_is_a_command_of_a_ci_system(place):
    """Runners read logs for commands: `::` at the beginning of a line, `##[` anywhere. Only the format that is made of them has any."""
    lines = [(*words, "--format", "text") for words in commands(place)]
    lines += [("validate", str(place[1]), "--format", name) for name in ("json", "junit", "sarif")]
    for words in lines:
        ran = run(*words)
        said = (ran.stdout + ran.stderr).splitlines()

        assert [] == [line for line in said if line.strip().startswith("::") or "##[" in line], words


def test_every_stranger_is_named_once(place):
    """Each file that does not belong is a finding, whatever its name."""
    _, run_dir, _ = place
    report = json.loads(run("validate", str(run_dir), "--format", "json").stdout)
    findings = [item for target in report["targets"] for item in target["findings"] if item["rule"] == "MAN009"]

    assert len(NAMES) == sum(item["count"] for item in findings)
    assert [] == [item for item in findings if set(RULER) & set(item["artifact"] + item["message"])]


def test_json_is_ascii_and_whole(place):
    """One object, which any locale and any log can carry."""
    for words in commands(place):
        ran = run(*words, "--format", "json")
        text = ran.stdout or ran.stderr
        assert text.isascii()
        assert json.loads(text)["schema_version"] == 1, words
