"""The proof that a TransferQueue checkpoint may be unpickled: it builds plain data and tensors, and nothing else.

TransferQueue loads its checkpoints with pickle, which executes whatever a file says. So before it is told to, every file is
read by our own opcode machine, which executes nothing:

1. the controller's pickle has the known structure, and no name in it is outside the known vocabulary;
2. each tensor stream anywhere in it, the sampler's state and the tags included, is of the one known form: these streams are
   pickles of their own, in which a name would not be seen from outside;
3. every value of a storage unit is a tensor, array, text or byte string of a known form, and none lies in a file of its own;
4. there are as many units as the running queue has: it would replace some and then fail.

Decides no more than that: whether the checkpoint is whole and right is the validator's business, before a restore begins.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptctl.domain.binding import DataPlaneMetadata
from ckptctl.domain.dataplane import StorageUnit
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_machine import read_pickle
from ckptctl.formats.tq_checkpoint import (
    FIELD_CLASS,
    STATUS_CLASS,
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
)
from ckptctl.formats.tq_proof import prove_plain
from ckptctl.formats.tq_values import DTYPE_GLOBALS, TENSOR_GLOBALS

METADATA_FILE = "metadata.json"
CONTROLLER_FILE = "controller_state.pkl"
STORAGE_FOLDER = "simple_storage"
UNIT_INFO_FILE = f"{STORAGE_FOLDER}/storage_unit_info.json"
_CLASSES = frozenset({STATUS_CLASS, FIELD_CLASS})
_PROVED_KINDS = ("tensor", "numpy", "bytes", "text")


class _FileSource:
    """A regular file as a ByteSource."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = size_bytes

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`."""
        return os.pread(self._descriptor, max(0, min(count, self.size_bytes - offset)), offset)


def read_plane_metadata(folder: str) -> DataPlaneMetadata:
    """The `metadata.json` of a checkpoint. Raises DefectError."""
    with _opened(folder, METADATA_FILE) as source:
        return decode_metadata(_all(source), DEFAULT_LIMITS)


def prove_plane(folder: str, *, units: int) -> None:
    """Prove all files of a checkpoint that a queue with so many storage units would unpickle.

    Raises:
        DefectError: a file is missing or damaged, or holds what cannot be proved; the location names it.
    """
    if not read_plane_metadata(folder).storage_saved:
        raise DefectError(Defect("the data plane was saved without its rows", METADATA_FILE))
    with _opened(folder, UNIT_INFO_FILE) as source:
        info = sorted(decode_unit_info(_all(source), DEFAULT_LIMITS), key=lambda unit: unit.position)
    if [unit.position for unit in info] != list(range(units)):  # 4
        message = "it has another number of storage units than the running queue"
        raise DefectError(Defect(message, UNIT_INFO_FILE, str(units), str(len(info))))
    with _opened(folder, CONTROLLER_FILE) as source:
        prove_controller(source)
    for unit in info:
        name = f"su_{unit.position}_{unit.storage_unit_id}.pkl"
        with _opened(folder, f"{STORAGE_FOLDER}/{name}") as source:
            prove_unit(decode_storage_unit(source, name, DEFAULT_LIMITS))


def prove_controller(source: ByteSource) -> None:
    """Rules 1 and 2. Raises DefectError."""
    decode_controller_state(source, DEFAULT_LIMITS)
    tree = read_pickle(source, allowed=_CLASSES | TENSOR_GLOBALS | DTYPE_GLOBALS, limits=DEFAULT_LIMITS)
    prove_plain(tree, source, CONTROLLER_FILE, records=_CLASSES)


def prove_unit(unit: StorageUnit) -> None:
    """Rule 3. Raises DefectError."""
    for field, values in unit.rows.items():
        for index, value in values.items():
            if value.kind not in _PROVED_KINDS or value.blob_name is not None:
                found = "a file of its own" if value.blob_name is not None else value.kind
                message = "a value cannot be proved harmless"
                raise DefectError(Defect(message, f"{unit.file_name}: {field}[{index}]", "a tensor", found))


def _all(source: ByteSource) -> bytes:
    return source.read_at(0, source.size_bytes)


@contextmanager
def _opened(folder: str, relative: str) -> Iterator[ByteSource]:
    """A regular file below `folder`, links not followed. Raises DefectError, with the file in front of the location."""
    try:
        descriptor = os.open(Path(folder, relative), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DefectError(Defect("the file cannot be opened", relative, actual=error.strerror or "")) from error
    try:
        yield _source(descriptor)
    except DefectError as error:
        raise DefectError(*(_placed(defect, relative) for defect in error.defects)) from error
    except OSError as error:
        raise DefectError(Defect("the file cannot be read", relative, actual=error.strerror or "")) from error
    finally:
        os.close(descriptor)


def _source(descriptor: int) -> _FileSource:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise DefectError(Defect("no regular file"))
    return _FileSource(descriptor, facts.st_size)


def _placed(defect: Defect, relative: str) -> Defect:
    if relative in defect.location:
        return defect
    place = f"{relative}: {defect.location}" if defect.location else relative
    return Defect(defect.message, place, defect.expected, defect.actual)
