"""For each kind of file the input that takes the most memory, at or beyond its limits: written into a small, sound checkpoint directory.

`tests.bench.hostile` prints what each costs in a process of its own; `test_memory.py` asserts the ceiling.
"""

from __future__ import annotations

import io
import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.ids import agent_folder, model_folder, resources_folder
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.formats.participant_files import encode_boundary
from ckptctl.formats.tar_blocks import BLOCK, member_headers
from ckptctl.formats.torch_zip import write_torch_zip
from ckptctl.formats.tq_writer import encode_storage_unit
from tests.artifacts import a_data_plane
from tests.builders import a_run_files, a_world, write_tree
from tests.world import AGENT, MODEL, TOOLS, a_record

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"
MEBIBYTE = 1 << 20
ASTRAL = "\U0001f600".encode()
"""One character of four bytes: a text that holds it takes four bytes for each of its characters."""
Place = Callable[[Path], None]


@dataclass(frozen=True)
class Worst:
    """One input. `path` is what it replaces, relative to the snapshot; `word` must occur in a finding or gap that names it."""

    name: str
    path: str
    write: Place
    word: str
    level: str = "standard"
    verdict: str = "invalid"


def checkpoint_directory(root: Path, worst: Worst) -> Path:
    """Write a sound run with the one bad file; gives the checkpoint directory."""
    run = write_tree(root, a_run_files(a_world()))
    target = run / SNAPSHOT / worst.path
    worst.write(target)
    return run


# --- writing -----------------------------------------------------------------------------------------------------------------


