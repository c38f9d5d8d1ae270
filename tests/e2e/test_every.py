"""`snapshot --every` as a process among processes: signals, a changed configuration, lines, metrics. Waits for lines, never for time."""

import json
import re
import signal
import subprocess
from contextlib import contextmanager

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import REPOSITORY, clean_environment, command, run
from tests.schemas import problems

pytestmark = pytest.mark.e2e
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ round (\d+): (.+)\n")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A cluster with rollouts that go on for longer than the tests, in short turns: a snapshot waits for calls to end."""
    folder = tmp_path_factory.mktemp("every") / "run"
    up = run("sim", "up", "--dir", str(folder), "--prompts", "2", "--turns", "1000", "--turn-delay", "0.2")
    assert 0 == up.status, up.stdout + up.stderr
    run("sim", "run", "--dir", str(folder))
    yield folder
    run("sim", "down", "--dir", str(folder), "--kill")


@pytest.fixture
def cluster(running):
    """The cluster without faults."""
    yield running
    run("sim", "fault", "--dir", str(running), "--server", "counter", "--clear")


@contextmanager
def every(folder, *words):
    """The process of a loop; killed at the end of the test if it is still there."""
    config = str(folder / "ckptctl.yaml")
    process = subprocess.Popen(
        command("snapshot", "--config", config, "--every", "1d", "--jitter", "0s", *words),
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def next_round(process) -> tuple[int, str]:
    """The next line on stdout: number of the round, and what came of it."""
    line = process.stdout.readline()
    found = LINE.fullmatch(line)
    assert found, (line, process.stderr.read() if process.poll() is not None else "")
    return int(found[1]), found[2]


def told_on_stderr(process, wanted: str) -> str:
    """The next line on stderr that says it."""
    for line in process.stderr:
        if wanted in line:
            return line
    raise AssertionError(f"the process ended without saying: {wanted}")


def metric(file, name: str) -> dict[str, float]:
    return {
        sample.labels.get("outcome", ""): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
        if sample.name == f"ckptctl_{name}"
    }


def test_rounds_on_demand_a_new_configuration_and_a_last_one(cluster, tmp_path):
    """USR1 takes one now, HUP reads the configuration (a bad one is refused), TERM takes a last one and ends with 0."""
    metrics, config = tmp_path / "every.prom", cluster / "ckptctl.yaml"
    good = config.read_text()
    with every(cluster, "--force", "--metrics-textfile", str(metrics)) as process:
        number, text = next_round(process)
        assert (1, True) == (number, text.startswith("published "))
        process.send_signal(signal.SIGUSR1)
        number, text = next_round(process)
        assert (2, True) == (number, text.startswith("published "))
        assert "; next at " in text

        config.write_text("ckptctl: [")
        process.send_signal(signal.SIGHUP)
        assert told_on_stderr(process, "is refused, the one before stays in use")
        changed = yaml.safe_load(good)
        changed["rollout_checkpointing"]["max_consecutive_failures"] = 7
        config.write_text(yaml.safe_dump(changed))
        process.send_signal(signal.SIGHUP)
        assert told_on_stderr(process, "the configuration was read again")
        process.send_signal(signal.SIGUSR1)
        assert 3 == next_round(process)[0]
        going = (metric(metrics, "running"), metric(metrics, "max_consecutive_failures"))

        process.send_signal(signal.SIGTERM)
        assert "the last one" in next_round(process)[1]
        rest, complaints = process.communicate()

    assert ({"": 1.0}, {"": 7.0}) == going
    assert (0, "") == (process.returncode, rest), complaints
    assert "Traceback" not in complaints
    assert ({"published": 4.0}, {"": 0.0}) == (metric(metrics, "rounds"), metric(metrics, "running"))
    assert {"": 0.0} == metric(metrics, "last_run_exit_status")
    assert not list((cluster / "checkpoints" / ".ckptctl").glob("lock"))


def test_the_budget_of_failures_ends_it(cluster, tmp_path):
    """A server that refuses to commit: each round is undone and told, the second one in a row ends the command with 22."""
    metrics = tmp_path / "every.prom"
    refusal = ("--kind", "refuse", "--code", "resources_checkpoint_error", "--times", "0")
    run(
        "sim",
        "fault",
        "--dir",
        str(cluster),
        "--server",
        "counter",
        "--operation",
        "resources-checkpoint/commit",
        *refusal,
    )
    with every(cluster, "--max-failures", "2", "--metrics-textfile", str(metrics)) as process:
        number, text = next_round(process)
        first = metric(metrics, "last_run_exit_status")
        process.send_signal(signal.SIGUSR1)
        second = next_round(process)
        _, complaints = process.communicate()

    assert (1, True) == (number, "failure 1 of 2 in a row; next at" in text)
    assert (2, True) == (second[0], second[1].endswith("failure 2 of 2 in a row; the last one"))
    assert 22 == process.returncode
    assert 2 == complaints.count("error[attempt-aborted]")
    assert ({"": 22.0}, {"": 22.0}) == (first, metric(metrics, "last_run_exit_status"))
    assert {"failed": 2.0} == metric(metrics, "rounds")


def test_a_second_signal_gives_up_the_round_and_releases(cluster):
    """A participant that does not answer: INT waits for the last one, a second one aborts it, everybody is released, 130."""
    stall = ("--kind", "stall", "--delay", "600", "--times", "1")
    with every(cluster, "--force", "--format", "json", "-v", "--last-within", "1h") as process:
        answer = process.stdout.readline()
        run(
            "sim",
            "fault",
            "--dir",
            str(cluster),
            "--server",
            "counter",
            "--operation",
            "resources-checkpoint/commit",
            *stall,
        )
        process.send_signal(signal.SIGUSR1)
        told_on_stderr(process, "a snapshot now")
        told_on_stderr(process, "commit-resources")
        process.send_signal(signal.SIGINT)
        told_on_stderr(process, "a last snapshot, then the end")
        process.send_signal(signal.SIGINT)
        told_on_stderr(process, "giving up")
        answers, complaints = process.communicate()
    error = complaints[complaints.index("{") :]

    assert [] == problems(answer, "snapshot.v1.json") + problems(error, "error.v1.json")
    assert "published" == json.loads(answer)["outcome"]
    assert (130, "") == (process.returncode, answers)
    assert ("interrupted", 130) == (json.loads(error)["code"], json.loads(error)["exit_code"])
    assert "everything was released" in json.loads(error)["message"]
