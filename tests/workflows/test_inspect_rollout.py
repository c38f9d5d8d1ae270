"""`inspect --rollout`: one rollout in one snapshot or in all of a run, newest first; an unknown id gives the nearest ones."""

from __future__ import annotations

import re
import shutil

import pytest

from ckptctl.domain.finding import Finding
from ckptctl.errors import NothingThereError, UsageError
from ckptctl.render.machine import to_json
from ckptctl.render.rollout_text import rollout_text
from ckptctl.workflows.inspect_rollout import inspect_rollout, nearest
from tests.command_line import run
from tests.runs import a_run, damage, offline_world
from tests.schemas import problems

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = a_run(tmp_path_factory.mktemp("run"), step_3=2, bootstrap=1)
    damage(place, "step_3", 1)
    return place


def ask(root, rollout="g7_g0", path="", level="standard"):
    return inspect_rollout(offline_world(root), f"{root}/{path}".rstrip("/"), rollout, level)


def test_in_every_snapshot_of_a_run(root) -> None:
    """Newest first; one that is damaged says what it can and what is missing; one that does not name it is listed."""
    found = ask(root)
    newest, older = found.stories

    assert ("invalid", ("bootstrap/snapshot_000001",)) == (found.verdict, found.absent_from)
    assert ["step_3/snapshot_000002", "step_3/snapshot_000001"] == [newest.snapshot, older.snapshot]
    assert ("continue", "refused") == (newest.fate.decision, older.fate.decision)
    assert ((), True) == (newest.unread, "rollout_recovery.pt is damaged" in older.unread[0])
    assert older.group is None
    assert "nothing that can be read names its group" in rollout_text(found)
    assert "attempt 1  state not known" in rollout_text(found)
    assert "turn_complete" == older.attempts[-1].boundary.kind
    assert [] == problems(to_json(found), "inspect-rollout.v1.json")


def test_in_one_place(root, tmp_path) -> None:
    """A snapshot, an anchor, and a copy that lies in no anchor."""
    shutil.copytree(root / SNAPSHOT, tmp_path / "copy")

    assert 1 == len(ask(root, path=SNAPSHOT).stories)
    assert 2 == len(ask(root, path="step_3").stories)
    assert f"{tmp_path}/copy" == ask(tmp_path, path="copy").stories[0].snapshot


def test_findings_that_name_it(root, tmp_path) -> None:
    """A session at another revision than the boundary needs is a finding of that rollout and of no other."""
    place = a_run(tmp_path / "run", step_3=1)
    path = next(place.rglob("resources/tools/g7_g0.a1.json"))
    path.write_bytes(
        path.read_bytes()
        .replace(b'"state_revision":4', b'"state_revision":3')
        .replace(b'"state_revision": 4', b'"state_revision": 3')
    )
    [named], [other] = ask(place).stories, ask(place, "g8_g0").stories
    text = rollout_text(ask(place))

    assert named.findings
    assert () == other.findings
    assert "! the boundary needs 4" in text
    assert f"error[{named.findings[0].rule}]" in text


@pytest.mark.parametrize(
    ("rollout", "hint"),
    [
        ("g7", "`g7_g0`, `g7_g1`"),
        ("g7_g0-a1", "the nearest ids: `g7_g0`"),
        ("g7_g9", "`g7_g"),
        ("\x1b[31m", "the nearest ids: `g5_g0`"),
        ("", "the nearest ids: `g5_g0`"),
    ],
)
def test_an_unknown_id(root, rollout, hint) -> None:
    """The error names what was most likely meant, and prints nothing that acts on a terminal."""
    with pytest.raises(NothingThereError, match="none of 3 snapshots names it") as caught:
        ask(root, rollout)

    assert hint in caught.value.hint
    assert "\x1b" not in str(caught.value)


def test_where_nothing_is_named(root) -> None:
    """An empty snapshot, a directory without one, a data plane."""
    with pytest.raises(NothingThereError, match="the snapshot does not name it") as caught:
        ask(root, path="bootstrap/rollout_snapshots/snapshot_000001")
    with pytest.raises(UsageError, match="is no snapshot, anchor"):
        ask(root, path=f"{SNAPSHOT}/data_plane")

    assert "no rollout is named there at all" == caught.value.hint


