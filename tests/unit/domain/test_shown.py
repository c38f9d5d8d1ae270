"""How values from files are quoted in error texts."""

import pytest

from ckptctl.domain.ids import is_file_name, path_problem
from ckptctl.domain.safe_text import shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (1.0, "1.0"),
        ("a\x1b[2J\n", '"a\\x1b[2J\\x0a"'),
        ({}, "an empty object"),
        ({"a": 1, "b": 2}, "an object with 2 keys"),
        ([], "an empty list"),
        ((1, 2), "a list of 2"),
        (b"\x00", "b'\\x00'"),
        ("x" * 500, '"' + "x" * 156 + "..."),
    ],
)
def test_shown(value, text):
    """JSON's words, quoted text, sizes of collections; never a control character, never long."""
    assert text == shown(value)
    assert len(shown(value)) <= 160


def test_paths_and_names():
    """A path may have folders, a name may not; neither leaves its place."""
    assert [None, None] == [path_problem(path) for path in ("a", "a/b..c/.d")]
    assert all(path_problem(path) for path in ("", "/", "..", "a/..", "../a", "a\x00"))
    assert [True, True, False, False, False, False, False] == [
        is_file_name(name) for name in ("a", ".a", "", ".", "..", "a/b", "a\n")
    ]


def test_credentials_in_a_url_are_not_quoted():
    """Whatever is wrong with a url, its user and password are not part of the message."""
    told = shown("https://user:secret@host:1/path")

    assert '"https://<redacted>@host:1/path"' == told
