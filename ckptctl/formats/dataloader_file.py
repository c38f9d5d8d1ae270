"""`train_dataloader.pt` and `replacement_reserve.pt`: state that nothing binds to the cut (snapshot-layout sections 8 and 9).

Decides: that the dataloader state is a mapping of plain values and tensors, whatever its keys (they are the dataloader's own),
and that the reserve is an undamaged archive. The reserve is never decoded: its globals are open-ended.
Leaves to others: the dataset guard (a rule over `config.yaml`), sizes and digests of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import safe
from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_machine import Call, read_pickle
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.sidecar_values import demand_mapping, kind_name
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip
from ckptctl.formats.zip_directory import check_crc
from ckptctl.formats.zip_tensor import ZIP_TENSOR_GLOBALS, ZipTensors, tensor_tree

_LEAVES = frozenset({type(None), bool, int, float, str})


def decode_dataloader(source: ByteSource, limits: Limits) -> Mapping[str, Any]:
    """Decode a dataloader's state. Tensors become TensorValue, large ones a StoredValue that says where they are in the file.

    Raises:
        DefectError: located by the key path.
    """
    archive = read_torch_zip(source, limits)
    tree = read_pickle(
        archive.pickle_source, allowed=ZIP_TENSOR_GLOBALS, limits=limits.for_sidecar(), allow_persistent=True
    )
    state = _state(demand_mapping(tree, "the dataloader state"), ZipTensors(source, archive), ())
    if not {str}.issuperset(map(type, state)):
        raise DefectError(Defect("the dataloader state has a key that is no text", expected="texts"))
    found: dict[str, Any] = state
    return found


def _state(tree: Any, tensors: ZipTensors, path: tuple[Any, ...]) -> Any:
    """Copy a tree that is no leaf, with its tensors read; `path` is where it stands."""
    kind = type(tree)
    if kind is dict:
        return {
            key: value if type(value) in _LEAVES else _state(value, tensors, (*path, key))
            for key, value in tree.items()
        }
    if kind is list or kind is tuple:
        return kind(
            value if type(value) in _LEAVES else _state(value, tensors, (*path, index))
            for index, value in enumerate(tree)
        )
    if kind is Call and tree.is_plain_call_of("torch._utils", "_rebuild_tensor_v2"):
        return tensors.value_of(tree, _place(path))
    if kind is Call and _is_ordered_dict(tree):
        return _state(tree.entries or {}, tensors, path)
    raise DefectError(Defect(f"the dataloader state holds {kind_name(tree)}", _place(path)))


def _is_ordered_dict(call: Call) -> bool:
    callee = call.callee
    return (callee.module, callee.name, call.arguments) == ("collections", "OrderedDict", ()) and not (
        call.is_new or call.has_state or call.appended
    )


def _place(path: Iterable[Any]) -> str:
    return safe(".".join(map(str, path)))[:400]


def encode_dataloader(state: Mapping[str, Any]) -> bytes:
    """The file of a dataloader state made of plain values and TensorValue.

    Raises:
        ValueError: the state holds something else.
    """
    return _encode(dict(state))


def inspect_reserve(source: ByteSource, limits: Limits) -> int:
    """The number of entries of a reserve, all of them undamaged; nothing in it is decoded. Raises DefectError."""
    archive = read_torch_zip(source, limits)
    for entry in archive.entries.values():
        check_crc(source, entry)
    return len(archive.entries)


def encode_reserve(prompts: Iterable[Mapping[str, Any]]) -> bytes:
    """The file of diverted prompts, as encode_dataloader. Raises ValueError."""
    return _encode([dict(prompt) for prompt in prompts])


def _encode(state: Any) -> bytes:
    tensors: dict[str, bytes] = {}
    tree = _tree(state, tensors)
    return write_torch_zip(write_pickle(tree, 2), tensors)


def _tree(value: Any, tensors: dict[str, bytes]) -> Any:
    """The tree of a state; the bytes of its tensors are put into `tensors` under keys in order of appearance."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is TensorValue:
        key = str(len(tensors))
        tree = tensor_tree(value, key)
        tensors[key] = value.data
        return tree
    if kind is list or kind is tuple:
        return kind(_tree(item, tensors) for item in value)
    if isinstance(value, Mapping):
        return {key: _tree(item, tensors) for key, item in value.items()}
    raise ValueError(f"a value of type {kind.__name__} has no form in a dataloader's state")
