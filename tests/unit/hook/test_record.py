"""What a hook leaves behind."""

import json
import os
import stat

import pytest

from ckptctl.hook import options, record
from ckptctl.hook.verdict import Verdict
from tests.schemas import problems


@pytest.fixture
def settings(tmp_path):
    found = options.parse(["prolog", f"--state-dir={tmp_path}/state"])
    os.umask(os.umask(0o022))
    return found


def test_a_verdict_is_one_json_object_whatever_is_in_it(settings, tmp_path):
    """Quotes, control characters, bytes that are no text and characters beyond the first plane come back as they were."""
    hostile = 'a"b\\c\x1b[31m\n\u2028\udcff\U0001f600'
    found = Verdict("invalid", hostile)
    record.write_verdict(settings, {"SLURM_JOB_ID": "12", "SLURM_JOB_RESTART_COUNT": "1"}, found)
    file = tmp_path / "state" / "job-12.prolog.json"

    assert ("invalid", hostile, "1", None) == tuple(
        json.loads(file.read_text("ascii"))[key] for key in ("verdict", "reason", "restart_count", "exit_code")
    )
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("job_id", ["../../etc/passwd", "", "1" * 50, "१२"])
def test_a_job_id_that_is_none_names_no_file(settings, tmp_path, job_id):
    """Names of files are made of digits and fixed words."""
    record.write_verdict(settings, {"SLURM_JOB_ID": job_id}, Verdict("valid"))

    assert ["job-unknown.prolog.json"] == os.listdir(tmp_path / "state")


def test_metrics_count_runs_and_tell_the_last(settings, tmp_path):
    """A second run adds to the counters of the first; only the last verdict is 1; nothing half-written lies beside it."""
    for word in ("valid", "invalid", "invalid"):
        record.write_metrics(settings, Verdict(word))
    lines = (tmp_path / "state" / record.METRICS_NAME).read_text().splitlines()

    assert 'ckptctl_hook_runs_total{hook="prolog",verdict="valid"} 1' in lines
    assert 'ckptctl_hook_runs_total{hook="prolog",verdict="invalid"} 2' in lines
    assert 'ckptctl_hook_last_verdict{hook="prolog",verdict="invalid"} 1' in lines
    assert 'ckptctl_hook_last_verdict{hook="prolog",verdict="valid"} 0' in lines
    assert {".lock", record.METRICS_NAME} == set(os.listdir(tmp_path / "state"))


def test_a_damaged_metrics_file_is_begun_anew(settings, tmp_path):
    """Lines that are none of ours are dropped."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / record.METRICS_NAME).write_bytes(b'\xff\nckptctl_hook_runs_total{hook="x"} many\nother 3\n')
    record.write_metrics(settings, Verdict("valid"))

    assert "other" not in (tmp_path / "state" / record.METRICS_NAME).read_text()


@pytest.mark.parametrize("kind", ["writable by others", "link"])
def test_a_directory_that_others_rule_is_refused(settings, tmp_path, kind):
    """Whoever may write there could put a link where we write as root."""
    state = tmp_path / "state"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        state.symlink_to(tmp_path / "elsewhere")
    else:
        state.mkdir()
        state.chmod(0o777)
    with pytest.raises(OSError):  # noqa: PT011 - whichever the system calls it
        record.write_verdict(settings, {"SLURM_JOB_ID": "1"}, Verdict("valid"))

    assert [] == list((tmp_path / "elsewhere").iterdir() if kind == "link" else state.iterdir())


def test_two_hooks_forget_the_same_old_verdicts(settings, tmp_path, monkeypatch):
    """What the other one deleted meanwhile is no failure, and neither is a draft of a killed process with our number."""
    monkeypatch.setattr(record, "KEPT", 1)
    for job_id in ("1", "2"):
        record.write_verdict(settings, {"SLURM_JOB_ID": job_id}, Verdict("valid"))
    (tmp_path / "state" / f".job-3.prolog.json.{os.getpid()}").write_bytes(b"{")
    list_directory = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: [*list_directory(folder), "job-0.prolog.json"])
    (tmp_path / "state" / "job-9.folder").mkdir()
    record.write_verdict(settings, {"SLURM_JOB_ID": "3"}, Verdict("invalid"))

    assert "invalid" == json.loads((tmp_path / "state" / "job-3.prolog.json").read_text())["verdict"]
    assert "job-2.prolog.json" not in list_directory(tmp_path / "state")


def test_a_verdict_is_what_the_schema_promises(settings, tmp_path):
    """Whatever Slurm, a user or a file says: no text of theirs makes it another document."""
    found = Verdict("refused", "r" * 10_000)
    found.directory = found.newest = found.found_by = ""
    record.write_verdict(settings, {"SLURM_JOB_ID": '"}\n', "SLURMD_NODENAME": "\udcff\x1b" * 5_000}, found)

    assert [] == problems((tmp_path / "state" / "job-unknown.prolog.json").read_text("ascii"), "hook.v1.json")


def test_old_verdicts_are_forgotten(settings, tmp_path, monkeypatch):
    """The newest are kept."""
    monkeypatch.setattr(record, "KEPT", 2)
    for job_id in ("1", "2", "3"):
        record.write_verdict(settings, {"SLURM_JOB_ID": job_id}, Verdict("valid"))
        os.utime(tmp_path / "state" / f"job-{job_id}.prolog.json", (int(job_id), int(job_id)))

    assert {"job-2.prolog.json", "job-3.prolog.json"} == set(os.listdir(tmp_path / "state"))
