"""The embedded controller around a small agent: rollouts, closing, saving with every refusal, restoring, training."""

import asyncio
import json
import time

import pytest

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.controller import OpenBody, Redispatch, RestoreBody, SaveBody, SettleBody
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.manifest import ArtifactReference, SnapshotManifest
from ckptctl.domain.participant import CommonBody
from ckptctl.errors import AnchorRefusedError
from ckptctl.formats.snapshot_manifest import encode_manifest
from ckptctl.sim.finishing import NothingToTrainError
from ckptctl.sim.run_files import read_log
from ckptctl.sim.trainer import Trainer
from tests.unit.sim.stand_in import StandInAgent, a_controller, until


def common(seconds=30.0, checkpoint_id="ck-1", **more):
    return {"checkpoint_id": checkpoint_id, "deadline_ts": time.time() + seconds, **more}


async def close(controller):
    return await controller.close_admission(CommonBody(**common()))


async def save(controller, folder, references=()):
    folder.mkdir(parents=True, exist_ok=True)
    return await controller.save(
        SaveBody(**common(checkpoint_dir=str(folder), storage_reference_indexes=list(references)))
    )


def publish(controller_reply, folder):
    """What a coordinator writes last; returns the digest that restore demands."""
    manifest = SnapshotManifest(
        schema_version=4,
        bootstrap_fingerprint=controller_reply.bootstrap_fingerprint,
        **controller_reply.counters.model_dump(),
    )
    data = encode_manifest(manifest)
    (folder / "manifest.json").write_bytes(data)
    return sha256_hex(data)


async def restore(controller, folder, digest):
    return await controller.restore(RestoreBody(**common(checkpoint_dir=str(folder), manifest_sha256=digest)))


async def open_with(controller, outcome, redispatch=()):
    return await controller.open_admission(OpenBody(**common(outcome=outcome, redispatch=list(redispatch))))


def finished(controller):
    return lambda: controller.state.finished_count() if not controller.state.ledger.groups() else 0


async def half_finished(controller, agent):
    """Two groups: one sibling sealed, the others in flight."""
    agent.gate.clear()
    controller.loop.set_goal(2)
    await until(lambda: len(agent.runs) == 4)
    return controller


def test_a_run_finishes_every_group(tmp_path):
    """All prompts are generated, sealed, acknowledged and finalized; staging is empty afterwards."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent) as controller:
            controller.loop.set_goal(4)
            await until(lambda: controller.state.finished_count() == 4 and not controller.state.ledger.outbox())
            state = controller.state
            assert frozenset() == state.plane.keys("rollout_staging")
            assert state.replay.sample_ids() == state.plane.keys("rollout_data")
            assert [] == controller.problems()
            return sorted(agent.acknowledged), sorted(state.replay.sample_ids())

    acknowledged, samples = asyncio.run(scenario())

    assert [(sample, 0) for sample in samples] == acknowledged
    lines = read_log(str(tmp_path / "results.jsonl"))
    assert 8 == sum(line["kind"] == "sibling" for line in lines)
    assert 4 == sum(line["kind"] == "group" for line in lines)
    assert 8 == len(read_log(str(tmp_path / "dispatches.jsonl")))


def test_closing_waits_until_every_dispatch_has_reached_its_agent(tmp_path):
    """`close` does not return while an agent does not know an execution that was sent to it; afterwards nothing begins."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent) as controller:
            await half_finished(controller, agent)
            agent.is_deaf = True
            closing = asyncio.create_task(close(controller))
            await asyncio.sleep(0.05)
            assert not closing.done()
            agent.is_deaf = False
            reply = await closing
            controller.loop.set_goal(4)
            await asyncio.sleep(0.02)
            return reply, len(agent.runs)

    reply, runs = asyncio.run(scenario())

    assert ("closed", 4, 0) == (reply.phase, reply.unfinished_rollouts, reply.in_flight_dispatches)
    assert 4 == runs


