"""How much is read for a view: its own bytes, and not much more."""

from dataclasses import dataclass, field

import pytest

from ckptctl.domain.dataplane import StoredValue
from ckptctl.domain.finding import DefectError
from ckptctl.formats.tensor_view import read_tensor

GIB = 1 << 30


@dataclass
class Endless:
    """A source of any size whose byte at an offset is the offset's lowest; what is read of it is counted."""

    size_bytes: int = 64 * GIB
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read_at(self, offset, count):
        assert count <= 128 << 20, "too much at once"
        count = max(0, min(count, self.size_bytes - offset))
        self.reads.append((offset, count))
        return bytes((offset + at) % 251 for at in range(count)) if count < 1 << 17 else bytes(count)

    @property
    def total(self):
        return sum(count for _, count in self.reads)


def a_view(shape, stride, offset=0, dtype="int64"):
    return StoredValue("tensor", dtype, shape, stride, offset, 8 * GIB, 300, byte_count=64 * GIB)


def test_a_row_of_a_batch_reads_its_own_bytes_only():
    """64 rows in one put: each is a view of the whole batch, and none of them reads the batch."""
    source = Endless()
    read_tensor(source, a_view((1024,), (1,), offset=63 * 1024))

    assert [(300 + 63 * 1024 * 8, 8192)] == source.reads


def test_a_contiguous_matrix_is_one_read():
    """However many dimensions it is given in, ones of a single element included."""
    source = Endless()
    read_tensor(source, a_view((4, 1, 16, 2), (32, 7, 2, 1)))

    assert [(300, 4 * 16 * 2 * 8)] == source.reads


def test_a_tiny_view_with_huge_strides_reads_its_elements():
    """Four numbers a gibibyte apart are four small reads."""
    source = Endless()
    found = read_tensor(source, a_view((4,), (GIB // 8,)))

    assert [(300 + at * GIB, 8) for at in range(4)] == source.reads
    assert bytes((300 + at * GIB + byte) % 251 for at in range(4) for byte in range(8)) == found.data


def test_a_dense_column_of_a_matrix_is_read_at_once():
    """A view that needs an eighth of what it spans costs one read."""
    source = Endless()
    read_tensor(source, a_view((10_000,), (8,)))

    assert [(300, 8 * (9_999 * 8 + 1))] == source.reads


def test_a_sparse_column_is_read_in_windows():
    """What it spans is read, but never more than a window at a time."""
    source = Endless()
    read_tensor(source, a_view((100_000,), (64,), dtype="uint8"))

    assert len(source.reads) > 1
    assert max(count for _, count in source.reads) <= 4 << 20
    assert source.total <= 100_000 * 64


def test_rows_far_apart_are_read_one_by_one():
    """A slice of each of some long rows."""
    source = Endless()
    read_tensor(source, a_view((3, 4), (1 << 20, 1)))

    assert [(300 + at * (8 << 20), 32) for at in range(3)] == source.reads


def test_an_element_repeated_without_end_is_read_once():
    """Stride 0: the view is larger than its storage."""
    source = Endless()
    found = read_tensor(source, a_view((2, 3), (1 << 20, 0)))

    assert [(300, 8), (300 + (8 << 20), 8)] == source.reads
    assert 48 == len(found.data)


@pytest.mark.parametrize("view", [((4,), (1,)), ((4,), (1 << 20,)), ((4,), (2,))])
def test_a_source_that_became_shorter(view):
    """Told as damage, whichever way the view is read."""
    with pytest.raises(DefectError, match="shorter"):
        read_tensor(Endless(size_bytes=320), a_view(*view))


def test_nothing_to_read():
    """A view without elements touches nothing, also past the end."""
    source = Endless(size_bytes=0)

    assert b"" == read_tensor(source, a_view((0, 3), (3, 1), offset=99)).data
    assert [] == source.reads
