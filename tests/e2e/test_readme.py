"""What the README shows is what happens: its tour, command by command, and its configuration."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def tour_commands() -> list[str]:
    """Every command of the five-minute tour, in order."""
    tour = README.split("## Five-minute tour", 1)[1].split("\n## ", 1)[0]
    return [
        line.removeprefix("$ ")
        for block in re.findall(r"```console\n(.*?)```", tour, re.DOTALL)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def configuration() -> dict:
    """The README's configuration."""
    section = README.split("## Configuration", 1)[1]
    return yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.DOTALL).group(1))


def shell(command: str, folder: Path) -> subprocess.CompletedProcess:
    """Run one line as a person would, with ckptctl on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    """A working directory; whatever cluster is left in it ends with the test."""
    yield tmp_path
    shell("ckptctl sim down --dir runs/tour --kill", tmp_path)


def test_the_tour_runs_as_written(folder):
    """Each command ends with 0, and the restored run finishes every group."""
    commands = tour_commands()
    assert 10 <= len(commands)
    for command in commands:
        done = shell(command, folder)

        assert 0 == done.returncode, f"$ {command}\n{done.stdout}{done.stderr}"
    assert (folder / "runs/tour/checkpoints/bootstrap").is_dir()


def test_the_configuration_takes_a_snapshot(folder):
    """The README's file, with the places of a real cluster filled in, is accepted and a snapshot is published with it."""
    up = shell("ckptctl sim up --dir runs/tour --prompts 2 --turns 3", folder)
    assert 0 == up.returncode, up.stdout + up.stderr
    real = yaml.safe_load((folder / "runs/tour/ckptctl.yaml").read_text())
    wanted = configuration()
    assert wanted["ckptctl"].keys() - {"token_env"} <= real["ckptctl"].keys()
    assert wanted["ckptctl"]["participants"].keys() == real["ckptctl"]["participants"].keys()
    wanted["checkpointing"]["checkpoint_dir"] = real["checkpointing"]["checkpoint_dir"]
    for section in ("controller", "participants", "token_file"):
        wanted["ckptctl"][section] = real["ckptctl"][section]
    (folder / "mine.yaml").write_text(yaml.safe_dump(wanted))

    taken = shell("ckptctl snapshot --config mine.yaml", folder)

    assert 0 == taken.returncode, taken.stdout + taken.stderr
    assert "published" in taken.stdout
