"""Values that no cluster can have: refused in words, with the option, before anything is started."""

import resource

import pytest

from ckptctl.errors import UsageError
from ckptctl.sim.cluster import _free_ports
from tests.command_line import run

HUGE = "99999999999999999999999"
CASES = [
    *(("up", option, value) for option in ("--turn-delay", "--generation-delay") for value in ("inf", "nan", "-inf")),
    ("up", "--acknowledge-interval", "inf"),
    ("up", "--prepare-timeout", "inf"),
    ("up", "--prepare-timeout", "nan"),
    ("up", "--env", ""),
    ("up", "--env", "nowhere"),
    ("up", "--agents", "100000"),
    ("up", "--agents", HUGE),
    ("up", "--workers", HUGE),
    ("demo", "--turn-delay", "inf"),
    ("demo", "--env", ""),
    ("run", "--timeout", "nan"),
]


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_a_value_that_cannot_be_is_a_usage_error(words, tmp_path):
    """No traceback, and no directory."""
    command, *others = words
    done = run("sim", command, "--dir", str(tmp_path / "run"), *others)

    assert (2, "") == (done.status, done.stdout)
    assert done.stderr.startswith("error[usage]: ")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--turn-delay", "inf"), "`--turn-delay` cannot be inf"),
        (("--acknowledge-interval", "inf"), "`--acknowledge-interval` cannot be inf"),
        (("--env", ""), '`--env` cannot be ""'),
        (("--agents", "100000"), "100,002 agents and policy workers"),
    ],
)
def test_it_names_the_option_and_the_value(words, told, tmp_path):
    """As the command line has them, not as the cluster does."""
    assert told in run("sim", "up", "--dir", str(tmp_path / "run"), *words).stderr


def test_too_few_descriptors_for_the_ports():
    """Told with what to do about it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with pytest.raises(UsageError, match="no 100 free ports") as refused:
            _free_ports(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert "ulimit -n" in str(refused.value.hint)
