"""Level full: no byte of a tensor that a needed staged row is made of can change without a finding that names the row."""

import functools
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.dataplane import DTYPE_BYTES, ROUTED_EXPERTS_FIELD, STAGED_FIELDS
from ckptctl.domain.source import ByteSource
from ckptctl.rules.staged_plan import plan_staged
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.builders import a_run_files, a_world, write_tree
from tests.edits import edited
from tests.rules.staged_samples import routed

STAGED_RULES = {"INV005", "INV006", "INV007", "INV008"}


@dataclass(frozen=True)
class Place:
    """One stored byte: its file, its offset, the row and field that it belongs to."""

    path: str
    offset: int
    key: str
    field: str


@functools.cache
def snapshot() -> Path:
    """A small snapshot with chains over two attempts and a row with routed experts."""
    folder = Path(tempfile.mkdtemp(prefix="ckptctl-damage-"))
    write_tree(folder, a_run_files(edited(a_world(), routed())))
    return folder / "step_3/rollout_snapshots/snapshot_000002"


@functools.cache
def places() -> tuple[Place, ...]:
    """Every byte of every tensor of every needed row."""
    evidence = load_evidence(LocalStore(), str(snapshot()))
    plan = plan_staged(evidence)
    found = []
    for key in plan.needed:
        index = plan.partition.keys[key]
        unit = plan.plane.units[index % len(plan.plane.units)]
        for field in (*STAGED_FIELDS, ROUTED_EXPERTS_FIELD):
            value = unit.rows.get(field, {}).get(index)
            if value is not None:
                size = DTYPE_BYTES[value.dtype]
                path = f"{snapshot()}/data_plane/simple_storage/{unit.file_name}"
                count = value.byte_count
                found += [
                    Place(path, value.blob_offset + value.element_offset * size + at, key, field) for at in range(count)
                ]
    return tuple(found)


@dataclass
class Flipped:
    """A source one byte of which is another."""

    source: ByteSource
    offset: int
    mask: int

    @property
    def size_bytes(self):
        return self.source.size_bytes

    def read_at(self, offset, count):
        data = self.source.read_at(offset, count)
        at = self.offset - offset
        return data[:at] + bytes((data[at] ^ self.mask,)) + data[at + 1 :] if 0 <= at < len(data) else data


class FlippingStore(LocalStore):
    """The real store, with one byte of one file changed."""

    def __init__(self, place, mask):
        super().__init__()
        self._place, self._mask = place, mask

    @contextmanager
    def open_source(self, path):
        with super().open_source(path) as source:
            yield Flipped(source, self._place.offset, self._mask) if path == self._place.path else source


def is_found(place, mask):
    """Whether the change is found and the row named, by a rule about staged rows."""
    request = ValidateRequest(paths=(str(snapshot()),), level="full")
    target = validate(FlippingStore(place, mask), request).targets[0]
    named = [
        finding for finding in target.findings if finding.rule in STAGED_RULES and f"`{place.key}`" in finding.message
    ]
    return target.verdict == "invalid" and bool(named)


def test_the_snapshot_is_valid_before_anything_changes():
    """Otherwise everything would be found."""
    assert "valid" == validate(LocalStore(), ValidateRequest(paths=(str(snapshot()),), level="full")).verdict
    assert {*STAGED_FIELDS, ROUTED_EXPERTS_FIELD} == {place.field for place in places()}


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 255))
def test_any_byte_that_changes_is_found(data, mask):
    """Any field first, so that one-byte flags meet as many changes as columns."""
    field = data.draw(st.sampled_from([*STAGED_FIELDS, ROUTED_EXPERTS_FIELD]))
    place = data.draw(st.sampled_from([place for place in places() if place.field == field]))

    assert is_found(place, mask), place


@pytest.mark.long
def test_every_byte_that_changes_is_found():
    """One bit of every byte."""
    missed = [place for number, place in enumerate(places()) if not is_found(place, 1 << number % 8)]

    assert [] == missed
