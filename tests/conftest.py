"""What every test gets: no settings of the person who runs it, its own HOME, and the way to the shared fixtures."""

import os
import signal
from pathlib import Path

import pytest

# Who starts the tests in the background or under nohup has them ignore these; processes of the tests must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_fixtures() -> Path:
    """The folder of real snapshots, good and damaged, that a clone does not have; skips the test where it is absent."""
    folder = Path(os.environ.get("CKPTCTL_FIXTURES") or REPOSITORY.parent / "shared" / "fixtures")
    if not folder.is_dir():
        pytest.skip(f"no shared fixtures at {folder} (set CKPTCTL_FIXTURES); covered by the project's own samples only")
    return folder


@pytest.fixture
def fixtures() -> Path:
    """The shared fixtures' folder."""
    return shared_fixtures()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path_factory):
    for name in list(os.environ):
        if name.startswith(("CKPTCTL_", "SLURM_", "NEMO_GYM_")) and name != "CKPTCTL_FIXTURES":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in (
        "NO_COLOR",
        "FORCE_COLOR",
        "COLUMNS",
        "TERM_PROGRAM",
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
