"""Hooks and batch scripts on a real Slurm of one node: what each kind of failure does to the node, and a run that lives through a requeue.

Everything is as `ckptctl slurm show` prints it. tests/integration/run.sh installs Slurm and a Python that hooks and jobs may start.
"""

import json
import os
import shutil

import pytest

from tests.goldens import SAMPLES
from tests.integration.dead_mount import DeadMount
from tests.integration.slurm_jobs import LIFE, PLAIN, in_flight
from tests.integration.slurm_node import JOB_USER, NODE, NOTHING, PYTHON, needs_slurm, until

pytestmark = needs_slurm
HOOKS = ("prolog", "epilog", "task-prolog")


def a_run(slurm, name):
    """A folder with a checkpoint directory of the samples and its configuration."""
    folder = slurm.folder(name)
    shutil.copytree(SAMPLES / "turn", folder / "turn")
    shutil.copy(SAMPLES / "turn.yaml", folder / "turn.yaml")
    slurm.root_runs("chown", "-R", JOB_USER, folder)
    return folder


def make_damaged(folder):
    for manifest in (folder / "turn").rglob("rollout_snapshots/*/manifest.json"):
        manifest.write_bytes(b"torn")
    return "ckpt=turn"


def make_fifo(folder):
    os.mkfifo(folder / "pipe")
    return "ckpt=pipe"


def make_hostile(folder):
    return "ckpt=/x\nWorkDir=/etc\nexport LD_PRELOAD=/evil.so $(reboot) \x1b[2J"


def make_escapes(folder):
    return "ckpt=turn/\x1b]0;x\x07"


def make_foreign_marker(folder):
    (folder / ".ckptctl-job").write_text("turn\n")
    return "a night run"


def make_marker(folder):
    comment = make_foreign_marker(folder)
    shutil.chown(folder / ".ckptctl-job", JOB_USER)
    return comment


def make_marker_fifo(folder):
    os.mkfifo(folder / ".ckptctl-job")
    return "a night run"


KINDS = {
    "nothing": (lambda folder: "ckpt=turn", "valid"),
    "named in the marker file": (make_marker, "valid"),
    "no checkpoint directory named": (lambda folder: "a night run", None),
    "damaged snapshots": (make_damaged, "invalid"),
    "directory that is not there": (lambda folder: "ckpt=/nonexistent", "nothing-there"),
    "a pipe in its place": (make_fifo, "failed"),
    "a pipe in the marker's place": (make_marker_fifo, "refused"),
    "a marker file of somebody else": (make_foreign_marker, "refused"),
    "hostile comment": (make_hostile, "nothing-there"),
    "escapes in the path": (make_escapes, "refused"),
}


def test_no_kind_of_directory_drains_the_node(slurm, told):
    """Prolog and Epilog of jobs whose directories are damaged, hostile or absent: every job completes, the node is idle afterwards."""
    jobs = {}
    for number, (kind, (make, _)) in enumerate(KINDS.items()):
        folder = a_run(slurm, f"kind-{number}")
        jobs[kind] = slurm.submit(folder, PLAIN, f"--comment={make(folder)}")
    ends = {kind: slurm.finished(job_id)["JobState"] for kind, job_id in jobs.items()}
    state = slurm.settled()
    words = {
        kind: tuple((slurm.verdict(job_id, hook) or {}).get("verdict") for hook in ("prolog", "epilog"))
        for kind, job_id in jobs.items()
    }
    told += [f"{kind:<46} {ends[kind]:<10} {'/'.join(map(str, words[kind])):<28} {state}" for kind in KINDS]

    assert {kind: (word, word) for kind, (_, word) in KINDS.items()} == words
    assert {"COMPLETED"} == set(ends.values())
    assert "idle" == state


