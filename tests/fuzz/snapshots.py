"""Whole snapshots with one damaged file: validation ends with a report whose verdict can be explained."""

from __future__ import annotations

import random

from ckptctl.domain.finding import Report
from ckptctl.workflows.validate import ValidateRequest, exit_code, validate
from tests.builders import a_run_files, a_world
from tests.fakes.memory_store import MemoryStore
from tests.fuzz.engine import Fault, HangError, Tally, timed, told, trace_of
from tests.fuzz.mutations import JSON_TOKENS, PICKLE_TOKENS, TAR_TOKENS, YAML_TOKENS, ZIP_TOKENS, mutated
from tests.fuzz.readers import tar_resealed

SNAPSHOTS = "whole-snapshots"
ROOT = "/run"
_TOKENS = {
    "json": JSON_TOKENS,
    "jsonl": JSON_TOKENS,
    "yaml": YAML_TOKENS,
    "pkl": PICKLE_TOKENS,
    "pt": ZIP_TOKENS,
    "tar": TAR_TOKENS,
}


def fuzz_snapshots(runs: int, seed: int) -> Tally:
    """Validate a small checkpoint directory `runs` times, each time with another damaged file, two times of three at level full."""
    files = a_run_files(a_world())
    names = sorted(files)
    chance = random.Random(f"{SNAPSHOTS} {seed}")
    tally = Tally()
    for _ in range(runs):
        name = chance.choice(names)
        others = [files[other] for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]]
        data = mutated(chance, [files[name], *others[:3]], _TOKENS.get(name.rpartition(".")[2], ()))
        if name.endswith(".tar") and chance.random() < 0.5:
            data = tar_resealed(data)
        level = chance.choice(("standard", "full", "full"))
        tally.inputs += 1
        fault = _judge(files, name, data, level, tally)
        if fault is not None:
            tally.kinds[fault.what] += 1
            if tally.kinds[fault.what] == 1:
                tally.faults.append(fault)
    return tally


def _judge(files: dict[str, bytes], name: str, data: bytes, level: str, tally: Tally) -> Fault | None:
    store = MemoryStore()
    for other, content in files.items():
        store.put(f"{ROOT}/{other}", data if other == name else content)
    where = f"{SNAPSHOTS} {name} {level}"
    try:
        with timed():
            report = validate(store, ValidateRequest(paths=(ROOT,), level=level))
    except HangError as error:
        return Fault(where, "a hang", data, trace_of(error))
    except Exception as error:
        return Fault(where, told(error), data, f"{name} at level {level}\n{trace_of(error)}")
    tally.values += report.verdict == "valid"
    tally.defects += report.verdict != "valid"
    why = what_is_unclear(report)
    return Fault(where, f"{why} ({name})", data) if why else None


def what_is_unclear(report: Report) -> str:
    """Why a report cannot be explained; empty when it can."""
    if int(exit_code(report)) not in {0, 11, 12, 13}:
        return f"exit status {int(exit_code(report))}"
    for target in report.targets:
        if target.verdict not in {"valid", "incomplete"} and not target.findings:
            return f"{target.verdict} without a finding"
        if target.verdict == "incomplete" and not any(item.outcome == "could_not_run" for item in target.outcomes):
            return "incomplete without a rule that could not run"
        for finding in target.findings:
            if finding.kind == "more":
                continue
            if not finding.message or not finding.hint or not (finding.artifact or finding.location):
                return f"a finding of {finding.rule} without message, hint or place"
    return ""
