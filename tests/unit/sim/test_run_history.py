"""Whose mutations count for a result: those of its own session, however often that session was begun anew."""

import json

from ckptctl.sim.run_history import read_history

ROLLOUT = "g_g0"


def a_mutation(route, revision, *, incarnation, attempt, kind="mutation"):
    facts = {"event": "mutation", "server": "counter", "rollout": ROLLOUT, "turn": 0, "request_id": route}
    return {**facts, "incarnation": incarnation, "attempt": attempt, "route": route, "kind": kind, "revision": revision}


def history_of(folder, audit):
    """A run whose first incarnation ended at revision 2, and whose second took the session over as attempt 1."""
    first = [
        a_mutation("seed_session", 1, incarnation=1, attempt=0, kind="start"),
        a_mutation("increment", 2, incarnation=1, attempt=0),
        a_mutation("increment", 3, incarnation=1, attempt=0),  # after the cut
    ]
    held = {"rollout_id": ROLLOUT, "attempt_index": 1, "revision": 2}
    restored = {"event": "restored", "server": "counter", "incarnation": 2, "sessions": [held]}
    (folder / "results.jsonl").write_text("")
    (folder / "audit-counter-x.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in (*first, restored, *audit))
    )
    result = {"rollout_id": ROLLOUT, "attempt_index": 1, "incarnation": 2}
    return [(item.revision, item.route) for item in read_history(str(folder)).mutations_of(result)]


def test_a_continued_attempt_has_what_the_snapshot_held_and_what_it_added(tmp_path):
    """The session up to its saved revision, and the successor's own calls."""
    added = [a_mutation("increment", 3, incarnation=2, attempt=1), a_mutation("verify", 4, incarnation=2, attempt=1)]

    assert [(1, "seed_session"), (2, "increment"), (3, "increment"), (4, "verify")] == history_of(tmp_path, added)


def test_an_attempt_that_began_anew_over_the_session_has_nothing_of_it(tmp_path):
    """A restarted rollout seeds over the session that came back: it counts from its own start."""
    added = [
        a_mutation("seed_session", 3, incarnation=2, attempt=1, kind="start"),
        a_mutation("increment", 4, incarnation=2, attempt=1),
        a_mutation("verify", 5, incarnation=2, attempt=1),
    ]

    assert [(1, "seed_session"), (2, "increment"), (3, "verify")] == history_of(tmp_path, added)
