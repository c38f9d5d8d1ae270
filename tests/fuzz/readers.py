"""Every reader of bytes, with good samples to damage: what the fuzzer feeds. A reader gives a value or raises DefectError.

Archives are fed twice: as they are, where most damage ends at a digest, and around damaged content (`wrap`), where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ckptctl.domain.dataplane import ROUTED_EXPERTS_FIELD, STAGED_FIELDS, StorageUnit, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.pack import MAGICS
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageIndexRow, StorageReferenceRow
from ckptctl.domain.source import BytesSource
from ckptctl.domain.staged_columns import big_endian
from ckptctl.domain.staged_facts import Ancestry, examine
from ckptctl.formats.anchor_files import decode_bootstrap, decode_training_info
from ckptctl.formats.canonical_json import decode_rows, load_json
from ckptctl.formats.config_file import decode_yaml
from ckptctl.formats.dataloader_file import decode_dataloader, encode_dataloader, inspect_reserve
from ckptctl.formats.ledger_file import decode_ledger
from ckptctl.formats.lineage import decode_lineage
from ckptctl.formats.pack import read_index
from ckptctl.formats.participant_files import (
    decode_agent_manifest,
    decode_boundary,
    decode_model_manifest,
    decode_resources_manifest,
    decode_session,
    encode_boundary,
)
from ckptctl.formats.pickle_machine import read_pickle
from ckptctl.formats.replay_file import decode_replay
from ckptctl.formats.run_config import decode_run_config
from ckptctl.formats.snapshot_manifest import read_manifest
from ckptctl.formats.staged_row import decode_staged_row
from ckptctl.formats.tar_archive import read_archive
from ckptctl.formats.tensor_view import read_tensor
from ckptctl.formats.torch_stream import decode_stream_header, encode_stream
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip
from ckptctl.formats.tq_checkpoint import (
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
)
from ckptctl.formats.tq_writer import encode_storage_unit
from ckptctl.formats.zstd_frames import TABLE_MAGIC, open_content
from tests.builders import a_bootstrap_world, a_run_files, a_world
from tests.fuzz import mutations
from tests.packs import member, plain, seekable, tar_of
from tests.world import a_record

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
MOST_TENSOR_BYTES = 1 << 20
LIMITS = DEFAULT_LIMITS


@dataclass(frozen=True)
class Reader:
    """One way to read bytes. `wrap` is put around what was damaged."""

    name: str
    read: Callable[[bytes], Any]
    samples: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()
    wrap: Callable[[bytes], bytes] | None = None

    def taken(self, damaged: bytes) -> bytes:
        """The input that is read."""
        return self.wrap(damaged) if self.wrap is not None else damaged


# --- what is read ----------------------------------------------------------------------------------------------------------------


def _everything_in_a_unit(data: bytes) -> None:
    source = BytesSource(data)
    unit = decode_storage_unit(source, "su_0_x.pkl", LIMITS)
    for values in unit.rows.values():
        for value in values.values():
            if value.blob_name is None and value.byte_count <= MOST_TENSOR_BYTES:
                _forgiven(lambda value=value: read_tensor(source, value))
    for index in unit.active_keys:
        _forgiven(lambda index=index: _staged_row(source, unit, index))


def _staged_row(source: BytesSource, unit: StorageUnit, index: int) -> None:
    """One row as level full reads it, its blobs left out."""
    tensors: dict[str, TensorValue] = {}
    for name in (*STAGED_FIELDS, ROUTED_EXPERTS_FIELD):
        value = unit.rows.get(name, {}).get(index)
        if value is not None and value.blob_name is None and value.byte_count <= MOST_TENSOR_BYTES:
            tensors[name] = read_tensor(source, value)
    row = decode_staged_row(tensors, LIMITS, with_routes=ROUTED_EXPERTS_FIELD in tensors)
    routes = "read" if row.routed_experts is not None else "none"
    examine(row, Ancestry(None, None, []), ids=big_endian(row.token_ids), routes=routes, is_needed=True)


def _forgiven(read: Callable[[], Any]) -> None:
    """One value may be refused; the next is read all the same."""
    try:
        read()
    except DefectError:
        pass


def _opaque_pickle(data: bytes) -> Any:
    return read_pickle(
        BytesSource(data), allowed=frozenset(), limits=LIMITS, allow_persistent=True, opaque_globals=True
    )


def _manifest(data: bytes) -> Any:
    """A manifest's reader never raises: what it could not read is in the reading."""
    return read_manifest("manifest.json", data, LIMITS)