def test_a_cancelled_close_goes_on_as_before(tmp_path):
    """When closing is given up, dispatch goes on."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent) as controller:
            await half_finished(controller, agent)
            agent.is_deaf = True
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await close(controller)
            agent.is_deaf = False
            controller.loop.set_goal(4)
            agent.gate.set()
            await until(lambda: controller.state.finished_count() == 4)

    asyncio.run(scenario())


def test_a_turned_away_dispatch_is_sent_again_and_a_failed_one_replaced(tmp_path):
    """Admission closed at the agent: same attempt, later. A crash of the execution: the next attempt."""

    async def scenario():
        agent = StandInAgent()
        agent.is_closed = True
        async with a_controller(tmp_path, agent, generations=1, groups_per_step=1) as controller:
            controller.loop.set_goal(1)
            log = tmp_path / "dispatches.jsonl"
            await until(lambda: "turned_away" in log.read_text())
            agent.is_closed, agent.fail_next = False, 1
            await until(lambda: controller.state.finished_count() == 1 and not controller.state.ledger.groups())
            return [attempt for _, attempt in agent.runs]

    assert [0, 1] == asyncio.run(scenario())


def test_a_save_holds_everything_and_a_restore_goes_on_from_it(tmp_path):
    """Kill after the save: sealed siblings are kept, in-flight ones go on as N+1, finished groups are not generated again."""
    folder = tmp_path / "snap"

    async def first(agent):
        async with a_controller(tmp_path, agent, max_in_flight=2) as controller:
            controller.loop.set_goal(2)
            await until(lambda: controller.state.finished_count() == 2 and not controller.state.ledger.groups())
            agent.gate.clear()
            controller.loop.set_goal(4)
            await until(lambda: controller.loop.in_flight() == 2 and len(agent.runs) == 6)
            await close(controller)
            await until(lambda: not controller.state.ledger.outbox())
            reply = await save(controller, folder)
            return reply, [group.group_id for group in controller.state.replay.groups()]

    async def second(agent, digest):
        async with a_controller(tmp_path, agent, restore_expected=True, incarnation=2) as controller:
            reply = await restore(controller, folder, digest)
            ledger = await controller.ledger(10, None)
            assert not agent.runs
            mapping = [
                Redispatch(
                    group_id=group.group_id,
                    generation_index=sibling.generation_index,
                    rollout_id=sibling.rollout_id,
                    source_attempt=sibling.current_attempt,
                    replacement_attempt=sibling.current_attempt + (sibling.status != "reserved"),
                    mode="restart",
                    reason="no boundary",
                )
                for group in ledger.groups
                for sibling in group.siblings
            ]
            with pytest.raises(RefusalError, match="unowned_redispatch"):
                await open_with(controller, "restored", mapping[1:])
            dispatched = await open_with(controller, "restored", mapping)
            await until(lambda: not controller.state.ledger.groups())
            return reply, dispatched, agent.runs, controller.state.finished_count()

    saved, finished_groups = asyncio.run(_with_agent(first))
    names = {file.relative_path for file in saved.files}
    for file in saved.files:
        data = (folder / file.relative_path).read_bytes()
        assert (len(data), sha256_hex(data)) == (file.bytes, file.sha256)
    digest = publish(saved, folder)
    reply, dispatched, runs, finished_count = asyncio.run(_with_agent(lambda agent: second(agent, digest)))

    assert {"config.yaml", "rollout_recovery.pt", "replay_buffer_metadata.pt", "train_dataloader.pt"} < names
    assert 0o600 == (folder / "config.yaml").stat().st_mode & 0o777
    assert "s3cret" not in (folder / "config.yaml").read_text()
    assert (2, 4, 2) == (saved.groups, saved.canonical_rows, saved.staging_rows)
    assert (2, 2, 4, 0, 0) == (
        reply.ledger_groups,
        reply.replay_groups,
        reply.canonical_rows,
        reply.staging_rows,
        reply.outbox,
    )
    assert 4 == dispatched == len(runs)
    assert [0, 0, 1, 1] == sorted(attempt for _, attempt in runs)
    assert not [rollout for rollout, _ in runs if rollout.rpartition("_g")[0] in finished_groups]
    assert 4 == finished_count
    (record,) = read_log(str(tmp_path / "restores.jsonl"))
    assert sorted(finished_groups) == record["finished_groups"]


async def _with_agent(scenario):
    return await scenario(StandInAgent())


@pytest.fixture
def snapshot_folder(tmp_path):
    folder = tmp_path / "snap"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(b"somebody else's")
    return folder


async def _refused_save(tmp_path, folder, prepare, references=()):
    agent = StandInAgent()
    async with a_controller(tmp_path, agent) as controller:
        await half_finished(controller, agent)
        await close(controller)
        await prepare(controller, agent)
        with pytest.raises(RefusalError) as caught:
            await save(controller, folder, references)
        return caught.value.code


def test_a_save_refuses_a_trainer_that_moved(tmp_path, snapshot_folder):
    """Step 1 of save: busy, or another step than when admission was closed."""

    async def busy(controller, _):
        controller.state.trainer.is_busy = True

    async def moved(controller, _):
        controller.state.trainer.train_step += 1

    for number, prepare in enumerate((busy, moved)):
        code = asyncio.run(_refused_save(tmp_path / str(number), snapshot_folder, prepare))
        assert "trainer_state_changed" == code


def test_a_save_refuses_an_outbox_that_is_not_empty(tmp_path, snapshot_folder):
    """Step 2 of save: results that the agents still hold."""

    async def owe(controller, agent):
        agent.is_deaf = True
        agent.gate.set()
        await until(lambda: len(controller.state.ledger.outbox()) == 4)

    assert "acknowledgements_pending" == asyncio.run(_refused_save(tmp_path, snapshot_folder, owe))


def test_a_save_refuses_a_group_that_is_being_finalized(tmp_path, snapshot_folder):
    """Step 2 of save: nobody could know whether its canonical rows exist."""

    async def finalizing(controller, agent):
        agent.gate.set()
        await until(lambda: controller.loop.in_flight() == 0 and not controller.state.ledger.outbox())
        assert {"ready_to_finalize"} == {group.status for group in controller.state.ledger.groups()}
        controller.state.ledger.finalizing(controller.state.ledger.groups()[0].group_id)

    assert "finalization_in_progress" == asyncio.run(_refused_save(tmp_path, snapshot_folder, finalizing))


def an_index(folder, *keys):
    rows = [
        {
            "schema_version": 1,
            "capture_key": "c",
            "boundary_model_call_id": "call-0",
            "kind": "token_capture_staging",
            "key": key,
        }
        for key in keys
    ]
    data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
    (folder / "storage-references.jsonl").write_bytes(data)
    return ArtifactReference(
        schema_version=1,
        relative_path="storage-references.jsonl",
        sha256=sha256_hex(data),
        records=len(rows),
        bytes=len(data),
    )


def test_a_save_refuses_missing_staging_rows(tmp_path, snapshot_folder):
    """Step 3 of save: a continuation needs a row that the partition does not have."""

    async def nothing(controller, agent):
        return None

    reference = an_index(snapshot_folder, "lost/call-0")

    assert "staging_rows_missing" == asyncio.run(_refused_save(tmp_path, snapshot_folder, nothing, [reference]))
    forged = reference.model_copy(update={"sha256": "0" * 64})
    assert "storage_error" == asyncio.run(_refused_save(tmp_path / "b", snapshot_folder, nothing, [forged]))


def test_a_save_refuses_canonical_rows_that_nobody_owns(tmp_path, snapshot_folder):
    """Step 4 of save: canonical keys and replay metadata are equal, or there is no snapshot."""

    async def stray(controller, _):
        async with controller.state.plane.mutation():
            controller.state.plane.put("rollout_data", "stray_g0", {}, None)

    assert "canonical_rows_differ" == asyncio.run(_refused_save(tmp_path, snapshot_folder, stray))


def test_a_failing_write_removes_its_own_files_and_nothing_else(tmp_path, snapshot_folder):
    """Step 5 of save: a disk that refuses leaves the directory as it was."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent) as controller:
            await close(controller)
            (snapshot_folder / "train_dataloader.pt").mkdir()  # a file cannot take its place
            with pytest.raises(RefusalError, match="storage_error"):
                await save(controller, snapshot_folder)
            left = sorted(path.name for path in snapshot_folder.iterdir())
            (snapshot_folder / "train_dataloader.pt").rmdir()
            await save(controller, snapshot_folder)
            return left

    assert ["manifest.json", "train_dataloader.pt"] == asyncio.run(scenario())
    assert b"somebody else's" == (snapshot_folder / "manifest.json").read_bytes()


