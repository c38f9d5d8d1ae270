"""Where an answer, a bundle, packs and a cluster may not go: over what was given, and into what is proved by its files."""

import os
import shutil

import pytest
import typer

from ckptctl.adapters.local_store import LocalStore
from ckptctl.cli.app import app
from ckptctl.cli.place import CLUSTER_FILES, CLUSTER_FOLDERS, PATH_METAVARS
from ckptctl.sim.cluster_options import (
    CAPTURE_FOLDER,
    CONFIG_FILE,
    LOGS_FOLDER,
    RECORD_FILE,
    SETTINGS_FOLDER,
    TOKEN_FILE,
)
from ckptctl.sim.run_files import DISPATCHES, RESTORES, RESULTS
from ckptctl.workflows.guarded import owner_of
from tests.command_line import run
from tests.goldens import copied_samples

ANCHOR = "turn/step_3"
SNAPSHOT = f"{ANCHOR}/rollout_snapshots/snapshot_000002"


@pytest.fixture(scope="module")
def samples():
    """A copy of the samples to be in; nothing of it may change."""
    with copied_samples() as place:
        (place / "turn" / ".ckptctl" / "journal").mkdir(parents=True, exist_ok=True)
        (place / "link").symlink_to(place / SNAPSHOT / "manifest.json")
        (place / "door").symlink_to(place / SNAPSHOT)
        (place / "by-hand.yaml").hardlink_to(place / "turn.yaml")
        (place / "report.json").write_text("{}")
        (place / "reports").mkdir()
        shutil.copytree(place / SNAPSHOT, place / "renamed")
        yield place


