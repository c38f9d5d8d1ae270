"""`inspect --diff`: which is the older one, whether a restore lies between them, how the comparison ends, and how it reads."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from ckptctl.domain.snapshot_diff import Change
from ckptctl.errors import NothingThereError, UsageError
from ckptctl.render.diff_text import diff_text
from ckptctl.render.machine import to_json
from ckptctl.workflows.inspect_diff import inspect_diff
from tests.command_line import run
from tests.runs import a_run, damage, offline_world
from tests.schemas import problems
from tests.workflows.test_gc import RESTORE_FACTS, SNAPSHOT_FACTS

FOLDER = "step_3/rollout_snapshots"


@pytest.fixture
def root(tmp_path):
    return a_run(tmp_path / "run", step_3=3, bootstrap=1)


def path(root, number, anchor="step_3") -> str:
    return f"{root}/{anchor}/rollout_snapshots/snapshot_{number:06d}"


def diff(root, older=1, newer=2, **more):
    return inspect_diff(offline_world(root, **more), path(root, older), path(root, newer), "standard")


def test_two_snapshots_of_a_run(root) -> None:
    """Compared in the order of their names, however they were given."""
    found, turned = diff(root), diff(root, 2, 1)

    assert (0, False, True) == (found.exit_code, found.is_swapped, turned.is_swapped)
    assert ("step_3/snapshot_000001", "step_3/snapshot_000002") == (found.older.snapshot, found.newer.snapshot)
    assert found.changes == turned.changes == ()
    assert {"unexpected": 0, "lost": 0, "changed": 0, "progressed": 0} == found.counts
    assert [] == problems(to_json(found), "inspect-diff.v1.json")
    assert "no difference in what rollouts did" in diff_text(found)
    assert "given the other way round" in diff_text(turned)


def test_how_it_ends(root) -> None:
    """13 for what nothing explains and for a damaged side, 12 for runs that are set up differently."""
    other = inspect_diff(offline_world(root), path(root, 1, "bootstrap"), path(root, 1), "standard")
    damage(root, "step_3", 2)
    damaged = diff(root)

    assert (12, {"Gym state"}) == (other.exit_code, {item.subject for item in other.changes if item.incompatible})
    assert (13, "invalid", 0) == (damaged.exit_code, damaged.newer.verdict, damaged.counts["unexpected"])
    assert "rollout_recovery.pt is damaged" in damaged.newer.unread[0]
    assert "not compared: rollout_recovery.pt is damaged" in diff_text(damaged)


def journal(root, *records) -> None:
    """Finished transactions: a snapshot's name, or `restore NAME`."""
    world = offline_world(root)
    for text in records:
        kind, _, name = text.rpartition(" ")
        if kind:
            writer = world.journal.begin("restore", {**RESTORE_FACTS, "snapshot": f"{FOLDER}/{name}"})
            writer.append({"event": "finish", "outcome": "restored"}, sync=True)
            continue
        writer = world.journal.begin("snapshot", {**SNAPSHOT_FACTS, "final": f"{FOLDER}/{name}"})
        writer.append({"event": "outcome", "number": "8", "step": "publish"}, sync=True)
        writer.append({"event": "finish", "outcome": "published"}, sync=True)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (("snapshot_000001", "snapshot_000002", "restore snapshot_000001", "snapshot_000003"), f"{FOLDER}/snapshot_000001"),
        (("snapshot_000001", "snapshot_000002", "restore snapshot_000002", "snapshot_000003"), None),
        (("restore snapshot_000001", "snapshot_000002", "snapshot_000003"), None),
        (("snapshot_000002", "restore snapshot_000001"), None),
        ((), None),
    ],
)  # fmt: skip
def test_a_restore_between_them(root, records, expected) -> None:
    """It counts when it went back to before both, and lies between the two publications."""
    journal(root, *records)
    found = diff(root, 2, 3)

    assert expected == found.rewound_to
    assert (expected is not None) is ("a restore went back to" in diff_text(found))


