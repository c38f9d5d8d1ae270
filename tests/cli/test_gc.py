"""`ckptctl gc` as typed: what is asked for, what is answered, and how it ends."""

import json
import os

import pytest

from ckptctl.adapters.locks import FileLock
from ckptctl.formats.config_file import encode_yaml
from tests.command_line import run
from tests.runs import a_run, names, offline_world


@pytest.fixture
def root(tmp_path):
    return a_run(tmp_path / "run", step_3=3, bootstrap=1)


def test_a_run_and_its_repetition(root) -> None:
    """Done is 0, and so is nothing to do."""
    first, second = run("gc", str(root), "--keep", "1"), run("gc", str(root), "--keep", "1")

    assert (0, 0) == (first.status, second.status)
    assert first.stdout.startswith("collected: 3 trashed")
    assert second.stdout.startswith("nothing to do")
    assert ["snapshot_000003"] == names(root)


def test_from_inside_and_with_a_slash(root) -> None:
    """`.` and a trailing slash name the directory too."""
    assert 0 == run("gc", ".", "--dry-run", folder=root).status
    assert 0 == run("gc", f"{root}/", "--dry-run").status


def test_json_holds_the_same(root) -> None:
    """Every item with its action and all its reasons."""
    planned = json.loads(run("gc", str(root), "--dry-run", "--format", "json").stdout)
    done = json.loads(run("gc", str(root), "--format", "json").stdout)

    def plan(answer):
        return [(item["path"], item["action"], item["reasons"]) for item in answer["items"]]

    assert plan(planned) == plan(done)
    assert ("planned", "collected") == (planned["outcome"], done["outcome"])
    assert all(item["reasons"] for item in done["items"])


def test_the_configuration_names_directory_and_number(root, tmp_path) -> None:
    """Without PATH both come from there; of another directory it says that it is not used."""
    config = tmp_path / "run.yaml"
    config.write_bytes(
        encode_yaml({"checkpointing": {"checkpoint_dir": str(root)}, "rollout_checkpointing": {"keep_latest_k": 3}})
    )
    configured = json.loads(run("gc", "--dry-run", "--config", str(config), "--format", "json").stdout)
    other = a_run(tmp_path / "other", step_3=1)
    elsewhere = run("gc", str(other), "--dry-run", "--config", str(config))

    assert (str(root), 3) == (configured["checkpoint_dir"], configured["policy"]["keep_latest_k"])
    assert "is of another directory" in elsewhere.stderr
    assert "the newest 2 of each anchor" in elsewhere.stdout


def test_pin_unpin_undelete(root) -> None:
    """The three single wishes, each by a path as the shell completes it."""
    path = f"{root}/step_3/rollout_snapshots/snapshot_000001/"
    pinned = run("gc", str(root), "--pin", path, "--reason", "figure [red]3\x1b[2J")
    kept = run("gc", str(root), "--keep", "1")
    unpinned = run("gc", str(root), "--unpin", "step_3/rollout_snapshots/snapshot_000001", folder=root)
    back = run("gc", str(root), "--undelete", "snapshot_000002")

    assert [0, 0, 0, 0] == [ran.status for ran in (pinned, kept, unpinned, back)]
    assert "- pinned: figure [red]3\\x1b[2J" in kept.stdout
    assert ["snapshot_000001", "snapshot_000002", "snapshot_000003"] == names(root)


def test_what_cannot_go_ends_with_32(root) -> None:
    """The answer is printed all the same, and what remains is named on stderr, in JSON too."""
    (root / ".ckptctl").mkdir()
    (root / ".ckptctl/trash").write_bytes(b"in the way")
    text = run("gc", str(root))
    as_json = run("gc", str(root), "--format", "json")

    assert (32, 32) == (text.status, as_json.status)
    assert "FAILED" in text.stdout
    assert "error[storage]: cannot move to the trash" in text.stderr
    assert "snapshot_000001" in json.loads(as_json.stderr)["message"]
    assert ["failed", "failed"] == [
        item["outcome"] for item in json.loads(as_json.stdout)["items"] if item["action"] != "keep"
    ]


def test_somebody_is_at_work(root) -> None:
    """Busy is 21; a dry run looks all the same."""
    lock = FileLock(str(root))
    lock.acquire()
    try:
        busy, dry = run("gc", str(root)), run("gc", str(root), "--dry-run")
    finally:
        lock.release()

    assert (21, 0) == (busy.status, dry.status)
    assert "warning: locked by another ckptctl" in dry.stdout


