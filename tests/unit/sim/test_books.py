"""The ledger, the replay entries, the prompt source and the receipts: bookkeeping without servers."""

import asyncio
import struct

import pytest

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.controller import Redispatch
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ledger import Group, PromptReference, Sibling
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.domain.replay import ReplayGroup, RowMeta
from ckptctl.domain.source import BytesSource
from ckptctl.domain.staged import stage_call
from ckptctl.formats.dataloader_file import decode_dataloader, encode_dataloader
from ckptctl.formats.ledger_file import decode_ledger, encode_ledger
from ckptctl.formats.staged_row import encode_staged_row
from ckptctl.sim.data_plane import EmbeddedDataPlane
from ckptctl.sim.ledger_book import LedgerBook, SealedResult, new_attempt
from ckptctl.sim.prompt_source import Prompt, PromptSource, group_id
from ckptctl.sim.replay_book import ReplayBook
from ckptctl.sim.sealing import call_chain, canonical_fields, capture_receipt


def a_group(name="g", *, granularity="sibling", generations=2, admission="adm", target_step=0):
    return Group(
        group_id=name,
        admission_id=admission,
        prompt_id="3",
        prompt_ref=PromptReference(sample_id="3", task_name="counter"),
        task_source=None,
        resolved_agent_name=None,
        recovery_granularity=granularity,
        expected_generations=generations,
        target_step=target_step,
        start_weight_version=0,
        status="generating",
        phase="reserved",
        siblings=[Sibling(generation_index=index, attempts=[new_attempt(0)]) for index in range(generations)],
    )


def a_receipt(rollout, attempt=0):
    return CompletionReceipt(
        rollout_id=rollout,
        attempt_index=attempt,
        execution_generation=1,
        result_identity="r",
        result_digest="0" * 64,
        manifest_capture_key=rollout,
        terminal_model_call_id="call-0",
    )


def a_result(rollout, attempt=0, agent="simple_agent"):
    capture = rollout if attempt == 0 else f"{rollout}-a{attempt}"
    receipt = {"rollout_id": capture, "manifest": [{"staging_key": f"{capture}/call-0"}]}
    return SealedResult(agent, a_receipt(rollout, attempt), receipt, (f"{capture}/call-0",), 1.0, mask_sample=False)


def a_book(*groups):
    book = LedgerBook()
    book.add(groups or (a_group(),))
    return book


def round_trip(book):
    """What a save writes and a restore reads."""
    data = encode_ledger(book.ledger(owned_by_replay=(), stamps_target_steps=True))
    return decode_ledger(BytesSource(data), DEFAULT_LIMITS)


def restarted(book):
    fresh = LedgerBook()
    fresh.load(round_trip(book), owned_by_replay=())
    return fresh


def test_a_group_is_ready_when_its_last_sibling_is_sealed():
    """Sealing owns the result and owes the acknowledgement; the last seal makes the group ready."""
    book = a_book()
    for index in (0, 1):
        book.dispatched("g", index)

    assert not book.sealed("g", 0, a_result("g_g0"))
    assert book.sealed("g", 1, a_result("g_g1"))
    assert "ready_to_finalize" == book.group("g").status
    assert "simple_agent" == book.group("g").resolved_agent_name
    assert ["g_g0", "g_g1"] == [entry.receipt.rollout_id for entry in book.outbox()]
    assert {"g_g0/call-0", "g_g1/call-0"} == book.staging_keys()


def test_prompt_group_siblings_seal_together():
    """In `prompt_group` granularity a finished sibling stays dispatched, its acknowledgement is owed all the same."""
    book = a_book(a_group(granularity="prompt_group"))
    for index in (0, 1):
        book.dispatched("g", index)

    assert not book.sealed("g", 0, a_result("g_g0"))
    assert "dispatched" == book.group("g").siblings[0].current.status
    assert 1 == len(book.outbox())
    assert book.owns(a_receipt("g_g0"))
    assert book.sealed("g", 1, a_result("g_g1"))
    assert {"sealed"} == {sibling.current.status for sibling in book.group("g").siblings}


def test_a_dispatch_that_never_began_keeps_its_number_a_failed_one_does_not():
    """Turned away: the same attempt again. Failed: the next one, reserved."""
    book = a_book()
    book.dispatched("g", 0)
    book.not_dispatched("g", 0)
    assert (0, "reserved") == (
        book.group("g").siblings[0].current.attempt_index,
        book.group("g").siblings[0].current.status,
    )
    book.dispatched("g", 0)

    assert 1 == book.failed("g", 0)
    assert ["failed", "reserved"] == [attempt.status for attempt in book.group("g").siblings[0].attempts]


def test_all_groups_of_an_admission_are_admitted_together():
    """Groups that share an admission agree on the phase."""
    book = a_book(a_group("g"), a_group("h"), a_group("i", admission="other"))
    book.admit("adm")

    assert ["admitted", "admitted", "reserved"] == [group.phase for group in book.groups()]


