"""Every line that a writer puts into a journal is what `schemas/journal.v1.json` promises, and every answer what its own schema does."""

from __future__ import annotations

import asyncio
import json
import shutil

from ckptctl.domain.journal import JournalLine
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.render.errors import error_json
from ckptctl.render.machine import to_json
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.command_line import run
from tests.fakes.simulated_gym import simulated
from tests.schemas import problems


def journal_problems(checkpoint_dir) -> dict[str, list[str]]:
    """Problems of every journal line, by file; each line is also read back as a document."""
    found = {}
    for path in sorted((checkpoint_dir / ".ckptctl" / "journal").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found[path.stem] = [problem for line in lines for problem in problems(line, "journal.v1.json")]
        for line in lines:
            JournalLine.model_validate_json(line)
    return found


def test_lines_of_snapshots_publications_and_releases(tmp_path) -> None:
    """Published, aborted, left pending and recovered, a foreign directory published, a foreign id released."""

    async def scenario():
        answers = []

        async def told(work, request, name):
            async with gym.world() as (world, _):
                try:
                    answers.append((to_json(await work(world, gym.config, request)), name))
                except CkptctlError as error:
                    answers.append((error_json(error), "error.v1.json"))

        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            await told(take_snapshot, SnapshotRequest(), "snapshot.v1.json")
            refusal = {"kind": "refuse", "code": "resources_checkpoint_error"}
            await gym.fault("counter", operation="resources-checkpoint/commit", **refusal)
            await told(take_snapshot, SnapshotRequest(), "snapshot.v1.json")
            await gym.fault("counter", operation="resources-checkpoint/resume", times=0, **refusal)
            await told(take_snapshot, SnapshotRequest(), "snapshot.v1.json")
            gym.clear_faults()
            await told(finish_publish, PublishRequest(), "publish.v1.json")
            folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
            shutil.move(folder / "snapshot_000001", folder / "tmp_snapshot_000009")
            await told(finish_publish, PublishRequest(staged=str(folder / "tmp_snapshot_000009")), "publish.v1.json")
            await gym.cluster.ok("counter", "resources-checkpoint/prepare", "other-1")
            await told(finish_publish, PublishRequest(release_id="other-1", reason="it died"), "publish.v1.json")
            await told(finish_publish, PublishRequest(), "publish.v1.json")
            return gym.checkpoint_dir, answers

    checkpoint_dir, answers = asyncio.run(scenario())
    outcomes = [json.loads(text).get("outcome", json.loads(text).get("code")) for text, _ in answers]

    assert [
        "published", "attempt-aborted", "published-release-pending", "released", "published", "released", "nothing_to_do",
    ] == outcomes  # fmt: skip
    assert [] == [problem for text, name in answers for problem in problems(text, name)]
    found = journal_problems(checkpoint_dir)
    assert {"snapshot": 3, "publish": 1, "release": 1} == {
        kind: sum(name.endswith(kind) for name in found) for kind in ("snapshot", "publish", "release")
    }
    assert [] == [problem for told in found.values() for problem in told]


def test_lines_of_garbage_collection(tmp_path) -> None:
    """Retention, a pin and its end, and a snapshot that is brought back."""
    from tests.builders import a_run_files, write_tree
    from tests.sample_list import before_the_first_step

    worlds = [before_the_first_step(name=f"snapshot_{number:06d}") for number in (1, 2, 3)]
    root = write_tree(tmp_path / "run", a_run_files(*worlds))
    path = "bootstrap/rollout_snapshots/snapshot_000003"
    for words in (
        ("--pin", path, "--reason", "to be looked at"),
        ("--unpin", path),
        ("--keep", "1"),
        ("--undelete", "bootstrap/rollout_snapshots/snapshot_000001"),
    ):
        ran = run("gc", str(root), *words, "--format", "json")
        assert (0, []) == (ran.status, problems(ran.stdout, "gc.v1.json")), ran.stderr
    found = journal_problems(root)

    assert 4 == len(found)
    assert [] == [problem for told in found.values() for problem in told]


def test_a_line_of_nobody_does_not_fit() -> None:
    """Another event, a missing time and a field too many are no journal lines of ours."""
    line = {"at": 1.0, "event": "intent", "step": "close-admission", "targets": ["controller"], "number": "2"}

    assert [] == problems(json.dumps(line), "journal.v1.json")
    for change in ({"event": "hope"}, {"at": None}, {"token": "secret"}, {"step": ""}):
        assert [] != problems(json.dumps({**line, **change}), "journal.v1.json"), change