def contents(folder):
    """Every file with its bytes, and every other name."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused(samples, *words, said, environment=None):
    before = contents(samples)
    ran = run(*words, folder=samples, environment=environment)

    assert (2, "") == (ran.status, ran.stdout), ran
    assert said in ran.stderr
    assert before == contents(samples)


@pytest.mark.parametrize(
    ("output", "owner"),
    [
        (f"{SNAPSHOT}/manifest.json", "the snapshot"),
        (f"{SNAPSHOT}/report.txt", "the snapshot"),
        (f"{SNAPSHOT}/data_plane/report.txt", "the data plane"),
        (f"{SNAPSHOT}/participants/report.txt", "the snapshot"),
        (f"{ANCHOR}/report.txt", "the anchor"),
        (f"{ANCHOR}/rollout_snapshots/report.txt", "the folder of snapshots"),
        (f"{ANCHOR}/rollout_snapshots/../report.txt", "the anchor"),
        ("bootstrap-run/bootstrap/report.txt", "the anchor"),
        ("turn/.ckptctl/journal/report.txt", "the control folder"),
        ("link", "the snapshot"),
        ("door/report.txt", "the snapshot"),
        ("renamed/report.txt", "the snapshot"),
    ],
)
def test_an_answer_does_not_go_into_a_checkpoint(samples, output, owner):
    """Whatever the name, through links, before and after the command, and before any work."""
    told = f"`--output {output}`: that place belongs to {owner} `"

    refused(samples, "validate", "not-there", "--output", output, said=told)
    refused(samples, "--output", output, "inspect", "turn", said=told)


def test_the_number_of_a_shard_does_not_lead_into_a_checkpoint(samples):
    """The name is looked at as it will be."""
    words = ("validate", "turn", "--shard", "2/2", "--output", f"{SNAPSHOT[:-1]}{{shard}}/manifest.json")

    refused(samples, *words, said="belongs to the snapshot")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("restore", "--select", "--config", "turn.yaml", "--output", "turn.yaml"), "--config"),
        (("restore", "--select", "--config", "turn.yaml", "--output", "by-hand.yaml"), "--config"),
        (("--config", "turn.yaml", "--output", "./turn.yaml", "restore", "--plan"), "--config"),
        (("validate", "turn", "--capabilities", "report.json", "--output", "report.json"), "--capabilities"),
        (("validate", "--merge", "turn.yaml", "report.json", "--output", "report.json"), "PATH"),
        (("inspect", SNAPSHOT, "--bundle", "b.tar.zst", "--output", "b.tar.zst"), "--bundle"),
    ],
)
def test_an_answer_does_not_replace_what_was_given(samples, words, option):
    """The same file under another name is the same file."""
    refused(samples, *words, said=f"would replace what `{option}` names")


def test_an_answer_does_not_replace_the_configuration_of_the_environment(samples):
    """It was given as well."""
    environment = {"CKPTCTL_CONFIG": "turn.yaml"}

    refused(samples, "restore", "--select", "--output", "turn.yaml", said="would replace", environment=environment)


def test_an_answer_does_not_replace_the_token(samples):
    """The configuration names that file, and it may be the only copy."""
    (samples / "token").write_text("secret")
    text = (samples / "turn.yaml").read_text().replace("ckptctl:\n", f"ckptctl:\n  token_file: {samples}/token\n")
    (samples / "with-token.yaml").write_text(text)
    words = ("restore", "--select", "--config", "with-token.yaml", "--output")

    refused(samples, *words, "token", said="would replace what `ckptctl.token_file` names")


def test_an_answer_goes_beside_what_was_given(samples, tmp_path):
    """A report may lie in the checkpoint directory, beside a configuration, and replace an older report."""
    for output in ("turn/report.txt", "answer.txt", "answer.txt", str(tmp_path / "answer.txt")):
        assert 0 == run("validate", "turn", "--output", output, folder=samples).status
    (samples / "turn" / "report.txt").unlink()
    (samples / "answer.txt").unlink()


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", SNAPSHOT, "--bundle", f"{SNAPSHOT}/bundle.tar.zst"),
        ("inspect", SNAPSHOT, "--bundle", "door/bundle.tar.zst"),
        ("inspect", SNAPSHOT, "--bundle", "turn/.ckptctl/bundle.tar.zst"),
        ("gc", "turn", "--archive", "bootstrap-run/bootstrap"),
        ("gc", "turn", "--archive", "renamed"),
        ("sim", "up", "--dir", SNAPSHOT),
        ("sim", "demo", "--dir", f"{ANCHOR}/cluster"),
    ],
)
def test_nothing_else_goes_into_a_checkpoint_either(samples, words):
    """Every other option that says where to write."""
    refused(samples, *words, said=f"`{words[-2]} {words[-1]}`: that place belongs to ")


def test_a_directory_is_no_file(samples):
    """Neither for an answer nor as a report: the command line is wrong, not the file system."""
    refused(samples, "validate", "turn", "--output", "reports", said="`--output reports` is a directory")
    refused(samples, "validate", "--merge", "reports", said="`reports` is a directory, and `--merge` takes reports")
    refused(samples, "validate", "--merge", said="give the JSON reports of all shards")


@pytest.mark.parametrize("words", [("validate", "turn", "--capabilities"), ("validate", "--merge")])
@pytest.mark.parametrize("kind", ["a device", "a named pipe", "a symbolic link"])
def test_what_is_no_regular_file_is_a_wrong_command_line(samples, words, kind):
    """Nothing is wrong with the file system; what a shell makes of `<(...)` is a link too."""
    name = "/dev/null" if kind == "a device" else "other"
    (samples / "other").unlink(missing_ok=True)
    if kind == "a named pipe":
        os.mkfifo(samples / name)
    elif kind == "a symbolic link":
        (samples / name).symlink_to("turn.yaml")
    refused(samples, *words, name, said=f"`{name}` is {kind}, and `{words[-1]}` takes ")
    refused(samples, *words, name, said="give a regular file")
    (samples / "other").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("count", "suffix", "said"),
    [(1, ".tzst", "one packed snapshot lies there"), (3, ".tar.zst", "3 packed snapshots lie there")],
)
def test_a_directory_of_packs_says_how_to_name_them(tmp_path, count, suffix, said):
    """An archive is no checkpoint directory. What the shell shall expand stays outside of the quotes."""
    archive = tmp_path / "sp ace"
    archive.mkdir()
    for number in range(count):
        (archive / f"step_3.snapshot_{number:06}{suffix}").touch()
    ran = run("validate", str(archive))

    assert 3 == ran.status
    assert said in ran.stderr
    assert f"`ckptctl validate '{archive}'/*{suffix}`" in ran.stderr.replace("\n", " ")


def test_every_option_with_a_path_is_known_by_its_name():
    """What a command line calls a path is compared with the answer's file; nothing else is."""
    others = {
        "DURATION",
        "RULE",
        "N",
        "I/N",
        "P%|I/N",
        "SIZE",
        "SNAPSHOT",
        "NAME",
        "TEXT",
        "ID",
        "TRANSACTION",
        "SERVER",
        "COMMAND",
        "LEVEL",
    }
    found = set()
    pending = [typer.main.get_command(app)]
    while pending:
        command = pending.pop()
        pending.extend(getattr(command, "commands", {}).values())
        found |= {parameter.metavar for parameter in command.params if parameter.metavar}

    assert found >= PATH_METAVARS
    assert found <= PATH_METAVARS | others