def test_journals_that_cannot_be_read(root) -> None:
    """Then it is not known, which is told."""
    journal(root, "snapshot_000001")
    (root / ".ckptctl/journal/000009-restore.jsonl").write_text("nothing\nof ours\n")
    notices: list[str] = []

    assert diff(root, notices=notices).rewound_to is None
    assert ["whether a restore lies between the two is not known"] == [text.rpartition(": ")[2] for text in notices]


def test_what_cannot_be_compared(root, tmp_path) -> None:
    """With itself, with what is no snapshot, with nothing; a copy outside of any run is compared as it is given."""
    shutil.copytree(path(root, 2), tmp_path / "copy")
    world = offline_world(root)
    with pytest.raises(UsageError, match="is compared with itself"):
        diff(root, 1, 1)
    with pytest.raises(UsageError, match="compares two snapshots"):
        inspect_diff(world, str(root), path(root, 1), "standard")
    with pytest.raises(NothingThereError):
        diff(root, 1, 9)

    assert not inspect_diff(world, f"{tmp_path}/copy", path(root, 1), "standard").is_swapped


def a_change(kind="progressed", **facts) -> Change:
    return Change.model_validate({"kind": kind, "area": "rollout", "subject": "g7_g0", "message": "went on", **facts})


def test_the_whole_text(root) -> None:
    """Signs stand before each change; long lists are cut, but not what is unexpected."""
    changes = (
        *(a_change("unexpected", before="4", after="3") for _ in range(25)),
        a_change("lost", message="its attempt failed"),
        a_change("changed", after="1"),
        *(a_change() for _ in range(25)),
    )
    counts = {"unexpected": 25, "lost": 1, "changed": 1, "progressed": 25}
    found = diff(root).model_copy(update={"changes": changes, "counts": counts})
    unread = found.newer.model_copy(update={"unread": ("a part",) * 7, "written_at": 1e300})
    found = found.model_copy(
        update={
            "newer": unread,
            "measures": (found.measures[0].model_copy(update={"after": None}), *found.measures[1:]),
        }
    )
    text, whole = diff_text(found), diff_text(found, verbose=1)

    assert text.startswith("diff: 25 unexpected changes; 1 lost, 1 changed, 25 progressed\n")
    assert 25 == text.count("  ! rollout g7_g0 went on: 4 -> 3\n")
    assert "  - rollout g7_g0 its attempt failed\n" in text
    assert "  ~ rollout g7_g0 went on: none -> 1\n" in text
    assert "and 5 more (`-v`" in text
    assert 25 == whole.count("  + rollout g7_g0 went on\n")
    assert "and 2 parts more" in text
    assert "a time that no calendar has" in text
    assert re.search(r"train step +3 +\? +\?", text)


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_a_terminal_and_needs_no_colour(root, width) -> None:
    """Hostile names neither act nor widen a line beyond what is one word."""
    evil = a_change("unexpected", subject="x\x1b[31m\u202e[bold]y", message="went backwards " * 12)
    found = diff(root).model_copy(update={"changes": (evil,)})
    text = re.sub(r"\x1b\[[0-9;]*m", "", diff_text(found, to_terminal=True, width=width))

    assert [] == [line for line in text.splitlines() if len(line) > width and "/" not in line]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]y" in text


def test_from_the_command_line(root) -> None:
    """`--diff OLDER NEWER` and `NEWER --diff OLDER` are one question; it is mixed with no other."""
    one, two = path(root, 1), path(root, 2)
    first, second = run("inspect", "--diff", one, two), run("inspect", two, "--diff", one)

    assert (0, first.stdout) == (first.status, second.stdout)
    assert "diff" == json.loads(run("inspect", "--diff", one, two, "--format", "json").stdout)["kind"]
    assert 2 == run("inspect", "--diff", one).status
    assert 2 == run("inspect", one, "--diff", one).status
    assert 2 == run("inspect", two, "--diff", one, "--timings").status
    assert 2 == run("inspect", two, "--diff", one, "--rollout", "g7_g0").status
    assert 2 == run("inspect", two, "--diff", one, "--level", "quick").status
    assert 12 == run("inspect", two, "--diff", path(root, 1, "bootstrap")).status