def test_an_anchor_without_snapshots(tmp_path) -> None:
    """There is nothing to look at."""
    place = a_run(tmp_path, step_3=1)
    shutil.rmtree(place / "step_3/rollout_snapshots")
    with pytest.raises(NothingThereError, match="there is no snapshot in"):
        ask(place)


def test_nearest() -> None:
    """Those of the group first, then what is spelt alike, then any."""
    known = ["a_g0", "a_g1", "prompt-17_g0", "z_g0"]

    assert ("a_g0", "a_g1") == nearest("a", known)[:2]
    assert ("c752-x_g0", "c752-x_g1") == nearest("c7", [*known, "c752-x_g1", "c752-x_g0"])[:2]
    assert "prompt-17_g0" == nearest("promt-17_g0", known)[0]
    assert () == nearest("x", [])


def a_story(root, **changes):
    found = ask(root, path=SNAPSHOT)
    return found.model_copy(update={"stories": (found.stories[0].model_copy(update=changes),)})


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_a_terminal(root, width) -> None:
    """No line of words is wider, and nothing is said by colour alone."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", rollout_text(ask(root), to_terminal=True, width=width))

    assert [] == [line for line in text.splitlines() if len(line) > width and "/" not in line]
    assert "<- boundary" in text
    assert "restore continues it: attempt 1 becomes 2 (boundary restored)" in " ".join(text.split())


def test_long_stories_are_cut(root) -> None:
    """Rows, calls and findings beyond what one reads are counted; -v has them."""
    story = ask(root, path=SNAPSHOT).stories[0]
    finding = Finding(
        rule="LED001", name="x", severity="error", artifact="", location="", message="bad", expected="", actual="", hint=""
    )  # fmt: skip
    many = story.attempts[1].model_copy(
        update={
            "rows": tuple(story.attempts[1].rows[0].model_copy(update={"key": f"r{n}"}) for n in range(30)),
            "calls": story.attempts[1].calls[:1] * 30,
        }
    )
    fate = story.fate.model_copy(
        update={
            "drops_boundary": True, "cleared_rows": tuple("abcdefg"), "kept_rows": ("h",), "unclaimed_sessions": ("tools",)
        }
    )  # fmt: skip
    found = a_story(root, attempts=(many,), findings=(finding,) * 7, fate=fate, reserve=True, group=None)
    text, whole = rollout_text(found), rollout_text(found, verbose=1)
    various = tuple(finding.model_copy(update={"rule": f"LED00{n}"}) for n in range(1, 8))
    kinds = rollout_text(a_story(root, findings=various))

    assert "10 earlier model calls not shown (`-v`)" in text
    assert "and 10 rows more" in text
    assert "error[LED001] bad (and 6 more like this)" in text
    assert "and 2 kinds more of findings that name it" in kinds
    assert "clears 7 staged rows: a, b, c, d, e and 2 more" in text
    assert "keeps 1 staged row that others need: h" in text
    assert "! nobody claims its session on tools" in text
    assert "replacement_reserve.pt" in text
    assert "neither the ledger nor a finished group names it" in text
    assert "r29" in whole
    assert "more (`-v`" not in whole


def test_hostile_names(root) -> None:
    """No control character of a file reaches the terminal."""
    evil = "x\x1b[31m\u202e[bold]y\nforged"
    text = rollout_text(ask(root).model_copy(update={"path": evil, "absent_from": (evil,)}))

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]y" in text


def test_from_the_command_line(root) -> None:
    """The worst snapshot that names it gives the status; an unknown id is 3; other questions are not mixed with it."""
    assert 13 == run("inspect", str(root), "--rollout", "g7_g0").status
    assert 0 == run("inspect", f"{root}/{SNAPSHOT}", "--rollout", "g7_g0").status
    assert 3 == run("inspect", str(root), "--rollout", "g9_g9").status
    assert 2 == run("inspect", str(root), "--rollout", "g7_g0", "--timings").status
    assert 2 == run("inspect", "--rollout", "g7_g0", "--live").status
    assert 2 == run("inspect", str(root), "--rollout", "g7_g0", "--level", "quick").status
