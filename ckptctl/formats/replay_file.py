"""`replay_buffer_metadata.pt`: which finished groups the canonical partition holds, in a torch zip (snapshot-layout section 7).

Decides: that the file has exactly the documented shape, that each group's `meta` is a KVBatchMeta, and that tensors are not in it
(`fields_data`). Numbers of numpy in tags and `extra_info` become plain ones. Whatever stands under `rollout_metrics`, and only
there, is kept as an opaque text: upstream leaves it out of the digest, and it may hold any object.
Leaves to others: the digest and every relation between values (BND and INV rules).
"""

from __future__ import annotations

from typing import Any

from ckptctl.domain.canonical import ROLLOUT_METRICS_KEY
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.source import ByteSource
from ckptctl.formats.numpy_scalar import NUMPY_SCALAR_GLOBALS, read_numpy_scalar
from ckptctl.formats.pickle_machine import Call, Global, read_pickle
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.sidecar_values import (
    demand_mapping,
    kind_name,
    naming_groups,
    plain_value,
    validated,
    writable_value,
)
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip

ROW_META = Global("nemo_rl.data_plane.interfaces", "KVBatchMeta")
_GLOBALS = NUMPY_SCALAR_GLOBALS | {(ROW_META.module, ROW_META.name)}
_FREE_FIELDS = ("tags", "extra_info")


def decode_replay(source: ByteSource, limits: Limits) -> ReplayMetadata:
    """Decode the replay metadata.

    Raises:
        DefectError: with every field that is missing, unknown or wrong.
    """
    tree = read_pickle(
        read_torch_zip(source, limits).pickle_source,
        allowed=_GLOBALS,
        limits=limits.for_sidecar(),
        allow_persistent=True,  # rollout_metrics may hold a tensor; anywhere else it is no plain value
        opaque_globals=True,
    )
    raw = demand_mapping(tree, "the replay metadata")
    if "fields_data" in raw:
        message = "`fields_data` holds rows; here the data plane holds them"
        raise DefectError(Defect(message, "fields_data", "no such field", "present"))
    with naming_groups(raw):
        groups = raw.get("groups")
        others = plain_value({key: value for key, value in raw.items() if key != "groups"}, "")
        if type(groups) is list:
            others["groups"] = [_plain_group(group, f"groups.{index}") for index, group in enumerate(groups)]
        elif "groups" in raw:
            others["groups"] = plain_value(groups, "groups")
        return validated(ReplayMetadata, others)


def _plain_group(group: Any, place: str) -> Any:
    if type(group) is not dict or "meta" not in group:
        return plain_value(group, place)
    plain = plain_value({key: value for key, value in group.items() if key != "meta"}, place)
    return {**plain, "meta": _plain_meta(group["meta"], f"{place}.meta")}


def _plain_meta(meta: Any, place: str) -> dict[Any, Any]:
    """The attributes of a KVBatchMeta: made by NEWOBJ without arguments, then BUILD with a mapping."""
    is_row_meta = type(meta) is Call and meta.is_new and meta.callee == ROW_META and not meta.arguments
    if not is_row_meta or type(meta.state) is not dict or meta.appended or meta.entries:
        found = "another object" if is_row_meta else kind_name(meta)
        raise DefectError(Defect(f"`{place}` is no KVBatchMeta", place, str(ROW_META), found))
    state = dict(meta.state)
    free = {name: state.pop(name) for name in _FREE_FIELDS if name in state}
    extra_info = free.get("extra_info")
    if type(extra_info) is dict and ROLLOUT_METRICS_KEY in extra_info:
        free["extra_info"] = {**extra_info, ROLLOUT_METRICS_KEY: _opaque_text(extra_info[ROLLOUT_METRICS_KEY])}
    plain: dict[Any, Any] = plain_value(state, place)
    plain.update(plain_value(free, place, read_numpy_scalar))
    return plain


def _opaque_text(value: Any) -> str:
    """What takes the place of a value that is not looked at; a text stays itself."""
    return value if type(value) is str else f"<opaque: {kind_name(value)}>"


def encode_replay(replay: ReplayMetadata) -> bytes:
    """The file of replay metadata.

    Raises:
        ValueError: tags or extra_info hold more than plain values.
    """
    fields = writable_value(replay.model_dump())
    for group in fields["groups"]:
        group["meta"] = Call(ROW_META, (), is_new=True, state=group["meta"], has_state=True)
    return write_torch_zip(write_pickle(fields, 2))
