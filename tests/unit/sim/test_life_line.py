"""The connection by which processes end with a starter that has not recorded them."""

import os
import subprocess
import sys

import pytest

from ckptctl.errors import RefusedError, StorageError
from ckptctl.sim.life_line import LifeLine, is_cut
from ckptctl.sim.one_start import only_start

PROCESS = (
    "import sys; from ckptctl.sim.life_line import end_unless_recorded as end; end({}); print(sys.stdin.readline())"
)


def held_by(line):
    """A process that depends on the line, and answers when it is asked."""
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS.format(line.reader)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=(line.reader,),
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def test_processes_that_nobody_recorded_end_with_the_line():
    """The starter may be killed: its descriptors are closed all the same."""
    with LifeLine() as line:
        processes = [held_by(line) for _ in range(2)]

    assert [-9, -9] == [process.wait(30) for process in processes]
    for process in processes:
        process.communicate()


def test_a_process_that_is_recorded_lives_on():
    """Each takes one byte, also when another has died without taking its own."""
    with LifeLine() as line:
        processes = [held_by(line) for _ in range(2)]
        processes[0].kill()
        processes[0].communicate()
        line.release(2)

    answer, _ = processes[1].communicate("still here", timeout=30)
    assert ("still here", 0) == (answer.strip(), processes[1].returncode)


def test_a_launcher_sees_that_the_starter_is_gone():
    """Then it starts nothing."""
    reader, writer = os.pipe()
    before = is_cut(reader)
    os.close(writer)

    assert (False, True) == (before, is_cut(reader))
    os.close(reader)


def test_one_start_at_a_time(tmp_path):
    """The second is refused and nothing waits; afterwards the place is free."""
    place = str(tmp_path / "run")
    with only_start(place), pytest.raises(RefusedError, match="another command is starting"), only_start(place):
        pass

    with only_start(place):
        assert ["run"] == [path.name for path in tmp_path.iterdir()]


def test_a_file_is_no_place_for_a_start(tmp_path):
    """Told as any place that cannot be made."""
    (tmp_path / "run").write_text("")
    with pytest.raises(StorageError), only_start(str(tmp_path / "run")):
        pass
