"""What `snapshot` and `publish` say when there was nothing to do, and on narrow terminals."""

from ckptctl.domain.transaction import TransactionResult
from ckptctl.render.transaction_text import transaction_text


def test_nothing_to_do_is_said_once():
    """With its reason, where there is one."""
    told = [
        transaction_text(TransactionResult(outcome="nothing_to_do", reason=reason), to_terminal=False)
        for reason in ("no transaction is unfinished", "")
    ]

    assert [
        "nothing to do: no transaction is unfinished\n",
        "nothing to do: what was asked for is done already\n",
    ] == told


def test_an_id_stays_whole(monkeypatch):
    """It is copied into the next command."""
    monkeypatch.setenv("NO_COLOR", "1")
    checkpoint_id = "rollout-step-3-snapshot-2-0f0e0d0c0b0a09080706050403020100"
    result = TransactionResult(
        outcome="published", snapshot="/run/step_3/rollout_snapshots/snapshot_000002", checkpoint_id=checkpoint_id
    )
    lines = transaction_text(result, to_terminal=True, width=40).splitlines()

    assert [checkpoint_id] == [line.strip() for line in lines if checkpoint_id in line]
