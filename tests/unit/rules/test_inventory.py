"""INV and LED rules where samples cannot reach: opaque values, blob files, anchors without sidecars, names of the staging partition."""

from dataclasses import replace

import pytest

from ckptctl.domain.amounts import plural
from ckptctl.domain.binding import UnitInfo
from ckptctl.domain.dataplane import StoredValue
from ckptctl.domain.evidence import Part, RunFacts, TreeEntry
from ckptctl.domain.finding import Defect
from ckptctl.rules import ALL_RULES
from ckptctl.rules._model import CannotRunError, NotAskedError
from ckptctl.rules._views import data_plane_of, first, staging_partition, unit_path
from ckptctl.rules.run import run_rules
from tests.builders import a_world, an_anchor_evidence, an_evidence, data_plane_evidence
from tests.rules.inventory_samples import CALL_5_ROW, G5_G0, STAGED, STATE, unit_of
from tests.world import STAGING, a_group, a_replay, a_replay_group, an_attempt

RULES = {rule.id: rule for rule in ALL_RULES}


def messages(rule_id, evidence):
    """What one rule says, without its requirements."""
    return [violation.message for violation in RULES[rule_id].check(evidence)]


def in_blob(value: StoredValue, size_bytes: int) -> StoredValue:
    return value._replace(blob_name="ab" * 16 + ".bin", byte_count=size_bytes)


def with_blob(size_bytes: int):
    """A needed value that lies in a blob file of 8 bytes."""
    unit = unit_of(CALL_5_ROW)
    evidence = an_evidence(
        {f"{unit} rows weight_version {CALL_5_ROW}": lambda value: in_blob(value, size_bytes), f"{unit} has_ssd": True}
    )
    file_name = unit.split()[1]
    blob = TreeEntry(f"data_plane/simple_storage/{file_name}.blobs/{'ab' * 16}.bin", "file", 8)
    return replace(evidence, tree=(*evidence.tree, blob))


def test_a_value_in_a_blob_file_of_the_right_size_holds():
    """SSD offload keeps values beside the pickle."""
    assert [] == messages("INV005", with_blob(8))


def test_a_short_blob_file_is_a_dangling_reference():
    """The index says 9 bytes, the file has 8."""
    assert [
        "dangling reference: `g7_g0/call-5` field `weight_version` is marked produced, but storage unit 1 has no row"
    ] == messages("INV005", with_blob(9))


@pytest.mark.parametrize(
    ("rule_id", "row", "field", "kind"),
    [
        ("INV005", CALL_5_ROW, "digest_bytes", "opaque"),
        ("INV005", CALL_5_ROW, "prev_len", "numpy"),
        ("INV002", G5_G0, "input_ids", "opaque"),
    ],
)
def test_opaque_values_are_not_judged(rule_id, row, field, kind):
    """A codec that nobody reads here is neither right nor wrong."""
    with pytest.raises(CannotRunError, match="not read"):
        messages(rule_id, an_evidence({f"{unit_of(row)} rows {field} {row}": lambda value: value._replace(kind=kind)}))


@pytest.mark.parametrize("rule_id", ["INV002", "INV005", "INV012"])
def test_a_storage_unit_that_cannot_be_read_leaves_rows_unchecked(rule_id):
    """Incomplete, not valid, and not dangling."""
    place = unit_of(1).removesuffix(" value")
    evidence = an_evidence({place: lambda part: Part(part.path, "unreadable", None, (Defect("permission denied"),))})

    with pytest.raises(CannotRunError, match="su_1"):
        messages(rule_id, evidence)
    assert "incomplete" == run_rules(evidence).verdict


def test_positions_that_are_not_consecutive_leave_no_data_plane():
    """Which unit holds a row follows from the position."""
    with pytest.raises(CannotRunError) as caught:
        data_plane_of(an_evidence({"unit_info value 0 position": 5}))

    assert ("INV015",) == caught.value.because


def test_path_of_a_unit_that_nobody_lists():
    """Then the folder is to blame."""
    assert "data_plane/simple_storage" == unit_path(an_evidence(), 9)


def test_staging_partition_comes_from_the_run_then_the_snapshot_then_a_plan():
    """It is in no sidecar; the default is NeMo-RL's."""
    assert "ours" == staging_partition(an_evidence(run=RunFacts(staging_partition="ours")))
    assert "theirs" == staging_partition(an_evidence({"config value token_capture staging_partition": "theirs"}))
    assert STAGING == staging_partition(an_evidence({"config value": {}}))
    assert "rollout_staging" == staging_partition(an_evidence({"config value": {}, "replay value groups": []}))


