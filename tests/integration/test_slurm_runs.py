"""Runs of a job on a real Slurm of one node that meet each other or are ended: what is published, what is not, and how the node ends up.

The clusters of two runs that overlap have folders of their own and one checkpoint directory: a bind mount, as two nodes see one
shared file system.
"""

import os
import re
import signal
import subprocess
from contextlib import contextmanager

from tests.integration.slurm_jobs import LIFE, at_step, contents, said, signal_owner
from tests.integration.slurm_node import needs_slurm, until

pytestmark = needs_slurm
CLUSTER = "--prompts 2 --turns 1000 --turn-delay 0.3 --quiet"
OVERLAP = f"""\
#!/bin/bash
# NODE stands for the node: the folder of its cluster. The trainers of both jobs write the same checkpoints.
ckptctl sim up --dir "$NODE" {CLUSTER} $SERVERS >>up.txt || exit
source <(ckptctl slurm show job-functions) || exit
ckptctl_begin || exit
echo "$NODE begun: from=$CKPTCTL_RESUME_FROM"
ckptctl_restore || exit
ckptctl sim run --dir "$NODE" --quiet || exit
for number in 1 2 3; do
  ckptctl snapshot --force --quiet
  status=$?
  echo "$NODE attempt $number: $status"
  [ "$status" -ne 21 ] || break
  until [ -e "$NODE-go-$number" ]; do sleep 0.1; done
done
[ "$status" -ne 21 ] || for command in publish gc restore; do
  ckptctl $command --quiet
  echo "$NODE $command: $?"
done
exit "$status"
"""
EVERY = f"""\
#!/bin/bash
ckptctl sim up --dir run {CLUSTER} >up.txt || exit
ckptctl sim run --dir run --quiet || exit
# The limit is moved to below Slurm's shortest, a minute; Slurm looks twice a minute.
(until grep -q 'round 1: published' out.txt; do sleep 0.1; done; scontrol update jobid="$SLURM_JOB_ID" endtime=now+1) &
exec ckptctl snapshot --every 1d --jitter 0s --last-within 4s # no shell that TERM would end first
"""


@contextmanager
def shared(folder, *names):
    """Folders of nodes that see one checkpoint directory."""
    common = folder / "shared"
    common.mkdir()
    mounts = []
    try:
        for name in names:
            (folder / name / "checkpoints").mkdir(parents=True)
            subprocess.run(["mount", "--bind", common, folder / name / "checkpoints"], check=True)
            mounts.append(folder / name / "checkpoints")
        subprocess.run(["chown", "-R", f"--reference={folder}", folder], check=True)
        yield common
    finally:
        for mount in mounts:
            subprocess.run(["umount", "--lazy", mount], check=False)


def test_a_run_that_was_taken_over_publishes_nothing(slurm, told):
    """It stands still in the middle of a snapshot, as on a node that is lost and comes back. Meanwhile its successor, a job of its
    own, claims the directory, breaks the lock, restores, goes on and publishes. The servers of both are alive throughout."""
    folder = slurm.folder("overlap")
    with shared(folder, "old", "new") as checkpoint_dir:
        jobs = {}

        def begin(node, servers):
            config = f"{folder}/{node}/ckptctl.yaml"
            jobs[node] = slurm.submit(
                folder, OVERLAP, NODE=node, SERVERS=servers, CKPTCTL_CONFIG=config, CKPTCTL_PAUSE="2"
            )

        begin("old", "")
        said(folder, "old attempt 1: 0")
        before = contents(checkpoint_dir)
        old = folder / "old"
        slow = ("--server", "controller", "--operation", "save", "--kind", "slow", "--delay", "5")
        slurm.user_runs("ckptctl", "sim", "fault", "--dir", old, *slow, cwd=folder)
        (folder / "old-go-1").touch()
        at_step(checkpoint_dir, "save")
        asleep = signal_owner(checkpoint_dir, signal.SIGSTOP)
        os.utime(checkpoint_dir / ".ckptctl" / "lock", (1, 1))  # its lease is over

        begin("new", "--restore-expected")
        said(folder, "new attempt 1: ")
        of_new = contents(checkpoint_dir)
        os.kill(asleep, signal.SIGCONT)
        said(folder, "old attempt 2: ")
        (folder / "old-go-2").touch()
        words = said(folder, "old restore: ")
        ends = {"old": slurm.finished(jobs["old"])["ExitCode"]}
        after = contents(checkpoint_dir)
        for number in (1, 2, 3):
            (folder / f"new-go-{number}").touch()
        ends["new"] = slurm.finished(jobs["new"])["ExitCode"]
    state = slurm.settled()
    told.append(f"{'a run is taken over in the middle':<46} {ends['old']:<10} {'':<28} {state}")

    assert f"new begun: from={folder}/new/checkpoints/bootstrap/rollout_snapshots/snapshot_000001" in words
    assert "new attempt 1: 0" in words
    assert ["22", "21", "21", "21", "21"] == re.findall(
        r"^old (?:attempt [23]|publish|gc|restore): (\d+)$", words, re.MULTILINE
    )
    assert before == {path: of_new[path] for path in before}
    # The number of the attempt that the successor found and undid is nobody's.
    assert {"snapshot_000003"} == {path.split("/")[2] for path in of_new.keys() - before.keys()}
    assert of_new == after
    assert ({"old": "21:0", "new": "0:0"}, "idle") == (ends, state)


