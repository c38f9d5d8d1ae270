"""Orders of faults from the command line: what a kind has no use for, and what no server could take, is refused before it is sent."""

import pytest

from ckptctl.cli.sim_faults import order_of
from ckptctl.errors import UsageError


@pytest.mark.parametrize(
    ("kind", "details", "words"),
    [
        ("refuse", {"status": 404}, "`--status` means nothing to a fault of kind `refuse`"),
        ("status", {"code": "x"}, "`--code` means nothing"),
        ("drop", {"delay_s": 1.0}, "`--delay` means nothing"),
        ("slow", {"rollout_id": "g0_g0"}, "`--rollout` means nothing"),
        ("orphan_session", {"times": 2}, "`--times` means nothing"),
        ("clock", {"operation": "*"}, "`--operation` means nothing"),
        ("slow", {"delay_s": -3.0}, "`--delay` must not be negative"),
        ("slow", {"delay_s": float("nan")}, "--delay: "),
        ("clock", {"delay_s": 1e18}, "--delay: "),
        ("orphan_session", {"rollout_id": "foo bar/../x"}, "--rollout: "),
        ("orphan_session", {"rollout_id": "x" * 300}, "--rollout: "),
        ("refuse", {"code": "no\udcffcode"}, "--code: "),
        ("bogus", {}, "there is no kind of fault `bogus`"),
        (None, {"times": 2}, "--times without --kind orders nothing"),
    ],
)
def test_an_order_that_nobody_could_follow_is_refused(kind, details, words):
    """Nothing is ignored in silence."""
    with pytest.raises(UsageError) as raised:
        order_of(kind, details)

    assert words in str(raised.value)


def test_an_order_holds_what_was_given():
    """Everything else is the server's default; a clock may go back."""
    given = {"operation": None, "times": None, "delay_s": -3.0}

    assert {"kind": "clock", "delay_s": -3.0} == order_of("clock", given)
    assert {"kind": "status", "status": 500} == order_of("status", {"status": 500})
    assert order_of(None, {"times": None}) is None
