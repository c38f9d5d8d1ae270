"""Nothing passes that is not on a list: every kind of value, every name, every place a text can hide in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptctl.domain.harmless import FLAGS, KEYS, NAMES, NUMBERS, WORD_FIELDS, WORDS
from ckptctl.formats.redaction import MOST_DEPTH, MOST_ITEMS, Redactor


def test_lists_do_not_overlap() -> None:
    """Each name stands in one list; a field of words is a name."""
    assert not NUMBERS & FLAGS
    assert not NAMES & (NUMBERS | FLAGS)
    assert len(KEYS) == len(NUMBERS) + len(FLAGS) + len(NAMES)
    assert WORD_FIELDS - NAMES <= {"action"}


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ({"rollout_id": "g7_g0"}, {"rollout_id": "<text 1, 5 characters>"}),
        ({"attempt_index": 3, "cum_len": 12}, {"attempt_index": 3, "cum_len": 12}),
        ({"token": 3}, {"<text 1, 5 characters>": "<integer>"}),
        ({"logprob": -0.5}, {"<text 1, 7 characters>": "<number>"}),
        ({"rows": 2**53}, {"rows": "<integer>"}),
        ({"rows": float("nan")}, {"rows": "<number>"}),
        ({"status": "sealed"}, {"status": "sealed"}),
        ({"status": "hunter2"}, {"status": "<text 1, 7 characters>"}),
        ({"prompt_id": "sealed"}, {"prompt_id": "<text 1, 6 characters>"}),
        ({"enabled": True, "token": True}, {"enabled": True, "<text 1, 5 characters>": "<true or false>"}),
        ({"receipt": None}, {"receipt": None}),
        ({"rows": [1, 2, 3]}, {"rows": "<3 numbers>"}),
        ({"fields": ["a", "b", "a"]}, {"fields": ["<text 1, 1 characters>", "<text 2, 1 characters>", "<text 1, 1 characters>"]}),
        ({"fields": []}, {"fields": []}),
        ({"rows": [[1, 2], [3]]}, {"rows": "<2 lists>"}),
        ({"batch_shortfall": {4: 1}}, {"batch_shortfall": {"<text 1, 1 characters>": "<integer>"}}),
        ({"value": b"raw"}, {"value": "<bytes>"}),
        ({"path": "step_3/rollout_snapshots/secret.json"}, {"path": "step_3/rollout_snapshots/text-1.json"}),
    ],
)  # fmt: skip
def test_what_becomes_of_values(raw, wanted) -> None:
    """By field and type."""
    assert wanted == Redactor().value(raw)


def test_the_same_text_has_the_same_number() -> None:
    """In values, keys and paths, so that references can be followed."""
    redactor = Redactor()

    assert "<text 1, 5 characters>" == redactor.text("tools") == redactor.value("tools")
    assert "resources/text-1/text-2.json" == redactor.path("resources/tools/g7_g0.a1.json")
    assert {"<text 1, 5 characters>": "<integer>"} == redactor.value({"tools": 4})


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("data_plane/simple_storage/su_0_SECRET.pkl", "data_plane/simple_storage/text-1.pkl"),
        ("agent/instance-0/agent-part-000000.tar", "agent/text-1/agent-part-000000.tar"),
        ("../../config.yaml", "../../config.yaml"),
        ("/home/somebody/run", "/text-1/text-2/text-3"),
        ("snapshot_000001", "snapshot_000001"),
        ("snapshot_1234567890123", "text-1"),
        ("secret.pem", "text-1"),
    ],
)
def test_paths(path, wanted) -> None:
    """Only what the layout itself calls things stays."""
    assert wanted == Redactor().path(path)


@pytest.mark.parametrize(
    ("place", "is_kept"),
    [
        ("", True),
        ("line 5", True),
        ("compressed byte 77", True),
        ("gym_checkpoint.participants[0].payload", True),
        ("gym_checkpoint.participants.0.payload", True),
        ("token_capture.control_auth_token", False),
        ("hunter2", False),
        ("line 5 hunter2", False),
        ("rows.12345678", False),
        ("kind hunter2", False),
    ],
)
def test_places(place, is_kept) -> None:
    """A line, a byte, or known keys; everything else is a text."""
    assert (place if is_kept else f"<text 1, {len(place)} characters>") == Redactor().place(place)


def test_long_and_deep_things_are_cut() -> None:
    """Documents of any size stay small."""
    deep: object = "secret"
    for _ in range(MOST_DEPTH + 5):
        deep = {"value": deep}
    redactor = Redactor()

    assert "secret" not in json.dumps(redactor.value(deep))
    assert "<too deep>" in json.dumps(redactor.value(deep))
    assert "<5 more>" == redactor.value([{}] * (MOST_ITEMS + 5))[-1]
    assert "5 further fields" == redactor.value({f"k{n}": n for n in range(MOST_ITEMS + 5)})["<more>"]


LEAVES = (
    st.text(min_size=6).map(lambda text: f"PLANT{text}") | st.integers(min_value=10**6) | st.floats(allow_nan=False)
)
TREES = st.recursive(
    LEAVES | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1).map(lambda text: f"PLANT{text}") | st.sampled_from(sorted(NAMES)), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(TREES)
def test_no_planted_text_or_number_passes(tree) -> None:
    """Whatever the tree: no planted key or text is left, and no number under a name that is not one of a number."""
    told = json.dumps(Redactor().value(tree))

    assert "PLANT" not in told
    for word in WORDS:
        told = told.replace(f'"{word}"', "")
    assert not any(str(number) in told for number in numbers_in(tree))


def numbers_in(tree) -> list[int]:
    if isinstance(tree, dict):
        return [number for item in tree.values() for number in numbers_in(item)]
    if isinstance(tree, list):
        return [number for item in tree for number in numbers_in(item)]
    return [tree] if isinstance(tree, int) and not isinstance(tree, bool) else []
