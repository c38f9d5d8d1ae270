#!/bin/sh
# ckptctl: TaskProlog of a site. Slurm runs it as the job's user for the batch script and for each task of each step.
#
# For the batch script it selects the snapshot to resume from (CKPTCTL_CONFIG of the job), exports CKPTCTL_RESUME_FROM
# and says so in the job's output. Steps inherit that, so their tasks do not even start Python. stderr goes nowhere:
# Slurm parses it for `export` as it parses stdout. It ends with 0: anything else would fail the job.
exec 2>/dev/null
[ -z "${SLURM_STEP_ID:-}" ] || exit 0
python='@python@'
[ -x "$python" ] && "$python" -I -m ckptctl hook task-prolog --deadline 60s
exit 0