@pytest.mark.parametrize(
    "names",
    [
        ("snapshot_000001",),
        ("step_3",),
        ("bootstrap",),
        ("reports", "manifest.json"),
        ("policy", "config.yaml"),
        ("rollout", "metadata.json"),
    ],
)
def test_a_name_alone_makes_no_checkpoint(tmp_path, names):
    """A directory that is called like one, or holds one file of the kind, takes an answer."""
    folder = tmp_path / names[0]
    folder.mkdir()
    for name in names[1:]:
        (folder / name).touch()

    assert owner_of(LocalStore(), os.path.realpath(folder)) is None


@pytest.mark.parametrize(
    ("folder", "inside", "kind"),
    [
        ("step_3", "policy", "the anchor"),
        ("tmp_step_3", "config.yaml", "the anchor"),
        ("bootstrap", "manifest.json", "the anchor"),
        ("kept", "training_info.json", "the anchor"),
        ("tmp_snapshot_1", "data_plane", "the snapshot"),
        ("trash_snapshot_1", "manifest.json", "the snapshot"),
    ],
)
def test_what_is_in_the_making_is_somebodys_already(tmp_path, folder, inside, kind):
    """The first name of an anchor or a staged snapshot is enough, from any depth below."""
    below = tmp_path / folder / "deep" / "er"
    below.mkdir(parents=True)
    (tmp_path / folder / inside).touch()

    assert f"{kind} `{tmp_path.resolve()}/{folder}`" == owner_of(LocalStore(), str(below.resolve()))


def test_the_files_of_an_embedded_cluster_are_its_own(tmp_path):
    """Without its record nobody could end its processes: refused for every command, and for a cluster that is about to begin."""
    run_dir = tmp_path / "tour"
    for folder in ("logs", "settings", "fresh"):
        (run_dir / folder).mkdir(parents=True)
    (run_dir / "cluster.json").write_text("{}")
    before = contents(tmp_path)
    refusals = [
        run("sim", "status", "--dir", str(run_dir), "--output", str(run_dir / name))
        for name in ("cluster.json", "control.token", "audit-counter.jsonl", "logs/worker-0.log", "settings/any.json")
    ]
    refusals.append(run("validate", str(tmp_path), "--output", str(run_dir / "cluster.json")))
    fresh = run_dir / "fresh"
    refusals.append(run("sim", "up", "--dir", str(fresh), "--output", str(fresh / "cluster.json")))

    assert [2] * 7 == [ran.status for ran in refusals]
    assert all("would replace a file of the embedded cluster" in ran.stderr for ran in refusals)
    assert before == contents(tmp_path)


def test_the_names_of_a_clusters_files_are_its_own():
    """They are told twice, because help and place do not import the cluster."""
    assert {RECORD_FILE, CONFIG_FILE, TOKEN_FILE, RESULTS, DISPATCHES, RESTORES} == CLUSTER_FILES
    assert {SETTINGS_FOLDER, LOGS_FOLDER, CAPTURE_FOLDER} == CLUSTER_FOLDERS


@pytest.mark.parametrize("command", ["up", "status", "run", "step", "down", "restart"])
def test_a_run_directory_that_is_none(tmp_path, command):
    """A file in its place is a misunderstanding of the user, no fault of the disk."""
    record = tmp_path / "cluster.json"
    record.write_text('{"options": 3}')
    inside = run("sim", command, "--dir", str(record))
    broken = run("sim", command, "--dir", str(tmp_path))

    assert (2, 2) == (inside.status, broken.status)
    assert f"`{record}` is no directory, so no embedded cluster runs in it" in inside.stderr
    assert "is no record of an embedded cluster: `" in broken.stderr
    assert "do that by hand" in broken.stderr
