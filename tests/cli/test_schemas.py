"""Every JSON answer is what its committed schema promises: on the frozen samples, and with hostile names in them.

Answers that need servers are compared in `tests/workflows/test_journal_lines.py` and `tests/e2e/test_json_answers.py`.
"""

import json

import pytest

from ckptctl.formats.snapshot_manifest import encode_manifest
from tests.builders import a_manifest, a_world
from tests.cli.hostile import hostile_manifest, hostile_run
from tests.command_line import run
from tests.goldens import SAMPLES, cases, name_of
from tests.sample_list import before_the_first_step, third_step
from tests.schema_list import READ, WRITTEN, schema_documents
from tests.schemas import problems, validator
from tests.world import a_topology

OF_COMMAND = {
    "gc": "gc.v1.json",
    "restore": "restore.v1.json",
    "snapshot": "snapshot.v1.json",
    "publish": "publish.v1.json",
}
OF_INSPECTION = {
    "checkpoint_dir": "inspect-directory.v1.json",
    "anchor": "inspect-directory.v1.json",
    "snapshot": "inspect-snapshot.v1.json",
    "data_plane": "inspect-data-plane.v1.json",
    "rollout": "inspect-rollout.v1.json",
    "diff": "inspect-diff.v1.json",
}


def schema_of(command, text):
    """The schema that an answer of this command is promised with."""
    answer = json.loads(text)
    if command == "inspect":
        return OF_INSPECTION[answer["kind"]]
    if command == "validate":
        return "rules.v1.json" if "rules" in answer else "report.v1.json"
    return OF_COMMAND[command]


def breaches(words):
    """Problems of the answer, or of the error, of a command line."""
    ran = run(*words, "--format", "json", folder=SAMPLES)
    if ran.stderr:
        assert "" == ran.stdout
        return problems(ran.stderr, "error.v1.json")
    return problems(ran.stdout, schema_of(words[0], ran.stdout))


def lines_of(case):
    words = (case / "args").read_text(encoding="utf-8").splitlines()
    return tuple(word for word in words if word not in ("--format", "json", "github", "-v"))


OFFLINE = [case for case in cases() if case.parent.name != "root"]


@pytest.mark.parametrize("case", OFFLINE, ids=name_of)
def test_answers_on_the_samples(case):
    """The command lines of the goldens, with `--format json`."""
    words = lines_of(case)
    index = next(place for place, word in enumerate(words) if word == case.parent.name)

    assert [] == breaches((words[index], *words[:index], *words[index + 1 :]))


def test_answers_about_hostile_names(tmp_path):
    """Escapes, markup, overlong and undecodable names are strings like any other."""
    run_dir, plain = hostile_run(tmp_path), hostile_manifest(tmp_path)
    snapshot = str(next(run_dir.glob("step_*/rollout_snapshots/snapshot_*")))
    lines = (
        ("validate", str(run_dir), str(plain)),
        ("inspect", str(run_dir)),
        ("inspect", snapshot),
        ("inspect", str(run_dir), "--rollout", "g7_g0"),
        ("inspect", snapshot, "--rollout", "\x1b[31m"),
        ("inspect", snapshot, "--diff", str(plain.parent / "copy")),
        ("inspect", f"{snapshot}/data_plane"),
        ("inspect", str(plain)),
        ("gc", str(run_dir), "--dry-run", "--keep", "1"),
        ("restore", "--plan", "--config", str(tmp_path / "run.yaml")),
        ("restore", "--select", "--config", str(tmp_path / "run.yaml")),
        ("validate", f"{run_dir}/\x1b[31m"),
        ("restore", "--plan", "--config", str(tmp_path / "\x1b[31m.yaml")),
        ("gc", str(run_dir), "--pin", "\x1b[31m", "--reason", "\x07"),
    )

    assert {} == {words: found for words in lines if (found := breaches(words))}


@pytest.mark.parametrize(
    ("world", "version"), [(a_world(), 4), (before_the_first_step(), 4), (before_the_first_step(schema_version=3), 3)]
)
def test_manifests_that_we_write(world, version):
    """With and without Gym state, in both schemas; the other schema's document does not fit."""
    text = encode_manifest(a_manifest(world)).decode()

    assert [] == problems(text, f"snapshot-manifest.v{version}.json")
    assert [] != problems(text, f"snapshot-manifest.v{7 - version}.json")


def test_manifests_of_the_samples():
    """Those of the frozen samples, but for the damaged one that is no JSON document of ours."""
    for path in sorted(SAMPLES.rglob("rollout_snapshots/*/manifest.json")):
        schema = json.loads(path.read_text())["schema_version"]
        if schema in (3, 4):
            assert [] == problems(path.read_text(), f"snapshot-manifest.v{schema}.json"), path


def test_configurations():
    """The samples' configurations fit; a misspelt key of our own section does not, one of NeMo-RL's is passed over."""
    import yaml

    for path in sorted(SAMPLES.glob("*.yaml")):
        found = yaml.safe_load(path.read_text())
        assert [] == problems(json.dumps(found), "config.v1.json"), path
    misspelt = {**found, "ckptctl": {**found["ckptctl"], "controler": {}}}
    unknown = {**found, "grpo": {"anything": 1}, "checkpointing": {**found["checkpointing"], "other": None}}

    assert [] != problems(json.dumps(misspelt), "config.v1.json")
    assert [] == problems(json.dumps(unknown), "config.v1.json")


def test_saved_capabilities():
    """The form in which `--capabilities` reads discovery."""
    assert [] == problems(json.dumps([item.model_dump(mode="json") for item in a_topology()]), "capabilities.v1.json")
    assert third_step().topology == a_topology()


def test_every_document_is_described():
    """Each schema is valid, has a title, and the answers demand their version."""
    documents = schema_documents()

    assert documents.keys() >= WRITTEN.keys() | READ.keys()
    for name, document in documents.items():
        assert document["title"], name
        assert validator(name).schema["$id"] == name
    answers = {name for name in WRITTEN if name != "plan.v1.json"}
    assert answers == {
        name for name, document in documents.items() if name in WRITTEN and "schema_version" in document["required"]
    }