def _repeated(begin: bytes, piece: bytes, end: bytes, mebibytes: float) -> Place:
    """A file of one piece again and again."""

    def write(path: Path) -> None:
        block = piece * max(1, MEBIBYTE // len(piece))
        with path.open("wb") as file:
            file.write(begin)
            for _ in range(int(mebibytes * MEBIBYTE) // len(block)):
                file.write(block)
            file.write(end)

    return write


def _numbered(begin: bytes, piece: Callable[[int], bytes], end: bytes, mebibytes: float) -> Place:
    """A file of pieces that all differ."""

    def write(path: Path) -> None:
        number = 0
        with path.open("wb") as file:
            file.write(begin)
            while file.tell() < mebibytes * MEBIBYTE:
                file.write(b"".join(map(piece, range(number, number + 10_000))))
                number += 10_000
            file.write(end)

    return write


def _sparse(size: int) -> Place:
    def write(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(size)

    return write


def _zipped(pickle: Callable[[], bytes]) -> Place:
    return lambda path: path.write_bytes(write_torch_zip(pickle())) and None


def _tarred(members: Callable[[], Iterator[tuple[str, bytes]]]) -> Place:
    """One uncompressed archive, padded as the format wants it."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            for name, payload in members():
                file.write(member_headers(name, len(payload)))
                file.write(payload)
                file.write(bytes(-len(payload) % BLOCK))
            file.write(bytes(2 * BLOCK))
            file.write(bytes(-file.tell() % 10_240))

    return write


def _pickle(piece: bytes, mebibytes: float, protocol: int = 5) -> bytes:
    return b"\x80" + bytes((protocol,)) + b"(" + piece * int(mebibytes * MEBIBYTE / len(piece)) + b"t."


def _pickle_file(piece: bytes, mebibytes: float) -> Place:
    return _repeated(b"\x80\x05(", piece, b"t.", mebibytes)


def _texts(count: int) -> bytes:
    return b"\x80\x02(" + b"".join(b"X\x08\x00\x00\x00%08x" % number for number in range(count)) + b"t."


def _revisions(count: int, seed: int = 0) -> dict[str, int]:
    return {f"r{seed + number:x}": number for number in range(count)}


def _records() -> Iterator[tuple[str, bytes]]:
    """Many boundary records, each with a wide mapping that the evidence keeps."""
    for number in range(4000):
        record = a_record(f"g{number}_g0", 0, resource_state_revisions=_revisions(2000, number * 2000))
        yield f"g{number}_g0.a0.json", encode_boundary(record)


def _one_record() -> Iterator[tuple[str, bytes]]:
    """One boundary record whose transcript is as long as may be."""
    data = encode_boundary(a_record("g7_g0", 1))
    begin, _, end = data.partition("count ☕".encode()) if "count ☕".encode() in data else data.partition(b"count")
    filler = ASTRAL + b"a" * (DEFAULT_LIMITS.record_bytes - len(data) - 64)
    yield "g7_g0.a1.json", begin + filler + end


def _lineage() -> Iterator[tuple[str, bytes]]:
    row = b'{"model_call_id":"call-%07d","failure_reason":"x"}\n'
    yield "g7_g0-a1.lineage.jsonl", b"".join(row % number for number in range(5_000_000))


def _small_members() -> Iterator[tuple[str, bytes]]:
    for number in range(DEFAULT_LIMITS.archive_members + 1):
        yield f"g{number}_g0.a0.json", b"{}"


def _wide_names() -> bytes:
    """A zip of nearly as many entries as are legal, all with long names; small, and its directory large."""
    buffer = io.BytesIO()
    directory, count = io.BytesIO(), DEFAULT_LIMITS.zip_entries
    for number in range(count):
        name = b"archive/data/%0*d" % (DEFAULT_LIMITS.name_bytes - 20, number)
        offset = buffer.tell()
        buffer.write(struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name)
        directory.write(
            struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, offset)
            + name
        )
    begin, listed = buffer.tell(), directory.getvalue()
    buffer.write(listed)
    buffer.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(listed), begin))
    buffer.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, begin + len(listed), 1))
    buffer.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    return buffer.getvalue()


def _long_rows(path: Path) -> None:
    """Staged rows as long as may be, so that no digest fits: all columns of each are read at once."""
    plane, tokens = a_data_plane(a_world()), DEFAULT_LIMITS.staged_row_tokens
    position = int(path.name.split("_")[1])
    long = {
        "token_ids_delta": TensorValue("int64", (tokens,), bytes(8 * tokens)),
        "token_mask_delta": TensorValue("float32", (tokens,), bytes(4 * tokens)),
        "generation_logprobs_delta": TensorValue("float32", (tokens,), bytes(4 * tokens)),
    }
    rows = {
        field: {index: long.get(field, value) for index, value in values.items()}
        for field, values in plane.rows[position].items()
    }
    path.write_bytes(encode_storage_unit(plane.units[position].storage_unit_id, 100, rows, plane.active(position)))


def _many_names(path: Path) -> None:
    """More files than any snapshot has."""
    folder = path.parent / "resources"
    folder.mkdir(exist_ok=True)
    for number in range(20_000):
        (folder / f"{number:06d}-{'n' * 200}").touch()


def _deep_tree(path: Path) -> None:
    path.parent.joinpath(*(["d"] * 200)).mkdir(parents=True)


_AGENT, _MODEL, _TOOLS = agent_folder(AGENT), model_folder(MODEL), resources_folder(TOOLS)
_UNIT = "data_plane/simple_storage/su_0_TQ_STORAGE_UNIT_00000000.pkl"
_ROW = b'{"agent_name":"x"}\n'
_PIECES = {
    "sets": b"\x8f",
    "mappings": b"}K\x01Ns",
    "lists": b"]",
    "memo": b"N\x94",
    "places": b"C\x00",
    "wide texts": b"\x8c\xfc" + ASTRAL + b"a" * 248,
    "tuples": b"N\x85",
}


def worst_inputs() -> tuple[Worst, ...]:
    """All of them."""
    documents = DEFAULT_LIMITS.json_document_bytes // MEBIBYTE
    index, continuation = f"{_AGENT}/agent-index.jsonl", f"{_AGENT}/continuations.jsonl"
    reference = b'{"schema_version":1,"capture_key":"g%d_g0","boundary_model_call_id":"call-%d","kind":"capture_staging_row","key":"k%d"}\n'
    yaml = DEFAULT_LIMITS.yaml_bytes // MEBIBYTE
    return (
        Worst("json: a long text of wide characters", "manifest.json", _repeated(b'{"a":"' + ASTRAL, b"a", b'"}', documents - 1), "manifest.json"),
        Worst("json: beyond its size", "manifest.json", _repeated(b'{"a":"', b"a", b'"}', documents + 2), "manifest.json"),
        Worst("json: small values", "manifest.json", _repeated(b'{"a":[0', b",[]", b"]}", documents - 1), "values"),
        Worst("json: as many values as are legal", "manifest.json", _numbered(b'{"a":[{}', lambda n: b',{"k%x":[]}' % n, b"]}", DEFAULT_LIMITS.json_values * 6 / MEBIBYTE), "manifest.json"),
        Worst("json: keys", "manifest.json", _numbered(b'{"a":0', lambda n: b',"k%x":0' % n, b"}", documents - 1), "values"),
        Worst("json: brackets", "manifest.json", _repeated(b"", b"[", b"", documents - 1), "manifest.json"),
        Worst("json: one number", "manifest.json", _repeated(b'{"a":', b"9", b"}", documents - 1), "digits"),
        Worst("index: small rows", continuation, _repeated(b"", _ROW, b"", 100), continuation),
        Worst("index: good rows", f"{_MODEL}/storage-references.jsonl", _numbered(b"", lambda n: reference % (n, n, n), b"", 300), "storage-references", verdict="incomplete"),
        Worst("index: one line", index, _repeated(b'{"a":"', b"a", b'"}\n', 300), index),
        Worst("index: wide lines", continuation, _wide_rows, "continuations"),
        Worst("index: empty lines", index, _repeated(b"", b"\n", b"", 100), index),
        Worst("yaml: flow sequences", "config.yaml", _repeated(b"a: [0", b",[]", b"]\n", yaml - 1), "config.yaml"),
        Worst("yaml: keys", "config.yaml", _numbered(b"", lambda n: b"k%x: 0\n" % n, b"", yaml - 1), "config.yaml"),
        Worst("yaml: one text", "config.yaml", _repeated(b'a: "' + ASTRAL, b"a", b'"\n', yaml - 1), "config.yaml", verdict="incomplete"),
        Worst("yaml: brackets", "config.yaml", _repeated(b"a: ", b"[", b"\n", yaml - 1), "config.yaml"),
        *(Worst(f"ledger: {name}", "rollout_recovery.pt", _zipped(lambda piece=piece: _pickle(piece, 90, 2)), "rollout_recovery.pt") for name, piece in _PIECES.items() if name != "memo"),
        Worst("ledger: texts", "rollout_recovery.pt", _zipped(lambda: _texts(7_000_000)), "rollout_recovery.pt"),
        Worst("replay: globals called", "replay_buffer_metadata.pt", _zipped(lambda: b"\x80\x02cos\nsystem\nq\x00(" + b"h\x00)R" * 20_000_000 + b"t."), "replay_buffer_metadata.pt"),
        Worst("replay: persistent ids", "replay_buffer_metadata.pt", _zipped(lambda: b"\x80\x02N" + b"Q" * 90_000_000 + b"."), "replay_buffer_metadata.pt"),
        Worst("zip: names", "train_dataloader.pt", lambda path: path.write_bytes(_wide_names()) and None, "train_dataloader.pt"),
        *(Worst(f"controller: {name}", "data_plane/controller_state.pkl", _pickle_file(piece, 79), "controller_state.pkl") for name, piece in _PIECES.items()),
        *(Worst(f"unit: {name}", _UNIT, _pickle_file(piece, 79), _UNIT) for name, piece in _PIECES.items()),
        Worst("tar: one member", f"{_AGENT}/agent-part-000000.tar", _tarred(_one_record), "agent-part"),
        Worst("tar: records that are kept", f"{_AGENT}/agent-part-000000.tar", _tarred(_records), "agent-part"),
        Worst("tar: members", f"{_AGENT}/agent-part-000000.tar", _tarred(_small_members), "agent-part"),
        Worst("tar: lineage", f"{_MODEL}/lineage-part-000000.tar", _tarred(_lineage), "lineage-part"),
        Worst("full: long rows", _UNIT, _long_rows, _UNIT, level="full"),
        Worst("tree: names", "manifest.json", _many_names, "resources", verdict="valid"),
        Worst("tree: depth", "manifest.json", _deep_tree, "nested", verdict="incomplete"),
        *(Worst(f"64 GiB: {path.rpartition('/')[2]}", path, _sparse(64 << 30), path.rpartition("/")[2]) for path in _EVERY_KIND),
    )  # fmt: skip


_EVERY_KIND = (
    "manifest.json",
    "config.yaml",
    "train_dataloader.pt",
    "rollout_recovery.pt",
    "data_plane/metadata.json",
    "data_plane/controller_state.pkl",
    _UNIT,
    f"{_AGENT}/agent-part-000000.tar",
    f"{_AGENT}/continuations.jsonl",
    f"{_TOOLS}/manifest.json",
)


def _wide_rows(path: Path) -> None:
    """Lines near their limit, each with a mapping of as many entries as fit."""
    with path.open("wb") as file:
        for number in range(8):
            row = {
                "schema_version": 1,
                "rollout_id": f"g{number}_g0",
                "attempt_index": 0,
                "capture_key": f"g{number}_g0",
                "last_committed_model_call_id": "call-1",
                "resource_state_revisions": _revisions(500_000, number << 21),
            }
            file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")


def main() -> None:
    """Write one input below a folder: in a process of its own, whose memory is nobody's measure."""
    name, folder = sys.argv[1:]
    checkpoint_directory(Path(folder), next(worst for worst in worst_inputs() if worst.name == name))


if __name__ == "__main__":
    main()