def test_confirm_removes_exactly_what_is_owed():
    """Another receipt of the pair, or a pair that is not owed, is unknown and removes nothing."""
    book = a_book()
    book.dispatched("g", 0)
    book.sealed("g", 0, a_result("g_g0"))
    other = a_receipt("g_g0").model_copy(update={"execution_generation": 2})

    removed, unknown = book.confirm([other, a_receipt("g_g1")])
    assert (0, ["g_g0", "g_g1"]) == (removed, [pair.rollout_id for pair in unknown])
    assert (1, []) == book.confirm([a_receipt("g_g0")])
    assert (0, 1) == (book.confirm([a_receipt("g_g0")])[0], len(book.confirm([a_receipt("g_g0")])[1]))


def test_a_restart_abandons_what_was_dispatched():
    """Sibling granularity: sealed ones stay, dispatched ones are abandoned, what was never sent stays reserved."""
    book = a_book(a_group(generations=3))
    book.dispatched("g", 0)
    book.sealed("g", 0, a_result("g_g0"))
    book.dispatched("g", 1)

    after = restarted(book)

    assert ["sealed", "abandoned", "reserved"] == [item.current.status for item in after.group("g").siblings]
    assert () == after.outbox()
    assert 1 == after.redispatch("g", 1)
    assert 0 == after.redispatch("g", 2)
    assert {"g_g0/call-0"} == after.staging_keys()


def test_a_restart_gives_up_a_whole_prompt_group():
    """Prompt-group granularity: nothing of an unfinished group is reused."""
    group = a_group(granularity="prompt_group")
    sealed = a_book(group)
    sealed.dispatched("g", 0)
    sealed.sealed("g", 0, a_result("g_g0"))
    sealed.dispatched("g", 1)

    after = restarted(sealed)

    assert ["abandoned", "abandoned"] == [item.current.status for item in after.group("g").siblings]
    assert after.group("g").resolved_agent_name is None
    assert set() == after.staging_keys()


def test_groups_owned_by_replay_are_not_saved_and_not_restored():
    """A group is in the ledger or in the replay metadata, never in both."""
    book = a_book(a_group("g"), a_group("h"))
    document = book.ledger(owned_by_replay=["h"], stamps_target_steps=True)
    fresh = LedgerBook()
    fresh.load(document, owned_by_replay=["g"])

    assert ["g"] == [group.group_id for group in document.groups]
    assert () == fresh.groups()


def mapping(**changes):
    fields = {
        "group_id": "g",
        "generation_index": 0,
        "rollout_id": "g_g0",
        "source_attempt": 0,
        "replacement_attempt": 1,
        "mode": "restart",
        "reason": "",
    }
    return Redispatch(**{**fields, **changes})


@pytest.fixture
def restored_book():
    """One abandoned sibling, one reserved."""
    book = a_book()
    book.dispatched("g", 0)
    return restarted(book)


RESERVED = {"generation_index": 1, "rollout_id": "g_g1", "replacement_attempt": 0}


def test_the_right_mapping_is_accepted(restored_book):
    """Abandoned: N+1. Reserved: N."""
    restored_book.check_redispatch([mapping(), mapping(**RESERVED)])


@pytest.mark.parametrize(
    "wrong",
    [
        [mapping()],
        [mapping(), mapping(**{**RESERVED, "replacement_attempt": 1})],
        [mapping(replacement_attempt=2), mapping(**RESERVED)],
        [mapping(replacement_attempt=0), mapping(**RESERVED)],
        [mapping(source_attempt=1), mapping(**RESERVED)],
        [mapping(), mapping(**RESERVED), mapping()],
        [mapping(), mapping(**RESERVED), mapping(group_id="h", rollout_id="h_g0")],
        [mapping(rollout_id="g_g7"), mapping(**RESERVED)],
    ],
    ids=["left-out", "reserved-advanced", "n-plus-2", "n-again", "source", "twice", "foreign", "other-rollout"],
)
def test_a_wrong_mapping_is_refused(restored_book, wrong):
    """A mapping must name every unsealed sibling once, with exactly the right attempts."""
    with pytest.raises(RefusalError, match="unowned_redispatch"):
        restored_book.check_redispatch(wrong)


def test_pages_of_the_ledger_cover_every_group_once():
    """Pages follow each other by group id."""
    book = a_book(*(a_group(name, admission=name) for name in "dbac"))
    first, total, following = book.page(3, None)
    second, _, end = book.page(3, following)

    assert ["a", "b", "c", "d"] == [group.group_id for group in (*first, *second)]
    assert (4, "c", None) == (total, following, end)


def a_replay_group(name, target_step):
    meta = RowMeta(
        partition_id="rollout_data",
        task_name="train",
        sample_ids=[f"{name}_g0"],
        fields=None,
        sequence_lengths=[3],
        extra_info={},
        tags=[{"weight_version": 0}],
    )
    return ReplayGroup(meta=meta, start_weight=0, end_weight=0, target_step=target_step, group_id=name)


