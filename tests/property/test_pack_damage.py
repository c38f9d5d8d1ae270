"""One byte of a pack changed, one byte less: it is found, or what the pack holds is the same to the last byte."""

from __future__ import annotations

import os

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pack import read_index
from ckptctl.formats.zstd_frames import open_content
from tests.packs import packed
from tests.runs import a_run

SAMPLED, BOUNDED = 61, 7


@pytest.fixture(scope="module")
def pack(tmp_path_factory) -> bytes:
    """A snapshot as it is packed."""
    folder = tmp_path_factory.mktemp("packs")
    return packed(a_run(folder / "run", step_3=1), "step_3", "snapshot_000001", folder).read_bytes()


def content_of(data: bytes) -> bytes | None:
    """What a pack holds; None where it is refused."""
    try:
        content = open_content(BytesSource(data), DEFAULT_LIMITS)
        whole = content.read_at(0, content.size_bytes)
        read_index(content, DEFAULT_LIMITS)
    except DefectError:
        return None
    return whole


def assert_found(pack: bytes, every: int) -> None:
    whole = content_of(pack)
    assert whole is not None
    survivors = 0
    for place in range(every // 2, len(pack), every):
        for mask in (0x01, 0x80, 0xFF):
            found = content_of(pack[:place] + bytes([pack[place] ^ mask]) + pack[place + 1 :])
            assert found in (None, whole), place
            survivors += found is not None
        assert content_of(pack[:place]) in (None, whole), place  # whole: cut right before the seek table
    assert survivors <= len(pack) // every // 20 + 1


def test_sampled_bytes(pack) -> None:
    """A byte here and there, its lowest bit, its highest, all of them; the file cut before it."""
    assert_found(pack, SAMPLED)


@pytest.mark.long
def test_every_byte(pack) -> None:
    """All of them."""
    assert_found(pack, BOUNDED if os.environ.get("CKPTCTL_LONG_BOUNDED") else 1)
