"""Formats of reports as a user asks for them: before and after the command, from the environment, and where they are not to be had."""

import json
from xml.etree import ElementTree as ET

import pytest

from tests.cli.hostile import NAMES, hostile_manifest, hostile_run
from tests.command_line import run
from tests.goldens import SAMPLES
from tests.unit.render.junit_schema import ANT, JENKINS, breaches
from tests.unit.render.test_report_formats import sarif_breaches


def test_every_format_ends_with_the_same_status():
    """How it is written changes nothing of the verdict."""
    for format_ in ("text", "json", "junit", "sarif", "github"):
        assert 13 == run("validate", "two-generations", "--format", format_, folder=SAMPLES).status
        assert 0 == run("validate", "bootstrap-run", "--format", format_, folder=SAMPLES).status


@pytest.mark.parametrize("words", [("--format", "junit", "validate", "turn"), ("validate", "turn", "--format=junit")])
def test_the_format_may_stand_before_the_command(words):
    """As every global option."""
    assert run(*words, folder=SAMPLES).stdout.startswith("<?xml")


def test_the_format_may_come_from_the_environment():
    """For jobs that set it once."""
    ran = run("validate", "turn", folder=SAMPLES, environment={"CKPTCTL_FORMAT": "sarif"})

    assert "2.1.0" == json.loads(ran.stdout)["version"]


@pytest.mark.parametrize("words", [("inspect", "turn"), ("gc", "turn", "--dry-run"), ("validate", "--list-rules")])
@pytest.mark.parametrize("environment", [{}, {"CKPTCTL_FORMAT": "sarif"}])
def test_a_format_that_a_command_does_not_have_is_refused(words, environment):
    """Before anything is done, naming those that it has; on the command line and in the environment."""
    before = ("--format", "junit") if not environment else ()
    ran = run(*before, *words, folder=SAMPLES, environment=environment)

    assert (2, "") == (ran.status, ran.stdout)
    assert "formats: text, json" in ran.stderr
    assert 2 == run(words[0], "--format", "yaml", *words[1:], folder=SAMPLES).status


def test_strict_makes_failures_of_warnings():
    """In JUnit as in the exit status."""
    counts = []
    for words in ((), ("--strict",)):
        ran = run("validate", "damaged/stranger", "--format", "junit", *words, folder=SAMPLES)
        suites = ET.fromstring(ran.stdout)
        counts.append((ran.status, sum(int(suite.get("failures")) for suite in suites)))

    assert [(0, 0), (10, 1)] == counts


def test_hostile_names_stay_in_their_place(tmp_path):
    """Files on disk whose names want to be XML, commands or addresses; every format is whole and names each of them."""
    paths = (str(hostile_run(tmp_path)), str(hostile_manifest(tmp_path)))
    said = {format_: run("validate", *paths, "--format", format_).stdout for format_ in ("junit", "sarif", "github")}

    assert [] == breaches(said["junit"], ANT) + breaches(said["junit"], JENKINS)
    document = json.loads(said["sarif"])
    assert [] == sarif_breaches(document)
    found = [result for result in document["runs"][0]["results"] if result["ruleId"] == "MAN009"]
    assert len(NAMES) == sum(result.get("occurrenceCount", 1) for result in found)
    lines = said["github"].split("\n")
    assert "" == lines.pop()
    assert [] == [line for line in lines if not line.startswith(("::error ", "::warning ", "::notice "))]


def test_answers_go_to_the_file_that_is_named(tmp_path):
    """CI uploads a file; stdout is empty then."""
    out = tmp_path / "report.sarif"
    ran = run("validate", "turn", "--format", "sarif", "--output", str(out), folder=SAMPLES)

    assert ("", 0) == (ran.stdout, ran.status)
    assert [] == sarif_breaches(json.loads(out.read_text()))