def _stream(data: bytes) -> Any:
    return decode_stream_header(BytesSource(data), 0, len(data), data[:256])


def _tar(data: bytes) -> list[Any]:
    return list(read_archive(BytesSource(data), LIMITS))


def _pack(data: bytes) -> Any:
    """A packed snapshot as it is opened, and every byte of it."""
    content = open_content(BytesSource(data), LIMITS)
    index = read_index(content, LIMITS)
    for offset in range(0, content.size_bytes, 1 << 20):
        content.read_at(offset, 1 << 20)
    return index


def _sourced(decode: Callable[..., Any]) -> Callable[[bytes], Any]:
    return lambda data: decode(BytesSource(data), LIMITS)


def _limited(decode: Callable[..., Any]) -> Callable[[bytes], Any]:
    return lambda data: decode(data, LIMITS)


def _rows(row_type: Any) -> Callable[[bytes], Any]:
    return lambda data: decode_rows(data, row_type, LIMITS)


def tar_resealed(data: bytes) -> bytes:
    """A tar whose headers have right checksums again: every block that says `ustar`."""
    blocks = bytearray(data)
    for at in range(0, len(blocks) - 511, 512):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
    return bytes(blocks)


# --- good samples ----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def files() -> Mapping[str, bytes]:
    """The files of two runs, by path."""
    return {**a_run_files(a_world(), a_bootstrap_world())}


def _named(*endings: str) -> tuple[bytes, ...]:
    found = tuple(dict.fromkeys(data for name, data in sorted(files().items()) if name.endswith(endings) and data))
    assert found, endings
    return found


def _pickles_in(*endings: str) -> tuple[bytes, ...]:
    found = []
    for data in _named(*endings):
        inner = read_torch_zip(BytesSource(data), LIMITS).pickle_source
        found.append(inner.read_at(0, inner.size_bytes))
    return tuple(found)


def _small_units() -> tuple[bytes, ...]:
    """Units as TransferQueue writes them, and small ones of few fields, where damage hits the structure."""
    number = TensorValue("int64", (), (7).to_bytes(8, "little"))
    column = TensorValue("float32", (2, 2), bytes(16))
    few = {"length": {0: number, 2: number}, "mask": {0: column}}
    return (*_named("_TQ_STORAGE_UNIT_00000000.pkl"), encode_storage_unit("TQ_STORAGE_UNIT_0", 10, few, (0, 2)))