def test_an_anchor_need_not_have_sidecars():
    """Nothing to compare with is not asked; rows are only counted."""
    gone = {
        name: Part(path, "missing")
        for name, path in (("ledger", "rollout_recovery.pt"), ("replay", "replay_buffer_metadata.pt"))
    }
    evidence = an_anchor_evidence(**gone)

    for rule_id in ("INV001", "INV002", "INV003", "LED002", "LED010"):
        with pytest.raises(NotAskedError):
            messages(rule_id, evidence)
    assert [] == [
        message
        for rule_id in ("INV004", "INV005", "INV012", "INV014", "LED001")
        for message in messages(rule_id, evidence)
    ]


def test_a_data_plane_without_a_column_for_a_field():
    """A damaged column number produces nothing rather than another field's bits."""
    evidence = data_plane_evidence({f"{STATE} rollout_data columns input_ids": 99})

    assert [] == messages("INV002", evidence)


def test_a_staging_partition_without_the_column():
    """Every needed row lacks the field then."""
    found = messages("INV005", an_evidence({f"{STAGED} columns digest_bytes": -1}))

    assert 8 == len([message for message in found if "`digest_bytes`" in message and "never produced" in message])


def test_rows_of_another_partition_that_the_controller_does_not_list():
    """The index manager may know a partition that has no state; its rows are still its own."""
    evidence = an_evidence(
        {"controller_state value partition_indexes": lambda known: {**known, "ghost": frozenset({CALL_5_ROW})}}
    )

    assert any("two partitions" in message for message in messages("INV012", evidence))


def test_two_units_with_one_id():
    """Their rows could not be told apart."""
    info = (UnitInfo(position=0, storage_unit_id="A"), UnitInfo(position=1, storage_unit_id="A"))

    assert any(
        "2 storage units have the id `A`" in message
        for message in messages("INV015", an_evidence({"unit_info value": info}))
    )


def test_routes_must_fit_their_tokens():
    """Optional, but of three dimensions, the first as long as the tokens."""
    unit = unit_of(CALL_5_ROW)
    route = StoredValue("tensor", "int16", (9, 2, 2))
    evidence = an_evidence({f"{unit} rows": lambda rows: {**rows, "routed_experts": {CALL_5_ROW: route}}})

    assert any("routed_experts" in message for message in messages("INV005", evidence))


def test_samples_may_not_be_shared_between_groups():
    """Two groups that claim one sample."""
    other = a_replay_group("g6", [{}, {}])
    clash = other.model_copy(update={"meta": other.meta.model_copy(update={"sample_ids": ["g5_g0", "g6_g1"]})})
    world = a_world(replay=a_replay([a_replay_group("g5", [{}, {}]), clash]))

    assert any(
        "samples of another group: `g5_g0`" in message for message in messages("INV003", an_evidence(world=world))
    )


def test_route_plan_without_spans_key():
    """All five keys are demanded, `spans` too."""
    plan = {"schema_version": 2, "staging_partition": STAGING, "cleanup_staging_keys": [], "expected_token_length": 0}
    evidence = an_evidence({"replay value groups 1 meta tags": [{"route_assembly_plan": plan}, {}]})

    assert ["route plan of `g6_g0`: `spans` is missing"] == messages("INV011", evidence)


def test_weights_need_a_cut():
    """Without counters there is no trainer version."""
    with pytest.raises(NotAskedError):
        messages("INV014", an_evidence(cut=None))


def test_a_ledger_of_an_unknown_schema():
    """The number alone decides when the shape fits."""
    assert any(
        "unknown number 9" in message for message in messages("LED001", an_evidence({"ledger value schema_version": 9}))
    )


def test_group_ids_that_look_like_attempts_do_not_collide():
    """`a` and `a_g0-a1` are two groups: every rollout id ends in its own generation."""
    groups = [a_group("a", "1", [[an_attempt(), an_attempt(1)]]), a_group("a_g0-a1", "2", [[an_attempt()]])]

    assert [] == messages("LED002", an_evidence({"ledger value groups": groups}))


def test_staging_keys_of_an_unsealed_attempt():
    """Only a sealed attempt owns rows."""
    evidence = an_evidence({"ledger value groups 1 siblings 0 attempts 0 staging_keys": ["g8_g0/call-2"]})

    assert ["`g8_g0` attempt 0 is dispatched: only sealed attempts may hold `staging_keys`"] == messages(
        "LED003", evidence
    )


def test_reserved_attempts_are_dispatched_for_the_first_time():
    """They keep their number."""
    (text,) = messages("LED011", an_evidence({"ledger value groups 1 siblings 1 attempts 0 status": "reserved"}))

    assert "1 dispatched for the first time" in text


def test_words():
    """Counts and lists as a message quotes them."""
    assert ("1 row", "2 rows", "2 entries") == (plural(1, "row"), plural(2, "row"), plural(2, "entry", "entries"))
    assert "`a`, `b` and 1 more" == first(["c", "a", "b"], shown=2)
