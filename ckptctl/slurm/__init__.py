"""Scripts for Slurm, to print, read and install: hooks of a site, and pieces of a job's batch script.

They are files of this package, so that an installed ckptctl carries them. `@python@` in a script stands for the path of the
interpreter that prints it: a hook has no PATH.
"""

from __future__ import annotations

from importlib.resources import files

SCRIPTS = {
    "prolog": "Prolog of a site (slurm.conf: Prolog=): judges the job's snapshots on every node",
    "epilog": "Epilog of a site (slurm.conf: Epilog=): judges what the job left behind",
    "task-prolog": "TaskProlog of a site: selects the snapshot to resume from and hands it to the job",
    "job-functions": "shell functions for batch scripts: begin, restore, snapshot on a signal, end",
    "job": "a complete sbatch script that uses them",
    "slurm.conf": "the lines of slurm.conf that matter, each with its reason",
}
"""Name and purpose of each."""
_FILES = {"job-functions": "job-functions.bash", "job": "job.sbatch", "slurm.conf": "slurm.conf"}
_PYTHON = "@python@"


def load_script(name: str, *, python: str) -> str:
    """The text of a script, ready for the given interpreter."""
    file = files(__name__).joinpath(_FILES.get(name, f"{name}.sh"))
    return file.read_text(encoding="utf-8").replace(_PYTHON, python)
