"""`inspect --nagios`: one line, figures behind the bar, and the plugin's own exit status, whatever happens."""

import re

import pytest
import typer
from typer.testing import CliRunner

from ckptctl.cli.boundary import BoundaryGroup
from tests.cli.hostile import hostile_run
from tests.command_line import run
from tests.runs import a_run, damage

LINE = re.compile(
    r"CKPTCTL (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n\x1b]+"
    r"( \| [a-z_]+=[0-9.]+(s|B)?;[0-9]*;[0-9]*;[0-9]*( [a-z_]+=[0-9.]+(s|B)?;[0-9]*;[0-9]*;[0-9]*)*)?\n"
)
"""The form of the plugin guidelines: text, one bar, figures of label=value[unit];warn;critical;least."""


@pytest.fixture
def root(tmp_path):
    return a_run(tmp_path / "run", step_3=2)


def ask(*words, status: int):
    done = run("inspect", *map(str, words), "--nagios")

    assert LINE.fullmatch(done.stdout), done.stdout
    assert status == done.status
    assert ("OK", "WARNING", "CRITICAL", "UNKNOWN")[status] == done.stdout.split()[1]
    return done.stdout


def test_all_is_well(root):
    """The newest is valid: how many there are, how old it is, and how deep it was looked at."""
    line = ask(root, status=0)

    assert "2 snapshots; newest valid: step_3/rollout_snapshots/snapshot_000002" in line
    assert " snapshots=2;;;0 valid=2;;;0" in line


@pytest.mark.parametrize(("limits", "status"), [(("0s", "1d"), 1), (("0s", "0s"), 2), (("1h", "1d"), 0)])
def test_limits_of_age(limits, status, root):
    """From its limit on an age counts; the limits stand beside the figure."""
    line = ask(root, "--warn-age", limits[0], "--critical-age", limits[1], status=status)

    assert re.search(r" age=[0-9]+s;[0-9]+;[0-9]+;0", line)


def test_a_damaged_newest_snapshot_is_a_warning_when_it_is_seen(root):
    """Level quick does not see into files; the older one is what a restore would take."""
    damage(root, "step_3", 2)
    ask(root, status=0)
    line = ask(root, "--level", "standard", status=1)

    assert "the newest snapshot, step_3/rollout_snapshots/snapshot_000002, is invalid" in line


def test_nothing_valid_is_critical(root):
    """And so is nothing at all."""
    damage(root, "step_3", 1)
    damage(root, "step_3", 2)
    ask(root, "--level", "standard", status=2)
    (root.parent / "new" / "bootstrap").mkdir(parents=True)
    assert "there is no snapshot" in ask(root.parent / "new", status=2)


def test_what_cannot_be_told_is_unknown(root, tmp_path):
    """No such directory, a journal that cannot be read, options that do not go together, a mistyped one."""
    ask(tmp_path / "gone", status=3)
    ask(root, "--timings", status=3)
    ask(root, "--warn-age", "2h", "--critical-age", "1h", status=3)
    ask(root, "--warn-age", "2", status=3)
    ask(root, "--wurn-age", "2h", status=3)
    ask(root, "--format", "json", status=3)
    (root / ".ckptctl/journal").mkdir(parents=True)
    (root / ".ckptctl/journal/000001-snapshot.jsonl").write_text("rubbish\n")
    ask(root, status=3)


def test_limits_belong_to_it(root):
    """Without the plugin's line they would be read by nobody."""
    done = run("inspect", str(root), "--warn-age", "1h")

    assert 2 == done.status
    assert "belong to `--nagios`" in done.stderr


def test_hostile_names_stay_in_the_line(tmp_path):
    """A bar in a name would begin the figures, a line feed a second line."""
    path = hostile_run(tmp_path)
    (tmp_path / "a|b").mkdir()
    path.rename(tmp_path / "a|b" / "run")
    ask(tmp_path / "a|b" / "run", status=0)
    ask(tmp_path / "a|b\nc", status=3)


def test_a_bug_of_ours_is_unknown():
    """A plugin that ended with 1 by a traceback would be a warning."""
    app = typer.Typer(cls=BoundaryGroup)

    @app.callback()
    def main() -> None:
        """Nothing."""

    @app.command()
    def inspect(nagios: bool = False) -> None:
        raise ZeroDivisionError("nobody thought of it")

    done = CliRunner().invoke(app, ["inspect", "--nagios"])

    assert 3 == done.exit_code
    assert LINE.fullmatch(done.stdout), done.stdout
    assert "ZeroDivisionError: nobody thought of it" in done.stderr
    assert isinstance(CliRunner().invoke(app, ["inspect"]).exception, ZeroDivisionError)
