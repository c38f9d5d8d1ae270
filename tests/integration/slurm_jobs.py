"""Batch scripts that the tests on Slurm submit, and ways to wait for what their runs do."""

import json
import os
import signal
from pathlib import Path

from tests.integration.slurm_node import until

PLAIN = "#!/bin/bash\necho ran as $(id -un)\n"
LIFE = """\
#!/bin/bash
#SBATCH --requeue --signal=B:USR1@60 --comment=ckpt=run/checkpoints
fresh=; [ -e run ] || fresh=yes
[ -z "$fresh" ] || ckptctl sim up --dir run --prompts 2 --turns ${TURNS:-14} --turn-delay ${DELAY:-2} --quiet >up.txt || exit
source <(ckptctl slurm show job-functions) || exit
ckptctl_begin || exit
echo "begun: restart=${SLURM_RESTART_COUNT:-0} from=$CKPTCTL_RESUME_FROM"
[ -n "$fresh" ] || ckptctl sim restart --dir run --restore-expected --quiet >>up.txt || exit
ckptctl_restore || exit
ckptctl sim run --dir run --wait & training=$!
[ -z "$PERIODIC" ] || ckptctl_periodic
ckptctl_watch "$training"
status=$?
echo "watched: status=$status by=$ckptctl_stopped_by"
wait "$training"
ckptctl_end || exit
[ "$ckptctl_stopped_by" != USR1 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
"""
"""One life of a run after the other: the job of `ckptctl slurm show job`, with servers that outlive it."""


def in_flight(folder: Path, run: int) -> None:
    """Wait until the rollouts of a run of the job have taken some turns."""

    def turns() -> int:
        return sum(path.read_text().count("\n") for path in (folder / "run").glob(f"audit-counter-{run + 1}-*.jsonl"))

    until(lambda: turns() >= 8, f"run {run} takes no turns", patience_s=120)


def said(folder: Path, wanted: str) -> str:
    """Wait until a job's output says it; all that it says."""
    path = folder / "out.txt"

    def text() -> str:
        return path.read_text() if path.exists() else ""

    try:
        until(lambda: wanted in text(), f"the job does not say: {wanted}", patience_s=60)
    except AssertionError as error:
        error.add_note(text())
        raise
    return text()


def at_step(checkpoint_dir: Path, step: str) -> None:
    """Wait until the newest transaction stands in the middle of a step."""

    def is_there() -> bool:
        journals = sorted((checkpoint_dir / ".ckptctl" / "journal").glob("*"))
        lines = journals[-1].read_text().splitlines() if journals else []
        last = json.loads(lines[-1]) if lines and lines[-1].endswith("}") else {}
        return (last.get("event"), last.get("step")) == ("intent", step)

    until(is_there, f"nobody comes to `{step}`", patience_s=60)


def signal_owner(checkpoint_dir: Path, number: signal.Signals) -> int:
    """Send a signal to whoever holds the lock; its process id."""
    pid = json.loads((checkpoint_dir / ".ckptctl" / "lock").read_text())["pid"]
    os.kill(pid, number)
    return pid


def contents(checkpoint_dir: Path) -> dict[str, bytes]:
    """Every byte of the published snapshots."""
    return {
        str(path.relative_to(checkpoint_dir)): path.read_bytes()
        for path in sorted(checkpoint_dir.glob("*/rollout_snapshots/snapshot_*/**/*"))
        if path.is_file()
    }
