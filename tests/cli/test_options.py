"""Options that every command takes, before and after its name; where the answer goes; what the environment says."""

import json

import pytest

from tests.command_line import run
from tests.goldens import copied_samples
from tests.schemas import problems

TURN = "turn/step_3/rollout_snapshots/snapshot_000002"


@pytest.fixture(scope="module")
def samples():
    """A copy of the samples to be in."""
    with copied_samples() as place:
        yield place


def is_json(text):
    return text.startswith("{")


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "json", "validate", "turn"),
        ("validate", "--format", "json", "turn"),
        ("validate", "turn", "--format", "json"),
        ("validate", "turn", "--format=json"),
        ("--format", "text", "validate", "turn", "--format", "json"),
    ],
)
def test_format_before_and_after_the_command(samples, words):
    """A command's own value wins over the one before its name."""
    assert is_json(run(*words, folder=samples).stdout)


def test_format_from_the_environment(samples):
    """CKPTCTL_FORMAT is a default, for errors too; the command line wins."""
    json_default = {"CKPTCTL_FORMAT": "json"}

    assert is_json(run("validate", "turn", folder=samples, environment=json_default).stdout)
    assert is_json(run("validate", folder=samples, environment=json_default).stderr)
    assert not is_json(run("validate", "turn", "--format", "text", folder=samples, environment=json_default).stdout)


def test_a_format_that_does_not_exist(samples):
    """Wrong on the command line or in the environment: 2, before anything is looked at."""
    assert 2 == run("validate", "turn", "--format", "xml", folder=samples).status
    ran = run("validate", "turn", folder=samples, environment={"CKPTCTL_FORMAT": "xml"})
    assert (2, True) == (ran.status, "`CKPTCTL_FORMAT` names no format: `xml`" in ran.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ("--config", "turn.yaml", "restore", "--select"),
        ("restore", "--select", "--config", "turn.yaml"),
        ("--config", "not-there.yaml", "restore", "--select", "--config", "turn.yaml"),
    ],
)
def test_config_before_and_after_the_command(samples, words):
    """As with every global option."""
    assert f"{samples}/{TURN}\n" == run(*words, folder=samples).stdout


def test_config_from_the_environment(samples):
    """CKPTCTL_CONFIG names the configuration; `--config` wins; a relative path is taken from where the command runs."""
    environment = {"CKPTCTL_CONFIG": "turn.yaml"}
    other = run("restore", "--select", "--config", "schema-3.yaml", folder=samples, environment=environment)

    assert f"{samples}/{TURN}\n" == run("restore", "--select", folder=samples, environment=environment).stdout
    assert "schema-3" in other.stdout
    assert 2 == run("restore", "--select", folder=samples, environment={"CKPTCTL_CONFIG": "gone.yaml"}).status


def test_a_configuration_of_the_environment_is_for_its_own_run(samples):
    """A snapshot of another run is not judged by it; one that the command line names is what the caller wants."""
    environment = {"CKPTCTL_CONFIG": "turn.yaml"}
    foreign = run("validate", "bootstrap-run", folder=samples, environment=environment)
    named = run("validate", "bootstrap-run", "--config", "turn.yaml", folder=samples)

    assert (0, True) == (foreign.status, "`turn.yaml` is not used" in foreign.stderr)
    assert 12 == named.status


@pytest.mark.parametrize("words", [("--output", "{}", "validate", "turn"), ("validate", "turn", "--output", "{}")])
def test_output_goes_to_a_file(samples, tmp_path, words):
    """The answer lies in the file, stdout is empty, the exit status is the same."""
    path = tmp_path / "report.txt"
    ran = run(*(word.format(path) for word in words), folder=samples)

    assert (0, "", "") == (ran.status, ran.stdout, ran.stderr)
    assert run("validate", "turn", folder=samples).stdout == path.read_text()


def test_output_that_cannot_be_written(samples, tmp_path):
    """A storage failure, 32, and nothing half written."""
    ran = run("validate", "turn", "--format", "json", "--output", str(tmp_path / "no" / "report.json"), folder=samples)

    assert (32, "storage") == (ran.status, json.loads(ran.stderr)["code"])
    assert [] == list(tmp_path.iterdir())


def test_quiet_and_verbose(samples):
    """`-q` says nothing beside the answer; `-v` says more; both stand on either side of the command."""
    plain = run("validate", "turn", folder=samples).stdout

    assert plain == run("-q", "validate", "turn", folder=samples).stdout
    assert plain == run("validate", "turn", "--quiet", folder=samples).stdout
    for words in (("-v", "validate", "turn"), ("validate", "-v", "turn"), ("-v", "validate", "turn", "-v")):
        assert "  skipped: " in run(*words, folder=samples).stdout


def test_version():
    """The same with typer as without it."""
    from ckptctl import __version__

    assert f"ckptctl {__version__}\n" == run("--version").stdout
    for words in (("--version", "--format", "json"), ("--format=json", "--version")):
        ran = run(*words)
        assert [] == problems(ran.stdout, "version.v1.json")
        assert (0, __version__) == (ran.status, json.loads(ran.stdout)["version"])
    assert is_json(run("--version", environment={"CKPTCTL_FORMAT": "json"}).stdout)


@pytest.mark.parametrize(
    "words", [("validate", "--level", "deep", "x"), ("--format", "xml", "gc"), ("sim", "up", "--granularity", "x")]
)
def test_a_value_that_does_not_do_is_told_in_our_words(words):
    """What it may be, without the words of the library that noticed it, in text and in JSON."""
    for environment in ({}, {"CKPTCTL_FORMAT": "json"}):
        ran = run(*words, environment=environment)

        assert (2, "") == (ran.status, ran.stdout)
        assert " is not one of '" in ran.stderr
        assert "Value error" not in ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--config", "", "restore", "--select"),
        ("restore", "--select", "--config", ""),
        ("validate", "turn", "--output", ""),
        ("publish", "", "--config", "turn.yaml"),
        ("sim", "status", "--dir", ""),
        ("sim", "up", "--dir", ""),
        ("sim", "down", "--dir", ""),
        ("sim", "compare", "", "turn"),
        ("sim", "demo", "--dir", ""),
    ],
)
def test_an_empty_name_is_a_variable_that_was_not_set(samples, words):
    """It is never the working directory, nor as if the option had not been given: 2, and nothing is written."""
    before = sorted(samples.rglob("*"))
    ran = run(*words, folder=samples, environment={"CKPTCTL_CONFIG": "turn.yaml"})

    assert (2, "") == (ran.status, ran.stdout)
    assert "empty" in ran.stderr
    assert before == sorted(samples.rglob("*"))


def test_a_dash_is_standard_output(samples):
    """As elsewhere; and it takes an earlier file back."""
    for words in (("validate", "turn", "--output", "-"), ("--output", "report", "validate", "turn", "--output", "-")):
        ran = run(*words, folder=samples)
        assert "verdict: " in ran.stdout
        assert not (samples / "-").exists()
        assert not (samples / "report").exists()


def test_a_configuration_that_is_a_link(samples):
    """It is followed, as a mounted one often is one; what is no file is a wrong configuration."""
    (samples / "link.yaml").symlink_to("turn.yaml")
    direct = run("restore", "--select", "--config", "turn.yaml", folder=samples)
    linked = run("restore", "--select", "--config", "link.yaml", folder=samples)
    folder = run("restore", "--select", "--config", ".", folder=samples)

    assert (direct.status, direct.stdout) == (linked.status, linked.stdout)
    assert (2, True) == (folder.status, "it is a directory, not a regular file" in folder.stderr)