def test_training_takes_the_lowest_target_step_first():
    """The batch is by target step, then by age; trained groups leave."""
    book = ReplayBook(partition_id="rollout_data", capacity=8)
    for name, step in (("c", 1), ("a", 0), ("b", 0)):
        book.add(a_replay_group(name, step))
    batch = book.next_batch(2)
    book.remove(group.group_id for group in batch)

    assert ["a", "b"] == [group.group_id for group in batch]
    assert {"c_g0"} == book.sample_ids()


def test_the_cursor_survives_its_file():
    """A restored source draws exactly what the old one would have drawn next, over the end of an epoch."""
    source = PromptSource(seed=7, rows=5, batch_size=2)
    for _ in range(4):
        source.next_batch()
    data = encode_dataloader(source.state())
    fresh = PromptSource(seed=7, rows=5, batch_size=2)
    fresh.load(decode_dataloader(BytesSource(data), DEFAULT_LIMITS), source.epoch)

    assert source.drawn == fresh.drawn == 7
    assert [source.next_batch() for _ in range(4)] == [fresh.next_batch() for _ in range(4)]
    assert sorted(prompt.row for prompt in source.drawn_prompts()[:5]) == [0, 1, 2, 3, 4]


def test_a_foreign_cursor_is_refused():
    """A state of a loader with workers, or of a larger dataset, is not this dataset's."""
    source = PromptSource(seed=7, rows=5, batch_size=2)
    for state in ({"_snapshot": {}}, {"_sampler_iter_state": {"samples_yielded": 6}}):
        with pytest.raises(DefectError, match="cursor"):
            source.load(state, 0)


def test_group_ids_depend_on_seed_prompt_and_epoch_alone():
    """Two runs with one seed agree in all ids; another epoch is another group."""
    assert group_id(7, Prompt(0, 3)) == group_id(7, Prompt(0, 3))
    assert 3 == len({group_id(7, Prompt(0, 3)), group_id(8, Prompt(0, 3)), group_id(7, Prompt(1, 3))})


def staged(calls):
    """A plane with these rows in its staging partition."""

    async def build():
        plane = EmbeddedDataPlane(units=2, unit_size=100)
        async with plane.mutation():
            plane.register("rollout_staging", ())
            for row in calls:
                plane.put("rollout_staging", row.key, encode_staged_row(row), None)
        return plane

    return asyncio.run(build())


def a_call(capture, call, parent=None, prefix=(), ids=(11, 12)):
    return stage_call(
        rollout_id=capture,
        model_call_id=call,
        token_ids=ids,
        token_mask=[0.0, 1.0],
        logprobs=[0.0, -0.5],
        weight_version=2,
        parent=parent,
        prefix_ids=prefix,
    )


def test_a_chain_leads_over_the_capture_keys_of_older_attempts():
    """A continued attempt's receipt lists the rows of the attempts before it; rows of a restarted one are not its own."""
    root = a_call("g_g0", "call-0")
    left_behind = a_call("g_g0", "call-1", root, (11, 12), (13, 14))
    child = a_call("g_g0-a1", "call-1", root, (11, 12), (15, 16))
    plane = staged([root, left_behind, child])

    chain = call_chain(plane, "rollout_staging", rollout="g_g0", attempt_index=1, capture="g_g0-a1", call_id="call-1")
    receipt, keys = capture_receipt(chain, capture="g_g0-a1", reward=1.0, sealed_at=1.0)

    assert ("g_g0/call-0", "g_g0-a1/call-1") == keys
    assert "call-1" == receipt["terminal_model_call_id"]
    assert [root.digest, child.digest] == [row["digest"] for row in receipt["manifest"]]


def test_a_parent_that_does_not_fit_the_chain_is_not_taken():
    """The chain hash decides which row is the parent, not the call id alone."""
    root, other = a_call("g_g0", "call-0"), a_call("g_g0-a1", "call-0", ids=(21, 22))
    child = a_call("g_g0-a1", "call-1", root, (11, 12), (13, 14))

    chain = call_chain(
        staged([root, other, child]),
        "rollout_staging",
        rollout="g_g0",
        attempt_index=1,
        capture="g_g0-a1",
        call_id="call-1",
    )
    assert ["g_g0/call-0", "g_g0-a1/call-1"] == [row.key for row in chain]
    with pytest.raises(DefectError, match="parent"):
        call_chain(
            staged([other, child]),
            "rollout_staging",
            rollout="g_g0",
            attempt_index=1,
            capture="g_g0-a1",
            call_id="call-1",
        )


def test_a_canonical_row_holds_the_whole_conversation():
    """Tokens, masks and log probabilities of the chain are joined; the prompt is what comes before the first generated token."""
    root = a_call("g_g0", "call-0")
    child = a_call("g_g0", "call-1", root, (11, 12), (13, 14))
    fields = canonical_fields([root, child], reward=0.5, is_masked=False)

    assert struct.pack("<4q", 11, 12, 13, 14) == fields["input_ids"].data
    assert struct.pack("<q", 4) == fields["input_lengths"].data
    assert struct.pack("<q", 11) == fields["prompt_ids_for_adv"].data
    assert struct.pack("<f", 0.5) == fields["total_reward"].data
    assert (1,) == canonical_fields([], reward=0.0, is_masked=True)["input_ids"].shape