def test_a_save_that_passes_its_deadline_is_undone(tmp_path, snapshot_folder):
    """Cancelled in the middle of writing: what was written is gone again."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent) as controller:
            await close(controller)
            saving = asyncio.create_task(save(controller, snapshot_folder))
            await until(lambda: (snapshot_folder / "data_plane.tmp").exists())
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
            return sorted(path.name for path in snapshot_folder.iterdir())

    assert ["manifest.json"] == asyncio.run(scenario())


def test_a_restore_refuses_what_does_not_belong_together(tmp_path):
    """Another manifest, another trainer, a damaged or foreign part: refused, and a repeated restore still works."""
    folder = tmp_path / "snap"

    async def first(agent):
        async with a_controller(tmp_path, agent) as controller:
            controller.loop.set_goal(2)
            await until(lambda: controller.state.finished_count() == 2 and not controller.state.ledger.outbox())
            await close(controller)
            return await save(controller, folder)

    saved = asyncio.run(_with_agent(first))
    digest = publish(saved, folder)

    async def second(agent):
        async with a_controller(tmp_path, agent, restore_expected=True) as controller:
            with pytest.raises(RefusalError, match="manifest_mismatch") as mismatch:
                await restore(controller, folder, "0" * 64)
            assert mismatch.value.harmless
            for name in ("rollout_recovery.pt", "replay_buffer_metadata.pt", "data_plane/controller_state.pkl"):
                data = (folder / name).read_bytes()
                (folder / name).write_bytes(data[:-40])
                with pytest.raises(RefusalError, match="restore_failed"):
                    await restore(controller, folder, digest)
                (folder / name).write_bytes(data)
            (folder / "replacement_reserve.pt").write_bytes(b"x")
            with pytest.raises(RefusalError, match="reserve"):
                await restore(controller, folder, digest)
            (folder / "replacement_reserve.pt").unlink()
            controller.state.trainer.train_step = 1
            with pytest.raises(RefusalError, match="belongs to"):
                await restore(controller, folder, digest)
            controller.state.trainer.train_step = 0
            return await restore(controller, folder, digest)

    assert 2 == asyncio.run(_with_agent(second)).replay_groups


def test_receipts_of_finished_groups_are_settled(tmp_path):
    """A restarted agent refuses a receipt: owned ones are dropped, others kept and named."""

    async def scenario():
        agent = StandInAgent()
        agent.is_deaf = True
        async with a_controller(tmp_path, agent) as controller:
            controller.loop.set_goal(2)
            await until(lambda: controller.state.finished_count() == 2 and not controller.state.ledger.groups())
            page = await controller.acknowledgements(3, None)
            rest = await controller.acknowledgements(3, page.next)
            receipts = [entry.receipt for entry in (*page.pending, *rest.pending)]
            foreign = receipts[0].model_copy(update={"rollout_id": "nobody_g0"})
            reply = await controller.settle(SettleBody(receipts=[*receipts, foreign]))
            return page.total, receipts, reply, len(controller.state.ledger.outbox())

    total, receipts, reply, left = asyncio.run(scenario())

    assert 4 == total == len({receipt.rollout_id for receipt in receipts})
    assert receipts == reply.settled
    assert ["nobody_g0"] == [receipt.rollout_id for receipt in reply.unowned]
    assert 0 == left


def test_a_train_step_publishes_an_anchor_and_frees_its_groups(tmp_path):
    """Groups leave the replay metadata and the canonical partition; step and version move; nothing left: refused."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent) as controller:
            controller.loop.set_goal(2)
            await until(lambda: controller.state.finished_count() == 2 and not controller.state.ledger.groups())
            assert ("bootstrap", 64) == (
                controller.state.trainer.anchor,
                len(controller.state.trainer.bootstrap_fingerprint),
            )
            await controller.finisher.train()
            facts = await controller.facts()
            with pytest.raises(NothingToTrainError):
                await controller.finisher.train()
            return facts, controller.state.plane.keys("rollout_data"), controller.state.finished_count()

    facts, keys, finished_count = asyncio.run(scenario())

    assert (1, 1, "step_1", None) == (
        facts.train_step,
        facts.trainer_version,
        facts.anchor,
        facts.bootstrap_fingerprint,
    )
    assert frozenset() == keys
    assert 2 == finished_count
    step = tmp_path / "checkpoints/step_1"
    assert {"training_info.json", "config.yaml", "train_dataloader.pt", "policy"} == {
        path.name for path in step.iterdir()
    }
    assert 1 == json.loads((step / "training_info.json").read_text())["current_step"]


