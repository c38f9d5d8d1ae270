"""The worker of a hook: asks a reader about the job's snapshots, writes down what it found, and for a TaskProlog what to say.

It never touches the user's files itself; what it writes goes to the hook's own directory on a local disk.
"""

from __future__ import annotations

import sys
import time

from ckptctl.hook import children, identity, place, reader, record, verdict
from ckptctl.hook.options import Settings
from ckptctl.hook.verdict import Verdict

CONFIG_VARIABLE = "CKPTCTL_CONFIG"
DIRECTORY_VARIABLE = "CKPTCTL_CHECKPOINT_DIR"
RESUME_VARIABLE = "CKPTCTL_RESUME_FROM"
OF_VARIABLE = "CKPTCTL_RESUME_OF"
"""The job and restart that the selection was made for."""
STEP_VARIABLE = "SLURM_STEP_ID"


def watch_job(settings: Settings, environment: dict[str, str], began_s: float) -> None:
    """Prolog and Epilog: judge what lies in the job's checkpoint directory, and record it. Jobs without one leave no trace.

    Wrong options, and what could not be recorded, are said to the watchdog: there is no one to tell but the log of slurmd.
    """
    for complaint in settings.complaints:
        reader.say(f"ckptctl hook: {complaint}")
    comment_path = place.from_comment(environment.get("SLURM_JOB_COMMENT", ""))
    work_dir = environment.get("SLURM_JOB_WORK_DIR", "")
    if not comment_path and not work_dir.startswith("/"):
        return
    found = _judge_job(settings, environment, comment_path, work_dir, began_s)
    complaint = "" if found is None else _record(settings, environment, found, began_s)
    if complaint:
        reader.say(f"ckptctl hook: {complaint}")


def prepare_task(settings: Settings, environment: dict[str, str], began_s: float) -> None:
    """TaskProlog of a batch script: select the snapshot to resume from, hand it on, say so in the job's output.

    Steps inherit what the batch script was given: their tasks, which may be many, ask nothing.
    """
    if STEP_VARIABLE in environment:
        return
    if environment.get(CONFIG_VARIABLE):
        found = _select(settings, environment, began_s)
    elif environment.get(DIRECTORY_VARIABLE):
        found = _judge_named(settings, environment, began_s)
    else:
        return
    _record(settings, environment, found, began_s)
    if environment.get(CONFIG_VARIABLE):
        _hand_on(environment, found)
    line = told(found, is_selected=bool(environment.get(CONFIG_VARIABLE)))
    reader.say(f"print ckptctl: {''.join(one if one.isprintable() else '?' for one in line)}")


def _hand_on(environment: dict[str, str], found: Verdict) -> None:
    """What the job learns, and whose it is: a job that was submitted from within another inherits that one's variables."""
    if found.newest:
        reader.say(f"export {RESUME_VARIABLE}={found.newest}")
    else:
        reader.say(f"unset {RESUME_VARIABLE}")
    job_id, restart = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT", "0")
    are_numbers = all(number.isascii() and number.isdigit() for number in (job_id, restart))
    if found.word in ("valid", "nothing-there") and are_numbers:
        reader.say(f"export {OF_VARIABLE}={job_id}.{restart}")
    else:
        reader.say(f"unset {OF_VARIABLE}")


def told(found: Verdict, *, is_selected: bool) -> str:
    """One line for the job's output: what was found, and what to do about it."""
    aside = f" ({found.reason})" if found.reason else ""
    if is_selected and found.newest:
        return f"resume from {found.newest}{aside}"
    if found.word == "nothing-there":
        return f"no snapshot to resume from{aside}: the run starts at its beginning"
    if found.word == "valid":
        return f"{found.directory} looks whole, newest snapshot: {found.newest or 'none'}"
    from shlex import quote  # noqa: PLC0415 - most runs do not come here, and its import costs more than what they do

    way = "`ckptctl restore --select`" if is_selected else f"`ckptctl validate {quote(found.directory)}`"
    return f"snapshots of this job: {found.word}{aside}; {way} tells more"


def _judge_job(
    settings: Settings, environment: dict[str, str], comment_path: str, work_dir: str, began_s: float
) -> Verdict | None:
    """None for a job that names no checkpoint directory."""
    try:
        uid, gid = identity.job_user(environment)
    except identity.WrongUserError as error:
        return Verdict(verdict.REFUSED, str(error)) if comment_path else None
    question = reader.Question(uid=uid, gid=gid, comment_path=comment_path, work_dir=work_dir, level=settings.level)
    found = _asked(settings, lambda: reader.inspect_job(question), began_s)
    if found.found_by == "nothing":
        return None
    if not found.directory and found.word == verdict.HUNG:
        found.directory = comment_path or work_dir
    return found


def _judge_named(settings: Settings, environment: dict[str, str], began_s: float) -> Verdict:
    path = environment[DIRECTORY_VARIABLE]
    words = ["inspect", "--level", settings.level, "--format", "json", "--quiet", "--", path]
    found = _judged(settings, _ask(settings, lambda: reader.execute(words, environment), began_s))
    found.found_by, found.directory = "environment", path
    return found


def _select(settings: Settings, environment: dict[str, str], began_s: float) -> Verdict:
    """Whatever the configuration's snapshots are: the path that a restore would take, or why there is none."""
    words = ["restore", "--select", "--format", "json", "--quiet"]
    found = _judged(settings, _ask(settings, lambda: reader.execute(words, environment), began_s))
    found.found_by, found.directory = "configuration", environment[CONFIG_VARIABLE]
    if found.newest and not found.newest.isprintable():
        found.newest = ""
        found.word, found.reason = verdict.REFUSED, "the selected path has characters that cannot be printed"
    return found


def _asked(settings: Settings, work: children.Work, began_s: float) -> Verdict:
    """The verdict of a reader that says in a line of its own what it found, before the answer of the program that it became."""
    answer = _ask(settings, work, began_s)
    line, _, answer.data = answer.data.partition(b"\n")
    kind, _, rest = line.decode("utf-8", "replace").partition(" ")
    if kind == "refused":
        return Verdict(verdict.REFUSED, rest)
    found = _judged(settings, answer)
    if kind == "found":
        found.found_by, _, found.directory = rest.partition(" ")
    elif kind == "nothing":
        found.found_by = kind
    return found


def _ask(settings: Settings, work: children.Work, began_s: float) -> children.Answer:
    if not sys.executable:  # an `env` shebang without PATH
        return children.Answer(b"", children.BROKEN)
    return children.ask(work, began_s + settings.deadline_s, own_session=True)


def _judged(settings: Settings, answer: children.Answer) -> Verdict:
    if not sys.executable:
        return Verdict(verdict.FAILED, "this Python does not know its own path: start it by an absolute one")
    found = verdict.of_status(answer.status, settings.deadline_s)
    if answer.status is not None and b"{" in answer.data:
        verdict.take_facts(found, answer.data)
    return found


def _record(settings: Settings, environment: dict[str, str], found: Verdict, began_s: float) -> str:
    """Write it down; what went wrong with that, empty when nothing did."""
    found.seconds = time.monotonic() - began_s
    if settings.complaints:
        found.reason = "; ".join([*filter(None, [found.reason]), *settings.complaints])
    try:
        record.write_verdict(settings, environment, found)
    except OSError as error:
        return f"neither the verdict nor the metrics were written: {error}"
    try:
        record.write_metrics(settings, found)
    except OSError as error:
        return f"the verdict was written, but the metrics were not: {error}"
    return ""
