"""Examples of every command, for its page of help. Each is a line that the command accepts (a test parses all of them)."""

from __future__ import annotations

Example = tuple[str, str]
"""What it is for, and the line."""

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "": (
        ("the page of one command", "ckptctl help snapshot"),
        ("what a rule is about, and how to mend it", "ckptctl validate --explain LED004"),
        ("where things stand", "ckptctl inspect runs/mine"),
    ),
    "snapshot": (
        ("one snapshot of the live run", "ckptctl snapshot --config run.yaml"),
        (
            "in a batch script, on --signal=B:USR1@120: abort in time rather than be killed",
            "ckptctl snapshot --config run.yaml --deadline 90s",
        ),
        (
            "one every two minutes, with metrics; `kill -USR1` takes one at once",
            "ckptctl snapshot --config run.yaml --every 120s --metrics-textfile snapshot.prom",
        ),
    ),
    "validate": (
        ("everything in a checkpoint directory", "ckptctl validate runs/mine"),
        (
            "every byte of one snapshot",
            "ckptctl validate --level full runs/mine/step_3/rollout_snapshots/snapshot_000004",
        ),
        ("in CI: annotations at the pull request", "ckptctl validate tests/fixtures --format github --strict"),
        (
            "on many nodes, each a part; then the verdict of all",
            "ckptctl validate runs/mine --shard auto --format json --output 'report-{shard}.json'",
        ),
        ("", "ckptctl validate --merge report-1-of-2.json report-2-of-2.json"),
    ),
    "publish": (
        ("after exit status 23 or 24: finish what was left", "ckptctl publish --config run.yaml"),
        (
            "a staged directory that nobody published",
            "ckptctl publish runs/mine/step_3/rollout_snapshots/tmp_snapshot_000005 --config run.yaml",
        ),
        (
            "free participants that a dead coordinator left paused",
            "ckptctl publish --release rollout-step-3-snapshot-4-0f0e --reason 'its node is gone' --config run.yaml",
        ),
    ),
    "restore": (
        ("what would be restored, without asking a server", "ckptctl restore --plan --config run.yaml"),
        ("in a script: only the path", "ckptctl restore --select --config run.yaml"),
        ("into fresh servers", "ckptctl restore --config run.yaml"),
    ),
    "gc": (
        ("what would go, and why", "ckptctl gc runs/mine --dry-run"),
        (
            "keep three, two of them valid, and pack what goes",
            "ckptctl gc runs/mine --keep 3 --min-valid 2 --archive /archive/mine",
        ),
        (
            "never delete this one",
            "ckptctl gc runs/mine --pin step_3/snapshot_000004 --reason 'for a figure'",
        ),
        ("bring one back", "ckptctl gc runs/mine --undelete step_3/snapshot_000002"),
    ),
    "inspect": (
        ("an overview", "ckptctl inspect runs/mine"),
        ("how long admission was closed", "ckptctl inspect runs/mine --timings"),
        ("the servers as they are now, and what a snapshot would refuse", "ckptctl inspect --live --config run.yaml"),
        (
            "a monitoring plugin",
            "ckptctl inspect runs/mine --nagios --warn-age 10m --critical-age 1h",
        ),
    ),
    "sim": (
        ("the whole story: snapshot, crash, restore, comparison", "ckptctl sim demo"),
        ("by hand", "ckptctl sim up --dir runs/tour --prompts 8"),
        ("", "ckptctl sim run --dir runs/tour --wait"),
        ("", "ckptctl sim down --dir runs/tour"),
    ),
    "hook": (("in slurm.conf: Prolog=/etc/slurm/ckptctl-prolog, a script with", "ckptctl hook prolog --deadline 10s"),),
    "slurm": (
        ("what there is to print", "ckptctl slurm list"),
        ("a complete batch script", "ckptctl slurm show job"),
    ),
    "help": (
        ("the page of a command of `sim`", "ckptctl help sim fault"),
        ("for man", "ckptctl help gc --man | man -l -"),
    ),
}