def test_what_a_hook_is_told_need_not_be_so(slurm, told):
    """The owner changes the comment while the job runs; the working directory is none, and Slurm runs the job elsewhere."""
    change = "#!/bin/bash\nscontrol update jobid=$SLURM_JOB_ID comment=ckpt=/nonexistent\n"
    folders = [a_run(slurm, name) for name in ("changed", "nowhere")]
    jobs = {
        "comment changed while it runs": slurm.submit(folders[0], change, "--comment=ckpt=turn"),
        "working directory that is not there": slurm.submit(
            folders[1], PLAIN, "--comment=ckpt=turn", "--chdir=/nonexistent", "--output=/dev/null"
        ),
    }
    ends = [slurm.finished(job_id)["JobState"] for job_id in jobs.values()]
    state = slurm.settled()
    words = [
        "/".join(slurm.verdict(job_id, hook)["verdict"] for hook in ("prolog", "epilog")) for job_id in jobs.values()
    ]
    told += [f"{kind:<46} {end:<10} {word:<28} {state}" for kind, end, word in zip(jobs, ends, words, strict=True)]

    assert (["COMPLETED"] * 2, "idle") == (ends, state)
    assert ["valid/nothing-there", "nothing-there/nothing-there"] == words


def test_a_hook_of_the_controller_refuses_and_the_job_runs(slurm, told):
    """PrologSlurmctld and EpilogSlurmctld run as Slurm's own user, who may not read what a job names; a status that is not 0 would
    requeue the job for ever."""
    verdicts = slurm.root / "controller"
    verdicts.mkdir()
    shutil.chown(verdicts, "slurm")
    for hook in ("prolog", "epilog"):
        text = (slurm.root / "hooks" / hook).read_text().replace(str(slurm.root / "verdicts"), str(verdicts))
        slurm.install(f"{hook}-slurmctld", text=text)
    job_id = slurm.submit(a_run(slurm, "controller"), PLAIN, "--comment=ckpt=turn")
    job, state = slurm.finished(job_id), slurm.settled()
    until(lambda: (verdicts / f"job-{job_id}.epilog.json").exists(), "EpilogSlurmctld says nothing")
    for hook in ("prolog", "epilog"):
        slurm.install(f"{hook}-slurmctld", text=NOTHING)
    words = [
        json.loads((verdicts / f"job-{job_id}.{hook}.json").read_text())["verdict"] for hook in ("prolog", "epilog")
    ]
    told.append(f"{'hooks of the controller':<46} {job['JobState']:<10} {'/'.join(words):<28} {state}")

    assert ("COMPLETED", "0", "idle") == (job["JobState"], job["Restarts"], state)
    assert ["refused", "refused"] == words


def test_a_dead_mount_does_not_drain_the_node(slurm, told):
    """Whoever looks sits in the kernel and cannot even be killed; Prolog and Epilog end in time, and the job runs."""
    dead = slurm.folder("dead")
    folder = slurm.folder("dead-mount")
    for hook in ("prolog", "epilog"):
        slurm.install(hook, **{"--deadline 10s": "--deadline 2s"})
    with DeadMount(dead):
        job_id = slurm.submit(folder, PLAIN, f"--comment=ckpt={dead}")
        end = slurm.finished(job_id)["JobState"]
        state = slurm.settled()
        found = [slurm.verdict(job_id, hook) for hook in ("prolog", "epilog")]
    for hook in ("prolog", "epilog"):
        slurm.install(hook)
    words = "/".join(one["verdict"] for one in found)
    told.append(f"{'dead mount (' + str(found[0]['seconds']) + ' s in the Prolog)':<46} {end:<10} {words:<28} {state}")

    assert ("COMPLETED", "hung/hung", "idle") == (end, words, state)
    assert [str(dead)] * 2 == [one["checkpoint_dir"] for one in found]


@pytest.mark.parametrize(
    ("kind", "text", "state"),
    [
        ("hooks whose Python is gone", None, "idle"),
        ("for comparison: a Prolog that ends with 1", "#!/bin/sh\nexit 1\n", "drained"),
    ],
)
def test_a_prolog_that_cannot_start_drains_nothing(slurm, told, kind, text, state):
    """The printed scripts end with 0 without Python too. That a failing one would be noticed here: it drains."""
    if text is None:
        for hook in HOOKS:
            slurm.install(hook, **{PYTHON: "/nonexistent/python"})
    else:
        slurm.install("prolog", text=text)
    job_id = slurm.submit(slurm.folder(f"prolog-{state}"), PLAIN)
    try:
        if state == "idle":
            end = slurm.finished(job_id)["JobState"]
            found = slurm.settled()
        else:
            until(lambda: slurm.state() == state, "the node is not drained")
            found, end = slurm.state(), slurm.job(job_id)["JobState"]
    finally:
        for hook in HOOKS:
            slurm.install(hook)
        slurm.ask("scancel", job_id)
        slurm.ask("scontrol", "update", f"nodename={NODE}", "state=resume")
    told.append(f"{kind:<46} {end:<10} {'':<28} {found}")

    assert state == found
    until(lambda: slurm.state() == "idle", "the node does not come back")


