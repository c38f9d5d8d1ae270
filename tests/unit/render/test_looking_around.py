"""How `gc` and `inspect` read: whole at 80 and 120 columns, without colour, and harmless whatever files and servers are called."""

from __future__ import annotations

import json
import os
import re

import pytest

from ckptctl.domain.amounts import duration
from ckptctl.domain.inspection import (
    ControllerView,
    LiveInspection,
    LiveProblem,
    LockView,
    RolloutView,
    ServerView,
    TransactionView,
    UnclaimedSession,
)
from ckptctl.domain.retention import GcDone, GcPolicy, GcRequest, GcResult
from ckptctl.render.gc_text import gc_text
from ckptctl.render.inspect_live_text import live_text
from ckptctl.render.inspect_text import inspection_text
from ckptctl.workflows.gc import run_gc
from ckptctl.workflows.inspect import run_inspection
from tests.runs import a_run, damage, offline_world
from tests.workflows.test_gc import SNAPSHOT_FACTS, beside

HOSTILE = "x\x1b[31m\x07\u202e[bold red]y[/]\nerror: forged"
SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"
ID = "rollout-step-3-snapshot-2-0f0e0d0c0b0a09080706050403020100"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A directory in which there is a bit of everything."""
    root = a_run(tmp_path_factory.mktemp("run"), step_3=2, bootstrap=1)
    beside(root, "tmp_snapshot_000009", age_s=600)
    run_gc(offline_world(root), str(root), GcRequest(pin="step_3/snapshot_000001", reason="figure 3"))
    run_gc(offline_world(root), str(root), GcRequest())
    offline_world(root).journal.begin("snapshot", {**SNAPSHOT_FACTS, "final": SNAPSHOT})
    return root


def texts(run_dir, width: int) -> list[str]:
    """Every kind of answer, as a terminal of that width shows it."""
    world = offline_world(run_dir)
    overview = run_inspection(world, str(run_dir))
    depth = run_inspection(world, f"{run_dir}/{SNAPSHOT}")
    planned = run_gc(world, str(run_dir), GcRequest(dry_run=True, keep=1))
    return [
        inspection_text(overview, to_terminal=True, width=width),
        inspection_text(depth, to_terminal=True, width=width),
        gc_text(planned, to_terminal=True, width=width),
        live_text(a_live(), to_terminal=True, width=width),
    ]


def a_server(name: str = "policy_model", **facts) -> ServerView:
    return ServerView.model_validate(
        {
            "server_name": name,
            "is_answering": True,
            "component": "responses_api_models",
            "participant_name": name,
            "instance_role": "policy",
            "checkpoint_mode": "export_restore",
            "phase": "committed_paused",
            "active_checkpoint_id": ID,
            "deadline_ts": 1000.0,
            "workers": 2,
            "admission": "draining",
            "calls_in_flight": 1,
            **facts,
        }
    )


def a_live(**facts) -> LiveInspection:
    controller = ControllerView(
        instance_id="i-1",
        phase="closed",
        admission="closed",
        active_checkpoint_id=ID,
        train_step=3,
        trainer_version=3,
        epoch=0,
        mutation_version=77,
        unfinished_rollouts=1,
        acknowledgements_pending=0,
        anchor=None,
        checkpoint_dir="/run",
        data_plane="embedded",
        storage_units=2,
        takes_own_snapshots=False,
        restore_expected=True,
        trainer_busy=True,
    )
    values = {
        "config_path": "run.yaml",
        "checkpoint_dir": "/run",
        "observed_at": 990.0,
        "would_snapshot": False,
        "exit_code": 31,
        "problems": (
            LiveProblem(about="topology", code="discovery-refused", exit_code=20, message="two actors", hint="leave one"),
            LiveProblem(about="counter", code="unreachable", exit_code=30, message="`counter` is gone", hint=None),
        ),
        "warnings": ("`a` calls itself `b`",),
        "servers": (
            ServerView(server_name="counter", is_answering=False),
            a_server(),
            a_server("simple_agent", component="responses_api_agents", calls_in_flight=None, running=2, parked=1, deadline_ts=980.0),
        ),
        "topology_fingerprint": "a" * 64,
        "unclaimed_sessions": (
            UnclaimedSession(
                server_name="counter", rollout_id="g7_g0", attempt_index=1, revision=None, since=900.0, age_s=90.0, told_by="journal"
            ),
        ),
        "controller": controller,
        "unfinished": (
            TransactionView(
                name="000002-snapshot", kind="snapshot", checkpoint_id=ID, began_at=1.0, last_step="save",
                uses=(SNAPSHOT,), finished_by="ckptctl publish",
            ),
        ),
        "lock": LockView(owner="process 12 on node-1", is_dead=False, renewed_at=980.0, lease_s=60.0, silent_s=None),
        **facts,
    }  # fmt: skip
    return LiveInspection.model_validate(values)


@pytest.mark.parametrize("width", [80, 120])
def test_everything_fits_the_terminal(run_dir, monkeypatch, width) -> None:
    """No line is longer than the terminal is wide, nothing is cut with dots, and without colour there is not one escape.

    A path stays whole, however long: how long that of the test is, is for who runs it to say.
    """
    monkeypatch.setenv("NO_COLOR", "1")
    for text in texts(run_dir, width):
        lines = text.replace(str(run_dir), "/run").splitlines()
        assert max(len(line) for line in lines) <= width
        assert "\x1b" not in text
        assert "\u2026" not in text


def test_names_stay_whole_at_80_columns(run_dir, monkeypatch) -> None:
    """What one copies into the next command is on one line: snapshots, checkpoint ids, paths, entries."""
    monkeypatch.setenv("NO_COLOR", "1")
    overview, depth, planned, live = texts(run_dir, 80)

    assert f"  snapshot_000002 is {ID}" in overview.splitlines()
    assert "  snapshot_000001 is pinned: figure 3" in overview.splitlines()
    assert f"  checkpoint id {ID}" in depth.splitlines()
    assert SNAPSHOT in planned
    assert f"held under {ID}:" in live.splitlines()


def test_colour_only_where_it_is_wanted(run_dir, monkeypatch) -> None:
    """A terminal gets it, a pipe does not; and the words are the same."""
    monkeypatch.setenv("TERM", "xterm-256color")
    overview = run_inspection(offline_world(run_dir), str(run_dir))
    coloured = inspection_text(overview, to_terminal=True, width=160)
    plain = inspection_text(overview, to_terminal=False)

    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


def test_what_a_snapshot_in_depth_says(run_dir) -> None:
    """The table of rollouts: below its group, with attempt, boundary, turn, rows and revisions."""
    text = inspection_text(run_inspection(offline_world(run_dir), f"{run_dir}/{SNAPSHOT}"), to_terminal=False)
    lines = [" ".join(line.split()) for line in text.splitlines()]

    assert "group g7" in lines
    assert "_g0 1 dispatched turn_complete 2 3 tools 4" in lines
    assert "_g1 0 sealed - - 2" in lines
    assert "rollout_staging 9 24 216" in lines
    assert "bound to step 3, version 3, epoch 0, sampler windowed, mode authoritative" in lines


def test_long_lists_are_cut_and_say_so(run_dir) -> None:
    """25 groups and 25 finished ones: 20 of each and how many more; all of them with -v."""
    result = run_inspection(offline_world(run_dir), f"{run_dir}/{SNAPSHOT}")
    rollouts = tuple(
        RolloutView.model_validate({**result.rollouts[0].model_dump(), "group_id": f"g{at}", "rollout_id": f"g{at}_g0"})
        for at in range(25)
    )
    many = result.model_copy(update={"rollouts": rollouts, "replay": result.replay[:1] * 25})
    short = inspection_text(many, to_terminal=False)

    assert 2 == short.count("and 5 groups more (`-v`, or `--format json`)")
    assert "group g24" not in short
    assert "group g24" in inspection_text(many, verbose=1, to_terminal=False)


def test_findings_of_a_damaged_snapshot(tmp_path) -> None:
    """The first findings, and what could not be shown because of them."""
    root = a_run(tmp_path, step_3=1)
    damage(root, "step_3", 1)
    path = root / "step_3/rollout_snapshots/snapshot_000001"
    for at in range(9):
        (path / f"stranger-{at}").write_bytes(b"")
    result = run_inspection(offline_world(root), str(path))
    many = result.model_copy(update={"unread": result.unread * 7})
    text = inspection_text(many, to_terminal=False)

    assert "invalid at level standard (must not be restored)" in text
    assert "(and 8 more like this)" in text
    assert "  all findings, and what to do: `ckptctl validate " in text
    assert "not shown: rollout_recovery.pt is damaged" in text
    assert "and 2 parts more" in text


def test_live_answers(monkeypatch) -> None:
    """Ready or not, with every reason once; who holds whom and until when; a controller that is silent."""
    monkeypatch.setenv("NO_COLOR", "1")
    text = live_text(a_live(), to_terminal=False)
    ready = live_text(
        a_live(would_snapshot=True, problems=(), unfinished=(), lock=None, controller=None, servers=(), exit_code=0),
        to_terminal=False,
    )

    assert "live: not ready for a snapshot (2 reasons)" in text
    assert "error[discovery-refused]: topology: two actors\n  hint: leave one" in text
    assert "error[unreachable]: `counter` is gone" in text
    assert "and so does `ckptctl gc --config run.yaml --sessions`" in text
    assert "running: 000002-snapshot" in text
    assert "deadline in 10 s" in text
    assert "deadline passed 10 s ago" in text
    assert "draining, 1 call in flight" in text
    assert "2 running, 1 parked" in text
    assert "waits for a restore, publishes a trainer step" in text
    assert "live: ready for a snapshot" in ready
    assert "controller: no answer" in ready


def test_one_hint_for_problems_that_share_it() -> None:
    """It stands below the last of them."""
    gone = [
        LiveProblem(
            code="unreachable",
            exit_code=30,
            about=name,
            message=f"`{name}` is gone",
            hint="start it, then `ckptctl restore`",
        )
        for name in ("counter", "agent")
    ]
    text = live_text(a_live(problems=tuple(gone)), to_terminal=False)
    hint = "hint: start it, then `ckptctl restore --config run.yaml`"

    assert f"error[unreachable]: `counter` is gone\nerror[unreachable]: `agent` is gone\n  {hint}\n" in text


def test_every_outcome_of_gc() -> None:
    """Each has a word of its own, and failures say what happened."""
    facts = {"path": SNAPSHOT, "kind": "snapshot", "reasons": ("a reason",), "size_bytes": 2048}
    items = [
        GcDone(**facts, action="keep", outcome="kept"),
        GcDone(**facts, action="trash", outcome="moved", trash_entry="5.step_3.snapshot_000002"),
        GcDone(**facts, action="delete", outcome="deleted"),
        GcDone(**facts, action="delete", outcome="gone"),
        GcDone(**facts, action="delete", outcome="held_open"),
        GcDone(**facts, action="delete", outcome="failed", problem="no permission"),
    ]
    text = gc_text(
        GcResult(
            outcome="collected", checkpoint_dir="/run", policy=GcPolicy(), items=tuple(items), warnings=("careful",)
        ),
        to_terminal=False,
    )

    assert "collected: 1 trashed, 1 deleted, 1 gone, 1 held open, 1 FAILED (10 KiB), 1 kept" in text
    assert "in the trash as 5.step_3.snapshot_000002\n" in text
    assert "\n  `ckptctl gc /run --undelete NAME` brings one back from the trash\n" in text
    assert "- no permission" in text
    assert "warning: careful" in text


def test_reasons_of_gc_on_narrow_terminals(monkeypatch) -> None:
    """Below their item, and further left where it is narrow; a command is never torn."""
    monkeypatch.setenv("NO_COLOR", "1")
    item = GcDone(
        path=".ckptctl/trash/5.step_3.snapshot_000002", kind="trashed", action="keep", outcome="kept", size_bytes=None,
        reasons=("its grace period ends on 2026-12-01 at 14:03:02 UTC; `--undelete` brings it back",),
    )  # fmt: skip
    result = GcResult(outcome="planned", checkpoint_dir="/my runs/a", policy=GcPolicy(), items=(item,))
    wide, narrow = (gc_text(result, to_terminal=True, width=width).splitlines()[4:] for width in (80, 40))

    assert [
        "  keep          .ckptctl/trash/5.step_3.snapshot_000002",
        "                - its grace period ends on 2026-12-01 at 14:03:02 UTC",
        "  `ckptctl gc '/my runs/a' --undelete NAME` brings one back from the trash",
    ] == wide
    assert "    - its grace period ends on" in narrow
    assert "  `ckptctl gc '/my runs/a' --undelete NAME`" in narrow


@pytest.mark.parametrize("outcome", ["undeleted", "pinned", "unpinned"])
def test_single_wishes(outcome) -> None:
    """One line says what was done to what."""
    result = GcResult(outcome=outcome, checkpoint_dir="/run", snapshot=SNAPSHOT)

    assert f"{outcome}: {SNAPSHOT}\n" == gc_text(result, to_terminal=False)

    warned = result.model_copy(update={"warnings": ("`ckptctl gc --pin a --reason TEXT` keeps it",)})
    assert "  warning: `ckptctl gc /run --pin a --reason TEXT` keeps it\n" in gc_text(warned, to_terminal=False)


def test_hostile_names(run_dir) -> None:
    """Whatever a file or a server says of itself: no escape, no markup, no line of its own, in text and in JSON."""
    world = offline_world(run_dir)
    overview = run_inspection(world, str(run_dir))
    anchor = overview.anchors[0]
    hostile_snapshot = anchor.snapshots[0].model_copy(
        update=dict.fromkeys(("name", "checkpoint_id", "pinned", "used_by"), HOSTILE) | {"problems": (HOSTILE,)}
    )
    hostile_anchor = anchor.model_copy(
        update={"name": HOSTILE, "problems": (HOSTILE,), "snapshots": (hostile_snapshot,)}
    )
    transaction = overview.unfinished[0].model_copy(
        update={"name": HOSTILE, "checkpoint_id": HOSTILE, "last_step": HOSTILE, "uses": (HOSTILE,)}
    )
    lock = LockView(owner="o", is_dead=True, renewed_at=1.0, lease_s=60.0, silent_s=None).model_copy(
        update={"owner": HOSTILE}
    )
    directory = overview.model_copy(
        update={
            "path": HOSTILE,
            "anchors": (hostile_anchor,),
            "warnings": (HOSTILE,),
            "unfinished": (transaction,),
            "lock": lock,
            "leftovers": (overview.leftovers[0].model_copy(update={"path": HOSTILE, "what": HOSTILE}),),
        }
    )
    done = GcDone(path=HOSTILE, kind="trashed", action="keep", reasons=(HOSTILE,), outcome="kept", problem=HOSTILE)
    collected = GcResult(
        outcome="collected", checkpoint_dir=HOSTILE, policy=GcPolicy(), items=(done,), warnings=(HOSTILE,)
    )
    server = a_server().model_copy(
        update=dict.fromkeys(("server_name", "phase", "checkpoint_mode", "active_checkpoint_id"), HOSTILE)
    )
    live = a_live().model_copy(
        update={"servers": (server,), "config_path": HOSTILE, "unfinished": (transaction,), "lock": lock}
    )
    shown = [
        inspection_text(directory, to_terminal=True, width=80),
        gc_text(collected, to_terminal=True, width=80),
        live_text(live, to_terminal=True, width=80),
    ]

    for text in shown:
        bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert not [line for line in bare.splitlines() if line.startswith("error: forged")]
        assert "\x1b" not in bare
        assert "\u202e" not in bare
        assert "[bold red]" in bare.replace("\n", "")


def test_documents_clean_what_they_are_given() -> None:
    """A text of a file or a server is made safe when the document is made, so JSON is safe too."""
    server = ServerView(server_name=HOSTILE, is_answering=True, features=(HOSTILE,), phase=HOSTILE)
    text = json.dumps(server.model_dump(mode="json"), ensure_ascii=False)

    assert not [character for character in text if ord(character) < 32 or character == "\u202e"]


def test_durations_for_people() -> None:
    """The largest unit of which there is one."""
    assert ["0 s", "59 s", "1 min", "1.5 h", "23 h", "1 d", "400 d"] == [
        duration(seconds) for seconds in (0, 59, 60, 5400, 23 * 3600, 86_400, 400 * 86_400)
    ]


def test_no_secret_is_shown(tmp_path) -> None:
    """A token in `config.yaml` is a finding by its key, never by its value."""
    root = a_run(tmp_path, step_3=1)
    config = root / "step_3/rollout_snapshots/snapshot_000001/config.yaml"
    config.write_text(config.read_text() + "\nsecret_service:\n  api_key: hunter2-hunter2\n")
    os.chmod(config, 0o644)
    result = run_inspection(offline_world(root), str(config.parent))

    assert "hunter2" not in inspection_text(result, verbose=2, to_terminal=False) + result.model_dump_json()


def test_a_silent_owner_is_not_at_work() -> None:
    """It is said to be silent, for how long, and that what it did may be stuck; one that is heard of is at work."""
    silent = LockView(owner="process 12 on node-1", is_dead=False, renewed_at=1.0, lease_s=60.0, silent_s=720.0)
    text = live_text(a_live(lock=silent))

    assert "process 12 on node-1, ! silent for 12 min by this host's clock" in text
    assert "running or stuck: 000002-snapshot" in text
    assert "at work" not in text
    assert "process 12 on node-1, at work" in live_text(a_live())
    assert "  running: 000002-snapshot" in live_text(a_live())


def test_sessions_that_nobody_claims() -> None:
    """A table with their age; who told it, and what is done about it."""
    [left] = a_live().unclaimed_sessions
    now = left.model_copy(update={"revision": 4, "since": None, "age_s": None, "told_by": "servers"})
    by_journal, by_servers = live_text(a_live()), live_text(a_live(unclaimed_sessions=(now,) * 25))
    held = a_server("counter", component="resources_servers", calls_in_flight=None, sessions=3, uncertain_sessions=1)

    assert "sessions that no rollout claims (as the last restore left them, says its journal)" in by_journal
    assert re.search(r"counter +g7_g0 +1 +- +1.5 min", by_journal)
    assert "(as the servers say)" in by_servers
    assert re.search(r"counter +g7_g0 +1 +4 +[?]", by_servers)
    assert "and 5 more" in by_servers
    assert "3 sessions; ! 1 uncertain: only a restart of this server helps" in " ".join(
        live_text(a_live(servers=(held,))).split()
    )
    assert "no rollout claims" not in live_text(a_live(unclaimed_sessions=()))
