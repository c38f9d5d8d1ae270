"""`gc --dry-run` is what then happens: for any directory and any policy the same items, reasons, sizes and packs, and the disk agrees."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.builders import write_tree
from tests.command_line import run
from tests.runs import damage, run_files


@st.composite
def directories(draw):
    """What lies in a checkpoint directory: anchors with snapshots, some damaged or pinned, leftovers of writers, and our trash."""
    anchors = {
        name: draw(st.integers(0, 3)) for name in draw(st.sets(st.sampled_from(["bootstrap", "step_3"]), min_size=1))
    }
    there = [(anchor, number) for anchor, count in anchors.items() for number in range(1, count + 1)]
    some = st.sets(st.sampled_from(there)) if there else st.just(set())
    return {
        "anchors": anchors,
        "damaged": draw(some),
        "pinned": draw(some),
        "tmp_age_s": draw(st.sampled_from([None, 0, 100_000])),
        "has_trash": draw(st.booleans()),
        "trashed": draw(st.sets(st.sampled_from([(1, False), (2, True), (3, False)]))),
        "trashed_whole": draw(some),
        "is_torn": draw(st.booleans()),
    }


def build(root: Path, wanted) -> None:
    counts = {name: count for name, count in wanted["anchors"].items() if count}
    write_tree(root, run_files(**counts) if counts else {})
    for name in wanted["anchors"]:
        (root / name / "rollout_snapshots").mkdir(parents=True, exist_ok=True)
    for anchor, number in wanted["damaged"]:
        damage(root, anchor, number)
    for anchor, number in wanted["pinned"]:
        path = f"{anchor}/snapshot_{number:06d}"
        assert 0 == run("gc", str(root), "--pin", path, "--reason", "kept").status
    folder = root / next(iter(wanted["anchors"])) / "rollout_snapshots"
    if wanted["tmp_age_s"] is not None:
        staged = folder / "tmp_snapshot_000009"
        staged.mkdir()
        (staged / "part").write_bytes(b"half")
        when = time.time() - wanted["tmp_age_s"]
        for path in (staged / "part", staged):
            os.utime(path, (when, when))
    if wanted["has_trash"]:
        (folder / "trash_snapshot_000001").mkdir()
        (folder / "trash_snapshot_000001" / "rest").write_bytes(b"rest")
        for path in (folder / "trash_snapshot_000001" / "rest", folder / "trash_snapshot_000001"):
            os.utime(path, (time.time() - 7200,) * 2)
    for number, is_old in wanted["trashed"]:
        at = int(time.time()) - (200_000 if is_old else 10)
        entry = root / ".ckptctl" / "trash" / f"{at}.step_3.snapshot_{number:06d}"
        entry.mkdir(parents=True)
        (entry / "part").write_bytes(b"x" * number)
    for anchor, number in wanted["trashed_whole"]:
        entry = root / ".ckptctl" / "trash" / f"{int(time.time()) - 200_000}.{anchor}.snapshot_{number:06d}"
        entry.parent.mkdir(parents=True, exist_ok=True)
        if not entry.exists():
            (root / anchor / "rollout_snapshots" / f"snapshot_{number:06d}").rename(entry)
    if wanted["is_torn"]:
        (root / ".ckptctl" / "trash" / "going.1.step_3.snapshot_000007").mkdir(parents=True)


def content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "/.ckptctl/journal/" not in f"/{path.relative_to(root)}"
    }


def answer(*words) -> dict:
    done = run("gc", *words, "--format", "json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # one example takes half a second: it is told as it was found
)
@given(
    wanted=directories(),
    keep=st.integers(1, 3),
    least=st.integers(1, 2),
    grace=st.sampled_from(["0s", "1d", "52w"]),
    is_packed=st.booleans(),
)
def test_a_dry_run_is_what_then_happens(tmp_path_factory, wanted, keep, least, grace, is_packed):
    """Nothing changes in the dry run; afterwards what was to go is gone, and what was to stay has its very bytes."""
    base = tmp_path_factory.mktemp("gc")
    root, packs = base / "run", base / "packs"
    packs.mkdir()
    build(root, wanted)
    words = (str(root), "--keep", str(keep), "--min-valid", str(least), "--grace", grace)
    words += ("--archive", str(packs)) if is_packed else ()
    before = content(base)

    planned = answer(*words, "--dry-run")

    assert before == content(base)

    done = answer(*words)
    after = content(root)

    facts = ("path", "kind", "action", "reasons", "size_bytes", "pack")
    assert [[item[key] for key in facts] for item in planned["items"]] == [
        [item[key] for key in facts] for item in done["items"]
    ]
    assert all(item["reasons"] for item in planned["items"])
    assert {"planned", "kept"} >= {item["outcome"] for item in planned["items"]}
    for item in done["items"]:
        mine = {path for path in after if path.startswith(f"{item['path']}/")}
        was = {path: data for path, data in before.items() if path.startswith(f"run/{item['path']}/")}
        if item["action"] == "keep":
            assert was == {f"run/{path}": after[path] for path in mine}
        else:
            assert set() == mine
        if item["action"] == "trash":
            moved = f".ckptctl/trash/{item['trash_entry']}/"
            assert sorted(was.values()) == sorted(data for path, data in after.items() if path.startswith(moved))
    again = answer(*words)
    assert set() == {item["path"] for item in again["items"] if item["action"] == "trash"}
    shutil.rmtree(base)
