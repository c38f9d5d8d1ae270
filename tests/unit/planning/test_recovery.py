"""What an interrupted transaction left, and what finishes it."""

from __future__ import annotations

from ckptctl.planning.recovery import DiskFacts, decide, read_transaction, stages_of

FIRST = {
    "event": "begin",
    "kind": "snapshot",
    "transaction": "000001-snapshot",
    "at": 1.0,
    "schema_version": 1,
    "tool_version": "0.1.0",
    "checkpoint_id": "ck-1",
    "anchor": "step_3",
    "number": 2,
    "staged": "step_3/rollout_snapshots/tmp_snapshot_000002",
    "final": "step_3/rollout_snapshots/snapshot_000002",
    "controller_instance_id": "i-1",
    "train_step": 3,
    "trainer_version": 3,
    "mutation_version": 41,
    "unfinished_rollouts": 4,
    "topology_fingerprint": "0" * 64,
    "models": ["policy_model"],
    "agents": ["a"],
    "resources": ["counter"],
    "plan": {},
}
ORDER = (
    "close-admission",
    "prepare-agents",
    "save",
    "write-manifest",
    "validate",
    "publish",
    "resume-resources",
    "open-admission",
)
MANIFEST = "a" * 64


def records(done: int, *, torn: bool = False, finish: str | None = None) -> list[dict]:
    """A journal with so many finished steps; `torn`: the intent of the next one stands as well."""
    found: list[dict] = [FIRST]
    for step in ORDER[:done]:
        found.append({"event": "intent", "step": step})
        found.append(
            {
                "event": "outcome",
                "step": step,
                "seconds": 0.5,
                **({"manifest_sha256": MANIFEST} if step == "write-manifest" else {}),
            }
        )
    if torn and done < len(ORDER):
        found.append({"event": "intent", "step": ORDER[done]})
    if finish:
        found.append({"event": "finish", "outcome": finish})
    return found


def test_every_prefix_has_a_decision() -> None:
    """Before the manifest: abort. Staged completely: publish, or abort where that is not asked for. Renamed: release."""
    for done in range(len(ORDER) + 1):
        for torn in (False, True):
            transaction = read_transaction("000001-snapshot", records(done, torn=torn))
            staged = DiskFacts(staged_exists=True, final_manifest_sha256=None)
            renamed = DiskFacts(staged_exists=False, final_manifest_sha256=MANIFEST)
            expected = "release" if done >= 6 else "publish" if done >= 4 else "abort"

            assert expected == decide(transaction, staged, may_publish=True), (done, torn)
            assert ("release" if done >= 6 else "abort") == decide(transaction, staged, may_publish=False)
            assert ("release" if done >= 4 else "abort") == decide(transaction, renamed, may_publish=True)


def test_the_disk_wins_over_the_journal() -> None:
    """Renamed without a record is published; another snapshot of that name is not ours; nothing there is nothing."""
    transaction = read_transaction("t", records(5, torn=True))

    assert "release" == decide(transaction, DiskFacts(False, MANIFEST), may_publish=False)
    assert "abort" == decide(transaction, DiskFacts(False, "b" * 64), may_publish=True)
    assert "abort" == decide(transaction, DiskFacts(False, None), may_publish=True)
    assert "publish" == decide(transaction, DiskFacts(True, "b" * 64), may_publish=True)


def test_a_finished_transaction_is_finished() -> None:
    """The last record says how it ended; outcomes can be read back."""
    transaction = read_transaction("t", records(8, finish="published"))

    assert ("published", True) == (transaction.finish, transaction.is_published)
    assert ORDER == transaction.intents


def test_a_snapshot_that_was_renamed_before_its_record_is_published() -> None:
    """The next process saw it under its final name, so it only released; what it aborted is not published."""
    before_the_outcome = ORDER.index("publish")

    for finish, expected in (("released", True), ("published", True), ("aborted", False), (None, False)):
        transaction = read_transaction("000001-snapshot", records(before_the_outcome, torn=True, finish=finish))
        assert expected == transaction.is_published, finish


def test_facts_are_read_strictly_enough() -> None:
    """A snapshot's first record gives its facts; another kind, or a damaged one, gives none."""
    facts = read_transaction("t", records(0)).facts()

    assert (("policy_model",), ("a",), ("counter",)) == stages_of(facts)
    assert read_transaction("t", [{**FIRST, "kind": "restore"}]).facts() is None
    assert read_transaction("t", [{**FIRST, "checkpoint_id": "../x"}]).facts() is None
    assert read_transaction("t", []).facts() is None
