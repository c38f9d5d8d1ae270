#!/bin/sh
# ckptctl: Epilog of a site. Slurm runs it as root on every node of a job, without PATH, HOME or LANG.
#
# It ends with 0 whatever it finds: anything else, and any hang, would drain the node. What it found is in
# /var/lib/ckptctl/hook/job-<id>.epilog.json and, for node_exporter's textfile collector, in ckptctl_hook.prom.
# The job names its checkpoint directory in its comment (sbatch --comment=ckpt=PATH) or in the first line of
# .ckptctl-job in its working directory. Keep ckptctl on a local disk of the node, where every user may read it.
python='@python@'
[ -x "$python" ] && "$python" -I -m ckptctl hook epilog --deadline 10s --state-dir /var/lib/ckptctl/hook
exit 0
