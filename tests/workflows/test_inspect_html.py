"""`inspect --html`: one file that loads nothing and runs nothing, whatever files are called, and that reads without colour."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from ckptctl.errors import NothingThereError, UsageError
from ckptctl.render.html_frame import STYLE, VERDICT_SIGNS, prose, t
from ckptctl.render.html_lineage import lineage_picture
from ckptctl.render.inspect_html import html_page
from ckptctl.workflows.inspect_page import gather_page
from tests.cli.hostile import hostile_run
from tests.command_line import run
from tests.runs import a_run, damage, offline_world
from tests.unit.render.test_timings_text import inspection, journal

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Checks that every element is closed where it belongs, and collects elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert [] == self.open

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs] or [(tag, "", None)]
        self.open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert tag == self.open.pop(), self.getpos()

    def handle_data(self, data):
        self.texts += [] if self.open[-1:] == ["style"] else [data]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = a_run(tmp_path_factory.mktemp("run"), step_3=3, bootstrap=1)
    damage(place, "step_3", 1)
    return place


def page_of(root, path="", rollout=None, level=None) -> str:
    return html_page(gather_page(offline_world(root), f"{root}/{path}".rstrip("/"), rollout, level))


def safe_page(text: str) -> Reader:
    """A page that holds what the frame promises."""
    reader = Reader(text)
    names = {name for _, name, _ in reader.attributes}
    tags = {tag for tag, _, _ in reader.attributes}
    [policy] = [value for tag, name, value in reader.attributes if name == "content" and "default-src" in value]
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

    assert set() == tags & {"script", "link", "img", "iframe", "object", "embed", "form", "a", "base", "image", "use"}
    assert set() == {name for name in names if name.startswith("on") or name in {"src", "href", "style", "srcset"}}
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" == policy
    assert 1 == text.count("<style>")
    assert f"<style>{STYLE}</style>" in text
    assert not re.search(r"url\(|@import|//", STYLE)
    return reader


def test_a_snapshot(root) -> None:
    """Head, findings, matrix, times, rollouts with a picture each, participants, sizes."""
    reader = safe_page(page_of(root, SNAPSHOT))
    heads = ["Findings", "Which part agrees with which", "How long it took", "Rollouts", "Participants", "Sizes"]

    assert heads == [name for name in heads if name in reader.text]
    assert "✓ valid at level standard: can be restored" in reader.text
    assert "no journal tells" in reader.text
    assert 4 == sum(tag == "svg" and value == "picture" for tag, _, value in reader.attributes)
    assert "continues it as attempt 2: boundary restored" in reader.text
    assert "call-9, 9 tokens, ✓ stored; call-10, ✗ failed: timeout; boundary 3, turn 2, turn_complete" in reader.text
    labels = {value for _, name, value in reader.attributes if name == "title"}
    assert {"ledger and data plane: agrees, 5 rules passed", "manifest and anchor: agrees, 3 rules passed"} <= labels


def test_a_damaged_snapshot(root) -> None:
    """Findings with what to do, cells that differ or could not be told, by rule; and no plan for its rollouts."""
    reader = safe_page(page_of(root, SNAPSHOT.replace("2", "1")))
    classes = {value for _, name, value in reader.attributes if name == "class"}

    assert "✗ invalid" in reader.text
    assert "error MAN010" in reader.text
    assert not re.search(r"warning [A-Z]{3}[0-9]{3}.*error [A-Z]{3}[0-9]{3}", reader.text)
    assert {"differs", "finding error"} <= classes
    assert "not shown on this page: rollout_recovery.pt is damaged" in reader.text
    assert "is refused: the snapshot is invalid" in reader.text


def test_a_directory(root) -> None:
    """Anchors with their snapshots; one rollout through all of them where it was asked for."""
    (root / "step_3/rollout_snapshots/tmp_snapshot_000009").mkdir(exist_ok=True)
    reader = safe_page(page_of(root, rollout="g7_g0", level="standard"))

    assert "✗ invalid at level standard, the worst of what is shown" in reader.text
    assert ["snapshot_000003", "snapshot_000002", "snapshot_000001"] == re.findall(
        r"snapshot_00000\d(?= [✓✗] (?:valid|invalid) )", reader.text
    )[:3]
    assert "a snapshot that is being written, or was never finished" in reader.text
    assert 3 == sum(tag == "svg" and value == "picture" for tag, _, value in reader.attributes)
    assert "lock free" in reader.text
    assert "looks whole" in safe_page(page_of(root)).text
    assert "Anchor" in safe_page(page_of(root, "step_3")).text


def test_a_narrow_screen(root) -> None:
    """Rows become blocks whose cells name their columns, but for the first one, bars and what is empty."""
    found = safe_page(page_of(root)).attributes
    titled = [value for tag, name, value in found if (tag, name) == ("td", "data-title")]

    assert ("table", "class", "full rows") in found
    assert {"verdict", "age", "size", "groups", "continuations", "sessions"} <= set(titled)
    assert titled.count("verdict") == titled.count("sessions") > 1
    assert "@media (max-width: 34rem)" in STYLE
    assert ".rows td[data-title]::before" in STYLE


def test_names_in_sentences_are_set_apart() -> None:
    """Without their backquotes, and without becoming markup."""
    assert "a <code>b</code> and <code>&lt;i&gt;</code>, but `c" == prose("a `b` and `<i>`, but `c")


def test_times(root) -> None:
    """Bars in words too; what failed or has no end says so."""
    found = gather_page(offline_world(root), f"{root}/{SNAPSHOT}", None, None)
    first, *records = journal()
    failed = {"event": "failure", "step": "save", "at": 102.0, "code": "x", "message": "x"}
    whole = safe_page(html_page(replace(found, timings=inspection(journal(length_s=3.0), journal()))))
    broken = safe_page(
        html_page(
            replace(
                found, timings=inspection([first, *records[:3], failed]).model_copy(update={"admission_closed_s": None})
            )
        )
    )
    labels = [value for _, name, value in whole.attributes if name == "aria-label"]

    assert "begins at 1.50 s, servers are asked for 0.50 s of 1.00 s".replace("0.50 s", "500 ms") in labels
    assert "published snapshots (2)" in whole.text
    assert "admission was closed for 5.50 s" in whole.text
    assert "✗ failed" in broken.text
    assert "admission is not known to be open again" in broken.text


def test_an_unfinished_transaction_and_a_silent_owner(root) -> None:
    """Both are told in words."""
    found = gather_page(offline_world(root), str(root), None, None)
    from ckptctl.domain.inspection import LockView, TransactionView

    lock = LockView(owner="process 1 on n", is_dead=False, renewed_at=1.0, lease_s=60.0, silent_s=600.0)
    busy = TransactionView(
        name="000001-snapshot", kind="snapshot", checkpoint_id=None, began_at=None, last_step=None, uses=(), finished_by="ckptctl publish"
    )  # fmt: skip
    update = {"lock": lock, "unfinished": (busy,), "warnings": ("odd",)}
    reader = safe_page(html_page(replace(found, inspection=found.inspection.model_copy(update=update), made_at=1e300)))

    assert "! silent for 10 min" in reader.text
    assert "unfinished: 000001-snapshot under no id yet, at step none; ckptctl publish finishes it" in reader.text
    assert "a time that no calendar has" in reader.text


def test_hostile_names(tmp_path) -> None:
    """Names with escapes, markup, quotes and line ends are text: in a page of the directory and of the snapshot."""
    run_dir = hostile_run(tmp_path)
    snapshot = next(run_dir.glob("step_*/rollout_snapshots/snapshot_*"))
    for name in ("<script>alert(1)<", "x' onload='y", "&lt;b&gt;", '"><img src=x onerror=y>'):
        (snapshot / name).write_bytes(b"x")
    for path in (str(run_dir), str(snapshot)):
        text = html_page(gather_page(offline_world(run_dir), path, None, None))
        reader = safe_page(text)
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>alert(1)<" in reader.text
    assert '"><img src=x onerror=y>' in reader.text
    assert "&lt;b&gt;" in reader.text


def test_text_is_escaped() -> None:
    """In elements and in attributes, control characters too."""
    assert "&lt;a href=&quot;x&quot; b=&#x27;y&#x27;&gt;&amp;\\x1b" == t("<a href=\"x\" b='y'>&\x1b")


def test_readable_without_colour() -> None:
    """Every verdict has a sign and a word; both sets of colours and paper name every colour that is used."""
    used = set(re.findall(r"var\((--[a-z]+)\)", STYLE))

    assert 4 == len(set(VERDICT_SIGNS.values()))
    blocks = re.findall(r":root \{([^}]*)\}", STYLE)
    assert 3 == len(blocks)
    for block in blocks:
        assert used == set(re.findall(r"(--[a-z]+):", block)), block


def test_pictures_of_odd_rollouts(root) -> None:
    """Many calls, missing rows, sessions at another revision, a boundary that is not after the last call, nothing at all."""
    [story] = gather_page(offline_world(root), f"{root}/{SNAPSHOT}", "g7_g0", None).rollouts[0].stories
    first, current = story.attempts
    call, session = current.calls[0], current.sessions[0]
    calls = tuple(call.model_copy(update={"model_call_id": f"c{n}", "parent_call_id": f"c{n - 1}"}) for n in range(40))
    lost = tuple(row.model_copy(update={"state": "missing", "needed_by": ()}) for row in first.rows)
    odd = current.model_copy(
        update={
            "calls": calls,
            "sessions": (session.model_copy(update={"wanted_revision": 9}), session.model_copy(update={"wanted_revision": None})),
            "boundary": current.boundary.model_copy(update={"last_call": "c38"}),
        }
    )  # fmt: skip
    told = story.model_copy(update={"attempts": (first.model_copy(update={"rows": lost}), odd)})
    text = Reader(lineage_picture(told)).text
    fates = {
        decision: Reader(lineage_picture(story.model_copy(update={"fate": story.fate.model_copy(update={"decision": decision})}))).text
        for decision in ("restart", "reuse", "finished", "nothing", "refused")
    }  # fmt: skip

    assert "earlier calls: not drawn" in text
    assert "✗ row missing, not needed" in text
    assert "needed: 9" in text
    assert "no boundary needs it" in text
    assert {"restart": True, "reuse": True, "finished": True, "nothing": True, "refused": True} == {
        decision: words in fates[decision]
        for decision, words in (
            ("restart", "attempt 2 restarts"), ("reuse", "result kept"), ("finished", "finished group kept"),
            ("nothing", "not dispatched"), ("refused", "not restored"),
        )
    }  # fmt: skip
    assert "boundary restored" in Reader(lineage_picture(story.model_copy(update={"attempts": ()}))).text


def test_a_long_word_of_a_picture_takes_a_second_line(root) -> None:
    """In a box that is higher; no box reaches into the next one, and the whole of it stands in the title."""
    [story] = gather_page(offline_world(root), f"{root}/{SNAPSHOT}", "g7_g0", None).rollouts[0].stories
    first, current = story.attempts
    failed = current.calls[-1].model_copy(update={"problem": "failed: worker_capture_failed"})
    told = story.model_copy(update={"attempts": (first, current.model_copy(update={"calls": (failed, failed)}))})
    picture = lineage_picture(told)
    boxes = [tuple(map(int, found)) for found in re.findall(r'y="(\d+)" width="174" height="(\d+)"', picture)]

    assert ">✗ failed:</text>" in picture
    assert ">worker_capture_failed</text>" in picture
    assert 2 == len([height for _, height in boxes if height > min(height for _, height in boxes)])
    assert [] == [top for (top, height), (below, _) in pairwise(boxes) if top + height >= below - 11]


def test_what_has_no_page(root, tmp_path) -> None:
    """A data plane, nothing, a rollout that nobody names; a run that has only begun has one."""
    with pytest.raises(UsageError, match="`--html` is about a snapshot"):
        page_of(root, f"{SNAPSHOT}/data_plane")
    with pytest.raises(NothingThereError, match="no rollout `g9_g9`"):
        page_of(root, SNAPSHOT, "g9_g9")
    with pytest.raises(NothingThereError):
        page_of(tmp_path)
    (tmp_path / ".ckptctl").mkdir()

    assert "lock free" in safe_page(page_of(tmp_path)).text


def test_from_the_command_line(root, tmp_path) -> None:
    """The answer stays what it is; the page is told on stderr; a file is replaced whole, and keeps its mode."""
    file = tmp_path / "page.html"
    file.write_text("old")
    file.chmod(0o600)
    ran = run("inspect", f"{root}/{SNAPSHOT}", "--html", str(file))
    plain = run("inspect", f"{root}/{SNAPSHOT}")
    story = run("inspect", f"{root}/{SNAPSHOT}", "--html", str(file), "--rollout", "g7_g0")
    as_json = run("inspect", str(root), "--html", str(file), "--format", "json", "-q")

    assert (plain.status, f"page: {file} (") == (ran.status, ran.stderr[: len(f"page: {file} (")])
    assert re.sub(r"[0-9.]+ (ms|s|min) ago", "", plain.stdout) == re.sub(r"[0-9.]+ (ms|s|min) ago", "", ran.stdout)
    assert story.stdout.startswith("rollout g7_g0 in ")
    assert ("checkpoint_dir", "") == (json.loads(as_json.stdout)["kind"], as_json.stderr)
    assert 0o600 == file.stat().st_mode & 0o777
    assert file.read_text().startswith("<!DOCTYPE html>")


def test_places_that_are_refused(root, tmp_path) -> None:
    """Where `--output` may not write, a page is not written either; nothing is done then."""
    config = tmp_path / "run.yaml"
    config.write_text(f"checkpointing: {{checkpoint_dir: {root}}}\n")
    before = config.read_text()
    (tmp_path / "folder").mkdir()
    snapshot = f"{root}/{SNAPSHOT}"

    assert 2 == run("inspect", snapshot, "--html", f"{snapshot}/page.html").status
    assert 2 == run("inspect", snapshot, "--html", f"{root}/.ckptctl/page.html").status
    assert 2 == run("inspect", "--html", str(config), "--config", str(config)).status
    assert 2 == run("inspect", snapshot, "--html", str(tmp_path / "a"), "--output", str(tmp_path / "a")).status
    assert 2 == run("inspect", snapshot, "--html", str(tmp_path / "folder")).status
    assert 32 == run("inspect", snapshot, "--html", str(tmp_path / "gone/page.html")).status
    assert 2 == run("inspect", snapshot, "--html", str(tmp_path / "a"), "--timings").status
    assert 2 == run("inspect", snapshot, "--html", str(tmp_path / "a"), "--bundle", str(tmp_path / "a")).status
    assert before == config.read_text()
    assert ["folder", "run.yaml"] == sorted(os.listdir(tmp_path))
