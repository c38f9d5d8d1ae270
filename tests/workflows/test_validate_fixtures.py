"""`validate` over the shared real snapshots: every good run, every damaged one, data planes alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.errors import ExitCode
from ckptctl.workflows.load_data_plane import TENSORS
from ckptctl.workflows.load_full import NO_DIGEST
from ckptctl.workflows.validate import ValidateRequest, exit_code, validate
from tests.conftest import REPOSITORY, shared_fixtures

FIXTURES = Path(os.environ.get("CKPTCTL_FIXTURES") or REPOSITORY.parent / "shared" / "fixtures")
CASES = sorted(path.name for path in (FIXTURES / "cases").iterdir()) if (FIXTURES / "cases").is_dir() else ["(absent)"]
MEGABYTES = 500


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """All cases with what a repository cannot hold added."""
    fixtures = shared_fixtures()
    folder = tmp_path_factory.mktemp("damaged") / "cases"
    subprocess.run(
        [sys.executable, str(fixtures / "prepare_case.py"), "--all", str(fixtures / "cases"), str(folder)], check=True
    )
    return folder


def report_on(*paths, **request):
    return validate(LocalStore(), ValidateRequest(paths=tuple(str(path) for path in paths), **request))


@pytest.mark.parametrize("run", ["turn", "norollouts"])
@pytest.mark.parametrize("level", ["quick", "standard", "full"])
def test_good_runs_are_valid(fixtures, run, level):
    """Every snapshot and anchor of a real run is valid; nothing is left but tensor bytes: at level full, those without a digest."""
    report = report_on(fixtures / run, level=level)

    assert [target.verdict for target in report.targets] == ["valid"] * len(report.targets)
    assert exit_code(report) == ExitCode.DONE
    assert {outcome.outcome for target in report.targets for outcome in target.outcomes} <= {
        "passed",
        "skipped",
        "failed",
    }
    if level != "quick":
        assert {item.reason for target in report.targets for item in target.coverage.unchecked} == {
            "tensor bytes are not read at this level" if level == "standard" else NO_DIGEST
        }


def test_a_secret_in_clear_is_a_warning_without_its_value(fixtures):
    """The first snapshot of `turn` holds a token: its key is told, the token is not, and `--strict` notices."""
    path = fixtures / "turn" / "step_1" / "rollout_snapshots" / "snapshot_000001"
    report = report_on(path)

    assert [(finding.rule, finding.location) for finding in report.targets[0].findings] == [
        ("DUR003", "token_capture.control_auth_token")
    ]
    assert "78b47975745aaa83" not in report.model_dump_json()
    assert (exit_code(report), exit_code(report, strict=True)) == (ExitCode.DONE, ExitCode.WARNINGS)


def test_other_generations_are_incompatible_not_damaged(fixtures):
    """Schemas 1 and 7 are named with what to do; schema 3 is read, its older ledger said to be unchecked."""
    report = report_on(fixtures / "legacy")
    by_schema = {target.schema_found: target for target in report.targets if target.kind == "snapshot"}

    assert exit_code(report) == ExitCode.INCOMPATIBLE
    assert {number: target.verdict for number, target in by_schema.items()} == {
        1: "incompatible",
        7: "incompatible",
        3: "incomplete",
    }
    for number in (1, 7):
        (finding,) = by_schema[number].findings
        assert (finding.rule, finding.artifact) == ("MAN004", "manifest.json")
        assert f"schema {number}" in finding.message
        assert "NeMo-RL build that wrote it" in finding.message + finding.hint
    assert {finding.artifact for finding in by_schema[3].findings} == {"rollout_recovery.pt"}
    assert "invalid" not in {target.verdict for target in report.targets}


def test_saved_discovery_is_compared(fixtures):
    """With the topology of the run the topology rules run, and pass; with another they do not."""
    capabilities = fixtures / "turn.capabilities.json"
    snapshot = fixtures / "turn" / "step_1" / "rollout_snapshots" / "snapshot_000002"
    outcomes = {
        outcome.rule: outcome.outcome
        for outcome in report_on(snapshot, capabilities_path=str(capabilities)).targets[0].outcomes
    }

    assert (outcomes["FPR004"], outcomes["PAR001"]) == ("passed", "passed")


def test_a_changed_worker_count_is_incompatible(fixtures, tmp_path):
    """The fingerprint tells that the topology changed, and the finding says what to compare."""
    servers = json.loads((fixtures / "turn.capabilities.json").read_text())
    servers[0]["capabilities"]["multi_process"]["num_workers"] = 3
    (tmp_path / "now.json").write_text(json.dumps(servers))
    snapshot = fixtures / "turn" / "step_1" / "rollout_snapshots" / "snapshot_000002"
    report = report_on(snapshot, capabilities_path=str(tmp_path / "now.json"))

    assert report.verdict == "incompatible"
    assert [finding.rule for finding in report.targets[0].findings] == ["FPR004"]
    assert "worker counts" in report.targets[0].findings[0].message


@pytest.mark.parametrize("level", ["standard", "full"])
@pytest.mark.parametrize(
    ("name", "verdict"),
    [("small", "valid"), ("small1", "valid"), ("v019/small", "valid"), ("numpy", "valid"), ("dangling", "invalid")],
)
def test_a_data_plane_alone(fixtures, name, verdict, level):
    """Every value that the controller calls produced is a reference; no binding is asked for."""
    report = report_on(fixtures / "tq" / name / "step_1" / "data_plane", level=level)

    assert (report.verdict, report.targets[0].kind) == (verdict, "data_plane")
    assert len(report.targets[0].findings) == (6 if verdict == "invalid" else 0)


@pytest.mark.parametrize("run", ["turn/step_1", "norollouts/step_2"])
def test_the_data_plane_of_a_snapshot_alone(fixtures, run):
    """Its staged rows name and digest themselves, so they are proved without the snapshot around them."""
    for path in sorted((fixtures / run / "rollout_snapshots").iterdir()):
        report = report_on(path / "data_plane", level="full")

        assert (report.verdict, report.targets[0].findings) == ("valid", ())
        assert {"passed"} == {outcome.outcome for outcome in report.targets[0].outcomes}


@pytest.mark.parametrize("name", CASES)
def test_each_damage_is_found(cases, name):
    """At level full the verdict is one that the case allows, a finding blames the file, and the text names what is wrong."""
    case = json.loads((cases / name / "case.json").read_text())
    report = report_on(cases / name / case["snapshot"], level="full")
    target = report.targets[0]
    texts = json.dumps([finding.model_dump() for finding in target.findings], ensure_ascii=False)

    allowed = {case["verdict"].removesuffix("-with-warning"), *case.get("also_accepted", ())}
    assert report.verdict in allowed
    if case["verdict"] == "valid":
        assert target.findings == ()
        return
    assert target.findings
    assert case["expect_word"] in texts
    assert any(blames(finding.artifact, case["artifact"]) for finding in target.findings)
    assert "must_not_print" not in case or case["must_not_print"] not in report.model_dump_json() + texts


def blames(artifact, expected):
    """Whether a finding is about the file, or about one in the folder, that is to blame."""
    return artifact == expected or artifact.startswith(f"{expected}/")


@pytest.mark.parametrize("name", CASES)
def test_level_standard_finds_what_needs_no_tensor_bytes(cases, name):
    """The same verdict, without the bytes; what needs them is not called damaged, and not called read."""
    case = json.loads((cases / name / "case.json").read_text())
    report = report_on(cases / name / case["snapshot"])

    allowed = {case["verdict"].removesuffix("-with-warning"), *case.get("also_accepted", ())}
    assert report.verdict in (allowed if case["level"] == "standard" else {"valid"})
    assert case["level"] == "standard" or TENSORS in {item.reason for item in report.targets[0].coverage.unchecked}


@pytest.mark.parametrize("name", CASES[::7])
def test_the_whole_run_directory_is_at_least_as_bad(cases, name):
    """Judged with its anchor, a damaged snapshot does not get a better verdict."""
    case = json.loads((cases / name / "case.json").read_text())
    report = report_on(cases / name, level=case["level"])

    assert {target.kind for target in report.targets} == {"snapshot", "anchor"}
    if case["verdict"] == "invalid" and not case.get("also_accepted"):
        assert exit_code(report) == ExitCode.INVALID


def is_hostile(case: Path) -> bool:
    """Whether a case is made to run something, to expand, or to hang."""
    facts = json.loads((case / "case.json").read_text())
    return bool(facts.get("marker") or facts.get("needs_recipe")) or any(
        word in case.name for word in ("bomb", "doubling", "tar-", "symlink")
    )


def test_nothing_is_executed_and_memory_stays_small(cases, tmp_path):
    """All hostile runs in one process of its own: no planted code runs, no bomb expands, nobody waits for a pipe."""
    program = (
        "import sys\n"
        "from ckptctl.adapters.local_store import LocalStore\n"
        "from ckptctl.workflows.validate import ValidateRequest, validate\n"
        "validate(LocalStore(), ValidateRequest(paths=tuple(sys.argv[1:]), level='full'))\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(int(peak.split()[1]) // 1024)\n"  # the peak that `getrusage` tells would be our own, if that is larger
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", program, *(str(path) for path in sorted(cases.iterdir()) if is_hostile(path))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) < MEGABYTES
    assert list(tmp_path.iterdir()) == []
