"""Hooks and batch scripts on a real Slurm of one node: what each kind of failure does to the node, and a run that lives through a requeue.

Everything is as `ckptctl slurm show` prints it. tests/integration/run.sh installs Slurm and a Python that hooks and jobs may start.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.goldens import SAMPLES
from tests.integration.dead_mount import DeadMount
from tests.integration.slurm_node import JOB_USER, NODE, SlurmNode, until

PYTHON = os.environ.get("CKPTCTL_SLURM_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="NO SLURM: tests/integration/run.sh sets up what this needs")

LIFE = """\
#!/bin/bash
#SBATCH --requeue --signal=B:USR1@60 --comment=ckpt=run/checkpoints
fresh=; [ -e run ] || fresh=yes
[ -z "$fresh" ] || ckptctl sim up --dir run --prompts 2 --turns 14 --turn-delay 2 --quiet >up.txt || exit
source <(ckptctl slurm show job-functions) || exit
ckptctl_begin || exit
echo "begun: restart=${SLURM_RESTART_COUNT:-0} from=$CKPTCTL_RESUME_FROM"
[ -n "$fresh" ] || ckptctl sim restart --dir run --restore-expected --quiet >>up.txt || exit
ckptctl_restore || exit
ckptctl sim run --dir run --wait & training=$!
ckptctl_watch "$training"
status=$?
echo "watched: status=$status by=$ckptctl_stopped_by"
wait "$training"
ckptctl_end || exit
[ "$ckptctl_stopped_by" != USR1 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
"""
PLAIN = "#!/bin/bash\necho ran as $(id -un)\n"


@pytest.fixture(scope="module")
def told(request):
    """Lines for the end of the run: what happened to the node."""
    lines = [f"{'what went wrong':<38} {'job':<10} {'verdicts':<24} node"]
    began_s = time.monotonic()
    yield lines
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("", *lines, f"the whole Slurm part took {time.monotonic() - began_s:.0f} s", sep="\n  slurm: ")


@pytest.fixture(scope="module")
def slurm(told):
    """One node for the whole module, in a place that every user may enter."""
    root = Path("/var/tmp") / f"ckptctl-slurm-{os.getpid()}"
    root.mkdir(mode=0o755)
    node = SlurmNode(root, Path(PYTHON))
    try:
        node.up()
        yield node
    finally:
        # A job's servers outlive it: they are sessions of their own.
        for record in root.rglob("run/cluster.json"):
            subprocess.run([PYTHON, "-m", "ckptctl", "sim", "down", "--dir", record.parent], check=False)
        node.down()
        shutil.rmtree(root, ignore_errors=True)


def verdict(slurm, job_id, hook):
    """What a hook of a job wrote down; None when nothing."""
    path = slurm.root / "verdicts" / f"job-{job_id}.{hook}.json"
    return json.loads(path.read_text()) if path.exists() else None


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


def make_marker_fifo(folder):
    os.mkfifo(folder / ".ckptctl-job")
    return "a night run"


KINDS = {
    "nothing": (lambda folder: "ckpt=turn", "valid"),
    "no checkpoint directory named": (lambda folder: "a night run", None),
    "damaged snapshots": (make_damaged, "invalid"),
    "directory that is not there": (lambda folder: "ckpt=/nonexistent", "nothing-there"),
    "a pipe in its place": (make_fifo, "failed"),
    "a pipe in the marker's place": (make_marker_fifo, "refused"),
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
        kind: tuple((verdict(slurm, job_id, hook) or {}).get("verdict") for hook in ("prolog", "epilog"))
        for kind, job_id in jobs.items()
    }
    told += [f"{kind:<38} {ends[kind]:<10} {'/'.join(map(str, words[kind])):<24} {state}" for kind in KINDS]

    assert {kind: (word, word) for kind, (_, word) in KINDS.items()} == words
    assert {"COMPLETED"} == set(ends.values())
    assert "idle" == state


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
        found = [verdict(slurm, job_id, hook) for hook in ("prolog", "epilog")]
    for hook in ("prolog", "epilog"):
        slurm.install(hook)
    words = "/".join(one["verdict"] for one in found)
    told.append(f"{'dead mount (' + str(found[0]['seconds']) + ' s in the Prolog)':<38} {end:<10} {words:<24} {state}")

    assert ("COMPLETED", "hung/hung", "idle") == (end, words, state)
    assert [str(dead)] * 2 == [one["checkpoint_dir"] for one in found]


@pytest.mark.parametrize(
    ("kind", "text", "state"),
    [
        ("Prolog whose Python is gone", None, "idle"),
        ("for comparison: a Prolog that ends with 1", "#!/bin/sh\nexit 1\n", "drained"),
    ],
)
def test_a_prolog_that_cannot_start_drains_nothing(slurm, told, kind, text, state):
    """The printed script ends with 0 without Python too. That a failing one would be noticed here: it drains."""
    if text is None:
        slurm.install("prolog", **{PYTHON: "/nonexistent/python"})
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
        slurm.install("prolog")
        slurm.ask("scancel", job_id)
        slurm.ask("scontrol", "update", f"nodename={NODE}", "state=resume")
    told.append(f"{kind:<38} {end:<10} {'':<24} {found}")

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
    """`srun ckptctl validate --shard auto`, then the merge: valid only because every part reported."""
    folder = a_run(slurm, "shards")
    script = (
        "#!/bin/bash\n"
        "srun ckptctl validate turn --shard auto --format json --output 'report-{shard}.json' || exit\n"
        "ckptctl validate --merge report-*.json\n"
    )
    job = slurm.finished(slurm.submit(folder, script, "--ntasks=2"))

    assert "COMPLETED" == job["JobState"], (folder / "out.txt").read_text()
    assert 2 == len(list(folder.glob("report-*.json")))
    assert "verdict: valid" in (folder / "out.txt").read_text()


def in_flight(folder, run):
    """Wait until the rollouts of a run of the job have taken some turns."""

    def turns():
        return sum(path.read_text().count("\n") for path in (folder / "run").glob(f"audit-counter-{run + 1}-*.jsonl"))

    until(lambda: turns() >= 8, f"run {run} takes no turns", patience_s=120)


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
    found = verdict(slurm, job_id, "epilog")
    told += [
        f"{kind:<38} {job['JobState']:<10} {found['verdict']:<24} {state}"
        for kind in ("USR1, requeue, restore", "preemption, requeue, restore")
    ]

    assert ("COMPLETED", "2") == (job["JobState"], job["Restarts"]), said
    assert 2 == said.count("watched: status=0 by=USR1")
    assert 1 == said.count("watched: status=0 by=\n")
    for number in (1, 2):
        assert f"ckptctl: resume from {snapshots}/snapshot_00000{number}" in said
        assert f"begun: restart={number} from={snapshots}/snapshot_00000{number}" in said
    assert ("valid", 0, "idle") == (found["verdict"], found["unfinished"], state)