def newest_in(checkpoint_dir):
    """The newest snapshot; empty when there is none."""
    return str(max(checkpoint_dir.glob("bootstrap/rollout_snapshots/snapshot_*"), default=""))


def slow_policy_calls(slurm, folder):
    """From now on each takes longer than any grace."""
    slow = ("--server", "policy_model", "--operation", "generate", "--kind", "slow", "--delay", "600", "--times", "0")
    slurm.user_runs("ckptctl", "sim", "fault", "--dir", "run", *slow, cwd=folder)


def test_how_a_job_ends(slurm, told):
    """TERM to all, and KILL after KillWait. Between them a last snapshot; one that would last too long is aborted in time; one that
    does not heed the time is killed in the middle. The newest whole snapshot is what the next job begins with, each time.

    Meanwhile another job is ended by its time limit: `snapshot --every` takes one more, and ends before KILL."""
    limited = slurm.folder("limit")
    limited_job = slurm.submit(limited, EVERY, CKPTCTL_CONFIG=f"{limited}/run/ckptctl.yaml")
    folder = slurm.folder("cancelled")
    config = {"CKPTCTL_CONFIG": f"{folder}/run/ckptctl.yaml"}
    checkpoint_dir = folder / "run" / "checkpoints"
    lines = []

    def cancelled(kind, **variables):
        """A job from its beginning to its end: its words, whether it changed a snapshot, what the Epilog found unfinished."""
        (folder / "out.txt").unlink(missing_ok=True)
        from_ = newest_in(checkpoint_dir)
        job_id = slurm.submit(folder, LIFE, **config, PERIODIC="yes", TURNS="1000", DELAY="0.3", **variables)
        assert f"begun: restart=0 from={from_}\n" in said(folder, "round 1: published")
        if variables:
            slow_policy_calls(slurm, folder)
        before = contents(checkpoint_dir)
        slurm.root_runs("scancel", job_id)
        assert "CANCELLED" == slurm.finished(job_id)["JobState"]
        until(lambda: slurm.verdict(job_id, "epilog"), "the Epilog says nothing")
        found = slurm.verdict(job_id, "epilog")
        lines.append(f"{'scancel: ' + kind:<46} {'CANCELLED':<10} {found['verdict']:<28}")
        assert "valid" == found["verdict"]
        return (folder / "out.txt").read_text(), before == contents(checkpoint_dir), found["unfinished"]

    words, is_unchanged, unfinished = cancelled("a last snapshot")
    assert ("watched: status=0 by=TERM" in words, is_unchanged, unfinished) == (True, False, 0), words
    words, is_unchanged, unfinished = cancelled("aborted in time", CKPTCTL_TERM_GRACE="2s")
    assert ("watched: status=22 by=TERM" in words, is_unchanged, unfinished) == (True, True, 0), words
    words, is_unchanged, unfinished = cancelled("killed in the middle", CKPTCTL_TERM_GRACE="60s")
    assert ("watched:" in words, is_unchanged, unfinished) == (False, True, 1), words
    slurm.user_runs("ckptctl", "publish", cwd=folder, **config)  # the next one to come by undoes it and releases
    selected = slurm.user_runs("ckptctl", "restore", "--select", cwd=folder, **config).stdout.strip()
    assert newest_in(checkpoint_dir) == selected

    end, state = slurm.finished(limited_job)["JobState"], slurm.settled()
    words = (limited / "out.txt").read_text()
    lines.append(f"{'time limit: snapshot --every':<46} {end:<10} {'':<28}")
    told += [f"{line} {state}" for line in lines]
    assert ("TIMEOUT", "idle") == (end, state)
    assert [True, True] == ["round 2: published" in words, "the last one" in words], words
    assert newest_in(limited / "run" / "checkpoints").endswith("snapshot_000002")
    assert not (limited / "run" / "checkpoints" / ".ckptctl" / "lock").exists()
