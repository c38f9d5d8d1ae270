"""A Slurm of one node, for as long as the tests run: own configuration, own keys, own directories; nothing in /etc is read or written.

Daemons run as root and as Slurm's own user, jobs as a user of their own: the differences between them are what is tested.
"""

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

PYTHON = os.environ.get("CKPTCTL_SLURM_PYTHON", "")
needs_slurm = pytest.mark.skipif(not PYTHON, reason="NO SLURM: tests/integration/run.sh sets up what this needs")
JOB_USER = "ckptctl-job"
NODE = "n1"
CRED_EXPIRE_S = 5
"""Also how long a requeued job waits; less than 5 means 120."""
NOTHING = "#!/bin/sh\n"
"""A hook that does nothing."""
FINISHED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
CONF = """\
ClusterName=ckptctl
SlurmctldHost=localhost
SlurmUser=slurm
SlurmdUser=root
SlurmctldPort={ctld}
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.sock,cred_expire={expire}
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=10000
ReturnToService=2
KillWait=5
MinJobAge=600
PrologFlags=Alloc,DeferBatch
PrologEpilogTimeout=20
Prolog={root}/hooks/prolog
Epilog={root}/hooks/epilog
PrologSlurmctld={root}/hooks/prolog-slurmctld
EpilogSlurmctld={root}/hooks/epilog-slurmctld
TaskProlog={root}/hooks/task-prolog
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={slurmd} CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=normal Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""


class SlurmNode:
    """Starts, asks and ends it."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root, self.python, self.seconds = root, python, 0.0
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(root / "slurm.conf"),
        }

    def up(self) -> None:
        """All daemons, and wait until the node is idle."""
        if JOB_USER not in {entry.pw_name for entry in pwd.getpwall()}:
            self.root_runs("useradd", "--create-home", "--shell", "/bin/bash", JOB_USER)
        for name in ("run", "state", "spool", "log", "hooks", "jobs"):
            (self.root / name).mkdir(mode=0o755)
        shutil.chown(self.root / "state", "slurm")
        shutil.chown(self.root / "log", "slurm")
        shutil.chown(self.root / "jobs", JOB_USER)
        key = self.root / "run" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        ports = free_ports(2)
        (self.root / "slurm.conf").write_text(
            CONF.format(root=self.root, node=NODE, expire=CRED_EXPIRE_S, ctld=ports[0], slurmd=ports[1])
        )
        for hook in ("prolog", "epilog", "task-prolog"):
            self.install(hook)
        for hook in ("prolog-slurmctld", "epilog-slurmctld"):
            self.install(hook, text=NOTHING)  # slurmctld asks at its start alone whether it has such hooks
        run = self.root / "run"
        self.root_runs(
            "munged", f"--key-file={run}/munge.key", f"--socket={run}/munge.sock", f"--pid-file={run}/munged.pid",
            f"--log-file={run}/munged.log", f"--seed-file={run}/munged.seed",
        )  # fmt: skip
        self.root_runs("slurmctld")
        until(lambda: self.ask("scontrol", "ping").returncode == 0, "slurmctld does not answer")
        self.root_runs("slurmd", "-N", NODE)
        until(lambda: self.state() == "idle", "the node is not idle")

    def down(self) -> None:
        """Jobs first, then the daemons, by their pid files."""
        self.end_jobs()
        for name in ("slurmd", "slurmctld", "munged"):
            with contextlib.suppress(OSError, ValueError, AssertionError):
                pid = int((self.root / "run" / f"{name}.pid").read_text())
                assert Path(f"/proc/{pid}/comm").read_text().strip() == name
                os.kill(pid, signal.SIGTERM)
                until(lambda pid=pid: not is_alive(pid), f"{name} does not end", patience_s=10)

    def end_jobs(self) -> None:
        """Whatever a test left in the queue."""
        if self.ask("squeue", "-h").stdout.strip():
            self.ask("scancel", f"--user={JOB_USER}")
            with contextlib.suppress(AssertionError):
                until(lambda: not self.ask("squeue", "-h").stdout.strip(), "jobs are left behind", patience_s=15)

    def install(self, hook: str, *, text: str | None = None, **replaced: str) -> None:
        """Put the printed script of a hook in place, or another one."""
        if text is None:
            text = self.root_runs(self.python, "-I", "-m", "ckptctl", "slurm", "show", hook, "-q").stdout
            text = text.replace("/var/lib/ckptctl/hook", str(self.root / "verdicts"))
        for before, after in replaced.items():
            assert before in text
            text = text.replace(before, after)
        path = self.root / "hooks" / hook
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").chmod(0o755)
        path.with_suffix(".new").replace(path)  # a script that runs just now keeps its own text

    def root_runs(self, *words: object) -> subprocess.CompletedProcess:
        """A command that must succeed."""
        done = subprocess.run(
            [str(word) for word in words], env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done

    def ask(self, *words: str) -> subprocess.CompletedProcess:
        """A command that may fail."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)

    def user_runs(self, *words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
        """A command as the jobs' user, with ckptctl on the path; it must succeed."""
        environment = {
            "HOME": pwd.getpwnam(JOB_USER).pw_dir, "USER": JOB_USER, "LANG": "C.UTF-8",
            "PATH": f"{self.python.parent}:/usr/bin:/bin", "SLURM_CONF": self.environment["SLURM_CONF"], **variables,
        }  # fmt: skip
        done = subprocess.run(
            [str(word) for word in words],
            user=JOB_USER, group=JOB_USER, extra_groups=[], env=environment, cwd=cwd,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done

    def folder(self, name: str) -> Path:
        """A directory of the jobs' user."""
        path = self.root / "jobs" / name
        path.mkdir()
        shutil.chown(path, JOB_USER, JOB_USER)
        return path

    def submit(self, folder: Path, script: str, *options: str, **variables: str) -> str:
        """A batch job in a folder of its own; its id."""
        (folder / "job.sh").write_text(script)
        words = ("sbatch", "--parsable", "--output=out.txt", "--open-mode=append", *options, "job.sh")
        return self.user_runs(*words, cwd=folder, **variables).stdout.strip()

    def job(self, job_id: str) -> dict[str, str]:
        """Fields of `scontrol show job`; the comments of these tests forge none."""
        text = self.root_runs("scontrol", "-o", "show", "job", job_id).stdout
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def finished(self, job_id: str, *, patience_s: float = 90) -> dict[str, str]:
        """Its fields when it is over."""
        until(lambda: self.job(job_id)["JobState"] in FINISHED, f"job {job_id} does not end", patience_s=patience_s)
        return self.job(job_id)

    def verdict(self, job_id: str, hook: str) -> dict | None:
        """What a hook of a job wrote down; None when nothing."""
        path = self.root / "verdicts" / f"job-{job_id}.{hook}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def state(self) -> str:
        """Of the node, as `sinfo` says it."""
        return self.ask("sinfo", "-h", "-N", "-p", "normal", "-o", "%T").stdout.strip()

    def settled(self) -> str:
        """The node's state once no job is on it any more and its Epilog is over."""
        until(lambda: not self.ask("squeue", "-h").stdout.strip(), "jobs are left", patience_s=60)
        until(lambda: self.state() not in ("completing", "allocated", "mixed"), "the node is busy", patience_s=60)
        return self.state()


def until(holds, complaint: str, *, patience_s: float = 30) -> None:
    """Ask again and again; an AssertionError when it does not come true."""
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s, complaint
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