def test_a_transaction_that_cannot_be_read_is_refused(root) -> None:
    """Nobody knows what it uses: 20, and nothing was changed."""
    offline_world(root).journal.begin("restore", {})

    assert 20 == run("gc", str(root)).status
    assert 3 == len(names(root))


@pytest.mark.parametrize(
    "words",
    [
        ("--keep", "0"),
        ("--min-valid", "0"),
        ("--grace", "2"),
        ("--grace", "-1d"),
        ("--archive", "x"),
        ("--sessions",),
        ("--pin", "snapshot_000001"),
        ("--reason", "x"),
        ("--undelete", "x", "--dry-run"),
        ("--pin", "/elsewhere/snapshot_000001", "--reason", "x"),
    ],
)
def test_usage(root, words) -> None:
    """What does not fit together is 2, options of later versions included, and nothing was changed."""
    assert 2 == run("gc", str(root), *words).status
    assert 3 == len(names(root))


def test_an_archive(root, tmp_path) -> None:
    """Packed, then gone; the pack is a snapshot for `validate`, and what the trash still holds is found packed already."""
    (tmp_path / "packs").mkdir()
    dry = run("gc", str(root), "--keep", "1", "--archive", "packs", "--dry-run", folder=tmp_path)
    done = json.loads(run("gc", str(root), "--keep", "1", "--archive", f"{tmp_path}/packs", "--format", "json").stdout)
    packs = sorted(str(path) for path in (tmp_path / "packs").iterdir())
    again = run("gc", str(root), "--grace", "0s", "--archive", f"{tmp_path}/packs")

    assert "step_3.snapshot_000001.tar.zst` first" in dry.stdout.replace("\n                     ", "")
    assert packs == sorted(item["pack"] for item in done["items"] if item["pack"])
    assert 3 == len(packs)
    assert 0 == run("validate", *packs, "--level", "full").status
    assert 3 == again.stdout.count("already packed as")


@pytest.mark.parametrize("inside", [".", "step_3", "step_3/rollout_snapshots", ".ckptctl"])
def test_an_archive_inside_a_checkpoint(root, tmp_path, inside) -> None:
    """By whatever way it is named: 2, and nothing is written."""
    (root / inside).mkdir(exist_ok=True)
    (tmp_path / "way").symlink_to(root / inside)

    assert 2 == run("gc", str(root), "--keep", "1", "--archive", str(tmp_path / "way")).status
    assert 3 == len(names(root))


def test_a_working_directory_that_is_gone(root, tmp_path) -> None:
    """A relative path means nothing there; that is said, and is no bug."""
    gone = tmp_path / "gone"
    gone.mkdir()

    def leave(*words):
        gone.mkdir(exist_ok=True)
        os.chdir(gone)
        gone.rmdir()
        from typer.testing import CliRunner

        from ckptctl.cli.app import app

        try:
            return CliRunner().invoke(app, list(words), catch_exceptions=False).exit_code
        finally:
            os.chdir(root)

    before = os.getcwd()
    try:
        assert [3, 3, 3, 0] == [
            leave("gc", "."),
            leave("inspect", "x"),
            leave("validate", "x"),
            leave("inspect", str(root)),
        ]
    finally:
        os.chdir(before)


@pytest.mark.parametrize("wish", [("--undelete", "x"), ("--pin", "snapshot_000001", "--reason", "x"), ("--unpin", "x")])
@pytest.mark.parametrize(
    "other",
    [("--keep", "1"), ("--min-valid", "1"), ("--grace", "1d"), ("--dry-run",), ("--archive", "/"), ("--sessions",)],
)
def test_what_collects_nothing_takes_no_option_of_collecting(root, wish, other) -> None:
    """Whoever types one expects it to count, were it the default; so it is refused by its name."""
    ran = run("gc", str(root), *wish, *other)

    assert 2 == ran.status
    assert f"stands alone, without {'PATH' if other == ('--sessions',) else f'`{other[0]}`'}" in ran.stderr
    assert not (root / ".ckptctl").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--sessions", "--dry-run"), "`--sessions` stands alone, without `--dry-run`"),
        (("--sessions", "--keep", "1"), "`--sessions` stands alone, without `--keep`"),
        (("--sessions", "--grace", "1d"), "`--sessions` stands alone, without `--grace`"),
        (("--sessions", "--min-valid", "1"), "`--sessions` stands alone, without `--min-valid`"),
        (("--sessions",), "configuration"),
    ],
)
def test_sessions_are_asked_of_live_servers_and_nothing_else(words, text) -> None:
    """It needs to know where they listen, and is combined with nothing."""
    ran = run("gc", *words)

    assert 2 == ran.status
    assert text in ran.stderr
