"""Where a hook finds the checkpoint directory, and what it makes of hostile names."""

import os

import pytest

from ckptctl.hook import place


@pytest.mark.parametrize(
    ("comment", "path"),
    [
        ("ckpt=/scratch/run", "/scratch/run"),
        ("team=a;ckpt=/scratch/run;x", "/scratch/run"),
        ("night run ckpt=runs/mine more", "runs/mine"),
        ("ckpt=/one ckpt=/two", "/one"),
        ("ckpt=/a\nWorkDir=/etc", "/a"),
        ("notckpt=/scratch", ""),
        ("ckpt=", ""),
        ("", ""),
    ],
)
def test_a_comment_names_a_path(comment, path):
    """Up to the next blank, line end or semicolon."""
    assert path == place.from_comment(comment)


@pytest.mark.parametrize("path", ["/a\x1b[31mb", "/a\udcffb", "/a\u2028b", "/" + "x" * 5000])
def test_a_hostile_path_is_refused(path):
    """Control characters, bytes that are no text, line ends of any kind, endless names."""
    with pytest.raises(place.HostilePathError):
        place.absolute(path, "/work-dir")


def test_a_relative_path_is_below_the_working_directory():
    """As the user who wrote it meant it; without that directory it means nothing."""
    assert "/home/u/runs/mine" == place.absolute("runs/mine", "/home/u")
    with pytest.raises(place.HostilePathError, match="relative"):
        place.absolute("runs/mine", "")


def test_the_marker_is_a_file_of_the_jobs_user(tmp_path):
    """Its first line is the path; without it the job has none."""
    assert "" == place.from_marker(str(tmp_path), os.getuid())
    (tmp_path / place.MARKER_NAME).write_text("runs/with blanks\nnot this\n")

    assert "runs/with blanks" == place.from_marker(str(tmp_path), os.getuid())
    with pytest.raises(place.HostilePathError, match="job's user"):
        place.from_marker(str(tmp_path), os.getuid() + 1)


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "endless"])
def test_what_is_no_marker_is_refused_without_waiting(tmp_path, kind):
    """A pipe that nobody writes to holds nobody up, a link is not followed, a file without a line end is not read whole."""
    marker = tmp_path / place.MARKER_NAME
    if kind == "fifo":
        os.mkfifo(marker)
    elif kind == "directory":
        marker.mkdir()
    elif kind == "link":
        marker.symlink_to("/etc/passwd")
    else:
        marker.write_text("x" * 100_000)

    with pytest.raises(place.HostilePathError, match="marker file"):
        place.from_marker(str(tmp_path), os.getuid())