def test_a_job_whose_snapshots_are_damaged_ends_by_itself(slurm):
    """The TaskProlog says so in the job's output, the script ends with ckptctl's status; nothing is requeued or drained."""
    folder = a_run(slurm, "damaged")
    make_damaged(folder)
    script = "#!/bin/bash\nsource <(ckptctl slurm show job-functions) || exit\nckptctl_begin || exit\necho begun\n"
    job = slurm.finished(slurm.submit(folder, script, CKPTCTL_CONFIG="turn.yaml"))
    said = (folder / "out.txt").read_text()

    assert ("FAILED", "13:0", "0") == (job["JobState"], job["ExitCode"], job["Restarts"])
    assert "ckptctl: snapshots of this job: invalid" in said
    assert "begun" not in said
    assert "idle" == slurm.settled()


def test_parts_of_a_snapshot_are_validated_by_tasks(slurm):
    """`srun ckptctl validate --shard auto`, then the merge: valid only because every part reported. Steps inherit what the batch
    script was given: the TaskProlog says so once."""
    folder = a_run(slurm, "shards")
    script = (
        "#!/bin/bash\n"
        "srun --ntasks=1 printenv CKPTCTL_RESUME_FROM\n"
        "srun ckptctl validate turn --shard auto --format json --output 'report-{shard}.json' || exit\n"
        "ckptctl validate --merge report-*.json\n"
    )
    job = slurm.finished(slurm.submit(folder, script, "--ntasks=2", CKPTCTL_CONFIG="turn.yaml"))
    told = (folder / "out.txt").read_text()

    assert "COMPLETED" == job["JobState"], told
    assert 1 == told.count("ckptctl: resume from ")
    assert told.partition("ckptctl: resume from ")[2].split()[0] in told.splitlines()
    assert 2 == len(list(folder.glob("report-*.json")))
    assert "verdict: valid" in told


def test_a_run_lives_through_usr1_and_a_preemption(slurm, told):
    """A snapshot in the grace period, a requeue and the restore, twice: at the signal of the time limit, sent early, and at a
    preemption, where USR1 comes at once and TERM only after GraceTime."""
    folder = slurm.folder("life")
    job_id = slurm.submit(folder, LIFE, CKPTCTL_CONFIG=f"{folder}/run/ckptctl.yaml")
    in_flight(folder, 0)
    slurm.root_runs("scancel", "--batch", "--signal=USR1", job_id)
    in_flight(folder, 1)
    urgent = slurm.submit(slurm.folder("urgent"), PLAIN, "--partition=urgent", "--exclusive")
    assert "COMPLETED" == slurm.finished(urgent)["JobState"]
    job = slurm.finished(job_id, patience_s=150)
    said = (folder / "out.txt").read_text()
    snapshots = f"{folder}/run/checkpoints/bootstrap/rollout_snapshots"
    state = slurm.settled()
    found = slurm.verdict(job_id, "epilog")
    told += [
        f"{kind:<46} {job['JobState']:<10} {found['verdict']:<28} {state}"
        for kind in ("USR1, requeue, restore", "preemption, requeue, restore")
    ]

    assert ("COMPLETED", "2") == (job["JobState"], job["Restarts"]), said
    assert 2 == said.count("watched: status=0 by=USR1")
    assert 1 == said.count("watched: status=0 by=\n")
    for number in (1, 2):
        assert f"ckptctl: resume from {snapshots}/snapshot_00000{number}" in said
        assert f"begun: restart={number} from={snapshots}/snapshot_00000{number}" in said
    assert ("valid", 0, "idle") == (found["verdict"], found["unfinished"], state)
