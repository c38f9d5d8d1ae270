"""What is said of snapshot schemas that are not read."""

import pytest

from ckptctl.domain.schemas import is_schema_number, schema_refusal


@pytest.mark.parametrize("schema", [3, 4])
def test_supported_schemas(schema):
    """Schemas 3 and 4 are read, whatever else lies beside them."""
    assert schema_refusal(schema) is None
    assert schema_refusal(schema, ["manifest.json", "COMMITTED"]) is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            1,
            (
                "schema 1",
                "given up",
                "not carried forward",
                "trainer checkpoint",
                "the NeMo-RL build that made it",
            ),
        ),
        (2, ("schema 2", "draft", "not carried forward")),
        (5, ("schema 5", "proofs", "prefix cuts")),
        (6, ("schema 6", "lineage", "prefix cuts")),
        (7, ("schema 7", "does not know", "1 to 6", "newer ckptctl")),
        (0, ("schema 0", "does not know")),
        (-1, ("schema -1", "does not know")),
        (None, ("lacks `schema_version`",)),
        (True, ("true as `schema_version`", "integer")),
        ("4\x1b", ('"4\\x1b" as `schema_version`',)),
        (4.0, ("4.0 as `schema_version`",)),
    ],
)
def test_every_refusal_names_file_number_supported_numbers_and_a_next_step(schema, words):
    """A refusal says which file, which number, which numbers are read, and what to do."""
    text = schema_refusal(schema)

    assert text is not None
    assert text.isprintable()
    assert [] == [word for word in ("`manifest.json`", "ckptctl reads schemas 3 and 4", *words) if word not in text]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gym_checkpoint.json", "gym-instances"], ("`gym_checkpoint.json`", "generation B", "reads generation A")),
        (["gym-instances"], ("`gym-instances/`", "generation B")),
        (
            ["nemo_gym_checkpoint_manifest.json"],
            ("`nemo_gym_checkpoint_manifest.json`", "aggregate", "one manifest per participant"),
        ),
    ],
)
def test_foreign_layouts_are_told_by_their_names(names, words):
    """A foreign layout is refused although its number is one that is read."""
    text = schema_refusal(4, names)

    assert text is not None
    assert [] == [word for word in words if word not in text]


def test_only_integers_are_schema_numbers():
    """`true` is no number of a schema, and neither is text."""
    assert [True, True, False, False, False, False] == [
        is_schema_number(found) for found in (4, -7, True, 4.0, "4", None)
    ]
