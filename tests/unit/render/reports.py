"""Reports made by hand, for the renderers."""

from ckptctl.domain.finding import Coverage, Finding, Report, RuleOutcome, TargetReport, worst
from ckptctl.rules import ALL_RULES
from ckptctl.rules.run import IGNORED

RUN = "/run"


def a_finding(rule="PAR026", **facts) -> Finding:
    found = next(item for item in ALL_RULES if item.id == rule)
    values = {
        "rule": rule,
        "name": found.name,
        "severity": found.severity,
        "artifact": "resources/tools/g7_g0.a1.json",
        "location": "",
        "message": "`g7_g0.a1.json`: digest differs from the manifest",
        "expected": "4d91",
        "actual": "1df2",
        "hint": found.hint,
    }
    return Finding.model_validate({**values, **facts})


def an_outcome(rule, outcome="passed", reason="") -> RuleOutcome:
    name = next(item.name for item in ALL_RULES if item.id == rule)
    return RuleOutcome.model_validate({"rule": rule, "name": name, "outcome": outcome, "reason": reason})


def ignored(rule) -> RuleOutcome:
    return an_outcome(rule, "skipped", IGNORED)


def a_target(path=f"{RUN}/step_3/rollout_snapshots/snapshot_000001", **facts) -> TargetReport:
    values = {
        "path": path,
        "kind": "snapshot",
        "verdict": "valid",
        "level": "standard",
        "findings": (),
        "outcomes": (an_outcome("MAN001"), an_outcome("MAN002")),
        "coverage": Coverage(files_total=2, files_checked=2, bytes_total=2048, bytes_checked=1024),
    }
    return TargetReport.model_validate({**values, **facts})


def an_anchor(path=f"{RUN}/step_3", **facts) -> TargetReport:
    return a_target(path, kind="anchor", **facts)


def a_report(*targets, **facts) -> Report:
    verdict = worst([target.verdict for target in targets])
    return Report.model_validate({"tool_version": "0.1.0", "verdict": verdict, "targets": targets, **facts})
