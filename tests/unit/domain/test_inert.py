"""Text for logs in which CI systems look for commands."""

import json

import pytest

from ckptctl.domain.safe_text import inert, inert_json


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("::error::x", r"\x3a:error::x"),
        ("a\n  ::error::x\nb::c", "a\n  \\x3a:error::x\nb::c"),
        ("see ##[error]x", r"see #\x23[error]x"),
        ("##vso[task.complete]", r"#\x23vso[task.complete]"),
        ("# title\n## part", "# title\n## part"),
        ("plain: text", "plain: text"),
    ],
)
def test_no_line_is_a_command(text, wanted):
    """What would be one is written as an escape; everything else stays."""
    assert wanted == inert(text)


@pytest.mark.parametrize("text", ["##[error]x", "###", "\\##", "plain", "::error::"])
def test_json_reads_as_before(text):
    """The mark is gone from the line, not from the value."""
    said = inert_json(json.dumps({"a": text}))

    assert "##" not in said
    assert {"a": text} == json.loads(said)