def test_training_by_itself_keeps_generation_going(tmp_path):
    """With `train_every_groups` the run goes on over several steps and epochs; every group is finished once."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, train_every_groups=2, prompts=4) as controller:
            controller.loop.set_goal(8)
            await until(lambda: controller.state.trainer.train_step == 4)
            assert [] == controller.problems()
            return controller.state.prompts.epoch, len(agent.runs)

    assert (1, 16) == asyncio.run(scenario())


def test_a_directory_of_another_configuration_is_refused(tmp_path):
    """A bootstrap anchor that another configuration wrote is left alone, and says what differs."""

    def a_trainer(**grpo):
        config = {"grpo": grpo, "checkpointing": {"checkpoint_dir": "anywhere"}}
        return Trainer(checkpoint_dir=str(tmp_path), config=config, sampler_name="windowed")

    a_trainer(seed=7).start()
    before = (tmp_path / "bootstrap/manifest.json").read_bytes()
    a_trainer(seed=7).start()
    with pytest.raises(AnchorRefusedError, match="grpo.seed 7 -> 8"):
        a_trainer(seed=8).start()

    assert before == (tmp_path / "bootstrap/manifest.json").read_bytes()


def test_an_incomplete_step_is_refused(tmp_path):
    """A newest anchor that cannot be read, or is another step than its name, stops the start."""
    step = tmp_path / "step_3"
    step.mkdir(parents=True)
    trainer = Trainer(checkpoint_dir=str(tmp_path), config={}, sampler_name="windowed")
    with pytest.raises(AnchorRefusedError, match="is missing"):
        trainer.start()
    (step / "training_info.json").write_text('{"current_step": 2}')
    with pytest.raises(AnchorRefusedError, match="says that it is step 2"):
        trainer.start()
    (step / "training_info.json").write_text("{")
    with pytest.raises(AnchorRefusedError, match="cannot be read"):
        trainer.start()