@lru_cache(maxsize=1)
def readers() -> Mapping[str, Reader]:
    """All of them, by name."""
    as_json, as_yaml = mutations.JSON_TOKENS, mutations.YAML_TOKENS
    as_pickle, as_zip, as_tar = mutations.PICKLE_TOKENS, mutations.ZIP_TOKENS, mutations.TAR_TOKENS
    step, bootstrap = "snapshot_000002/manifest.json", "bootstrap/manifest.json"
    state = {"step": 3, "nested": {"x": [1.5, None]}, "t": TensorValue("int64", (2,), bytes(16))}
    loader = encode_dataloader(state)
    loaders = (loader, *_named("train_dataloader.pt"))
    inner_loader = read_torch_zip(BytesSource(loader), LIMITS).pickle_source
    packed = tar_of(member("step_3/a", b"x" * 700), member("step_3/" + "b" * 120, b""), member("é", b"y", mode=0o600))
    found = (
        Reader(
            "json", _limited(load_json), (*_named(step), b'{"a": [1, -2.5, "x\\u00e9", null, {"b": true}]}'), as_json
        ),
        Reader("snapshot-manifest", _manifest, _named(step), as_json),
        Reader("bootstrap-manifest", _limited(decode_bootstrap), _named(bootstrap), as_json),
        Reader("training-info", _limited(decode_training_info), _named("training_info.json"), as_json),
        Reader("agent-manifest", _limited(decode_agent_manifest), _in("agent/", "manifest.json"), as_json),
        Reader("model-manifest", _limited(decode_model_manifest), _in("model-ledger/", "manifest.json"), as_json),
        Reader("resources-manifest", _limited(decode_resources_manifest), _in("resources/", "manifest.json"), as_json),
        Reader("boundary", _limited(decode_boundary), (encode_boundary(a_record()),), as_json),
        Reader("session", _limited(decode_session), _in("resources/", ".a1.json"), as_json),
        Reader("agent-index", _rows(AgentIndexRow), _named("agent-index.jsonl"), as_json),
        Reader("continuations", _rows(ContinuationRow), _named("continuations.jsonl"), as_json),
        Reader("lineage-index", _rows(LineageIndexRow), _named("lineage-index.jsonl"), as_json),
        Reader("storage-references", _rows(StorageReferenceRow), _named("storage-references.jsonl"), as_json),
        Reader("lineage", _limited(decode_lineage), _lineage_files(), as_json),
        Reader(
            "yaml", _limited(decode_yaml), (*_named("config.yaml"), b"a: &x [1, 0x1F, .5]\nb: *x\nc: 'q'\n"), as_yaml
        ),
        Reader("run-config", lambda data: decode_run_config(data, "c.yaml", "/", LIMITS), _run_configs(), as_yaml),
        Reader("tq-metadata", _limited(decode_metadata), _named("data_plane/metadata.json"), as_json),
        Reader("tq-units", _limited(decode_unit_info), _named("storage_unit_info.json"), as_json),
        Reader("controller-state", _sourced(decode_controller_state), _named("controller_state.pkl"), as_pickle),
        Reader("storage-unit", _everything_in_a_unit, _small_units(), as_pickle),
        Reader("torch-stream", _stream, tuple(encode_stream(kind, bytes(16)) for kind in ("int64", "bool")), as_pickle),
        Reader("pickle", _opaque_pickle, (*_pickles_in(".pt"), *_named("controller_state.pkl")), as_pickle),
        Reader("ledger", _sourced(decode_ledger), _pickles_in("rollout_recovery.pt"), as_pickle, write_torch_zip),
        Reader("replay", _sourced(decode_replay), _pickles_in("metadata.pt"), as_pickle, write_torch_zip),
        Reader("dataloader", _sourced(decode_dataloader), loaders, as_zip),
        Reader(
            "dataloader-state",
            _sourced(decode_dataloader),
            (inner_loader.read_at(0, inner_loader.size_bytes),),
            as_pickle,
            lambda data: write_torch_zip(data, {"0": bytes(16)}),
        ),
        Reader("reserve", _sourced(inspect_reserve), loaders, as_zip),
        Reader("tar", _tar, _named("-part-000000.tar"), as_tar),
        Reader("tar-resealed", _tar, _named("-part-000000.tar"), as_tar, tar_resealed),
        Reader("pack", _pack, (seekable(packed), plain(packed)), (*MAGICS[:2], TABLE_MAGIC.to_bytes(4, "little"))),
        Reader("pack-tar", _pack, (packed,), as_tar, seekable),
        Reader("pack-tar-resealed", _pack, (packed,), as_tar, lambda data: plain(tar_resealed(data))),
    )
    return {reader.name: reader for reader in found}


def _in(folder: str, ending: str) -> tuple[bytes, ...]:
    found = tuple(
        dict.fromkeys(data for name, data in files().items() if f"/{folder}" in name and name.endswith(ending))
    )
    assert found, (folder, ending)
    return found


def _lineage_files() -> tuple[bytes, ...]:
    return tuple(
        payload
        for name, data in files().items()
        if "/lineage-part" in name
        for _, payload in read_archive(BytesSource(data), LIMITS)
        if payload
    )


def _run_configs() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(SAMPLES.glob("*.yaml")))
