"""Hostile files, small: what each is, which finding it must give, and where. All lie in the snapshot of a small, sound run.

`said` must occur in the message of one finding (or gap) that names the file, `place` in its message or location.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import socket
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ckptctl.domain.finding import VerdictName
from ckptctl.domain.ids import agent_folder, model_folder, resources_folder
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.tar_blocks import BLOCK, member_headers
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip
from tests.builders import a_run_files, a_world
from tests.world import AGENT, MODEL, TOOLS

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002"
LEDGER, REPLAY, LOADER = "rollout_recovery.pt", "replay_buffer_metadata.pt", "train_dataloader.pt"
STATE, UNIT = "data_plane/controller_state.pkl", "data_plane/simple_storage/su_0_TQ_STORAGE_UNIT_00000000.pkl"
MANIFEST, CONFIG = "manifest.json", "config.yaml"
ARCHIVE = f"{agent_folder(AGENT)}/agent-part-000000.tar"
CONTINUATIONS = f"{agent_folder(AGENT)}/continuations.jsonl"
LINEAGE = f"{model_folder(MODEL)}/lineage-part-000000.tar"
SESSIONS = resources_folder(TOOLS)
SESSION = f"{SESSIONS}/g7_g0.a1.json"

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One hostile file. `change` gets its path; the run beside it is sound."""

    name: str
    path: str
    change: Change
    said: str
    place: str = ""
    verdict: VerdictName = "invalid"
    level: str = "standard"
    artifact: str = ""
    """What the finding names, where that is not the file."""

    @property
    def has_digest(self) -> bool:
        """Whether another file holds the digest of this one: then that it differs is said, and what is in it is not."""
        return self.path in (SESSION, f"{SESSIONS}/{MANIFEST}", ARCHIVE, LINEAGE, CONTINUATIONS)


@lru_cache(maxsize=1)
def sound_files() -> Mapping[str, bytes]:
    """The files of the sound snapshot."""
    prefix = f"{SNAPSHOT}/"
    return {name.removeprefix(prefix): data for name, data in a_run_files(a_world()).items() if name.startswith(prefix)}


def cases() -> tuple[Case, ...]:
    """All of them."""
    return (*_pickles(), *_zips(), *_tars(), *_documents(), *_configurations(), *_rows(), *_entries())


def _written(data: bytes | Callable[[], bytes]) -> Change:
    return lambda path: path.write_bytes(data if isinstance(data, bytes) else data()) and None


def _replaced(old: bytes, new: bytes) -> Change:
    def change(path: Path) -> None:
        data = path.read_bytes()
        assert old in data, (path, old)
        path.write_bytes(data.replace(old, new, 1))

    return change


# --- pickles -----------------------------------------------------------------------------------------------------------------


def _pickles() -> Iterator[Case]:
    for name, (pickled, said) in _PICKLES.items():
        yield Case(f"pickle in a zip: {name}", LEDGER, _written(write_torch_zip(b"\x80\x02" + pickled)), said, "offset")
        yield Case(f"pickle alone: {name}", STATE, _written(b"\x80\x05" + pickled), said, "offset")
        yield Case(f"pickle of a unit: {name}", UNIT, _written(b"\x80\x05" + pickled), said, "offset")
    for name, (pickled, said) in _TREES.items():
        yield Case(f"pickle in a zip: {name}", LEDGER, _written(write_torch_zip(b"\x80\x02" + pickled)), said)
        yield Case(f"pickle alone: {name}", STATE, _written(b"\x80\x05" + pickled), said)
        yield Case(f"replay metadata: {name}", REPLAY, _written(write_torch_zip(b"\x80\x02" + pickled)), said)
    calls = b"cposix\nsystem\nX\x02\x00\x00\x00id\x85R."
    for path in (LEDGER, LOADER):
        yield Case(
            f"pickle that calls: {path}",
            path,
            _written(write_torch_zip(b"\x80\x02" + calls)),
            "`posix.system`",
            "offset 2",
        )
    yield Case(
        "pickle that calls: replay",
        REPLAY,
        _written(write_torch_zip(b"\x80\x02" + calls)),
        "`posix.system`",
        "offset 2",
    )
    for number, dangerous in enumerate(_DANGEROUS):
        yield Case(
            f"pickle of the standard library: {number}",
            STATE,
            _written(dangerous),
            "a global ckptctl does not know",
            "offset",
        )


class _Calls:
    """Pickles to a call of what it was given."""

    def __init__(self, callee: Any, *arguments: Any) -> None:
        self.callee, self.arguments = callee, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.callee, self.arguments


_DANGEROUS = tuple(
    pickle.dumps(value, protocol)
    for protocol in (2, 4, 5)
    for value in (
        _Calls(os.system, "touch /tmp/hostile-was-here"),
        _Calls(eval, "1"),
        _Calls(getattr, [], "append"),
        {"a": [_Calls(exec, "")]},
    )
)

_PICKLES: Mapping[str, tuple[bytes, str]] = {
    "global": (
        b"cposix\nsystem\n.",
        "a global ckptctl does not know: loading it would import and may call `posix.system`",
    ),
    "global of builtins": (b"cbuiltins\neval\nX\x01\x00\x00\x001\x85R.", "`builtins.eval`"),
    "global with an escape in its name": (b"c\x1b[31mos\nsystem\n.", r"\x1b"),
    "global with an endless name": (b"c" + b"m" * 70_000 + b"\nx\n.", "too long or cut off"),
    "inst": (b"(iposix\nsystem\n.", "opcode 0x69"),
    "object": (b"(o.", "opcode 0x6f"),
    "extension": (b"\x82\x01.", "opcode 0x82"),
    "long of four bytes of length": (b"\x8b\xff\xff\xff\x7f.", "opcode 0x8b"),
    "text of eight bytes of length": (b"\x8d" + b"\xff" * 8 + b".", "opcode 0x8d"),
    "next buffer": (b"\x97.", "opcode 0x97"),
    "bytes of all the address space": (b"\x8e" + b"\xff" * 8 + b".", "cut off"),
    "byte array of all the address space": (b"\x96" + b"\xff" * 7 + b"\x7f.", "cut off"),
    "bytes of four gigabytes": (b"B\xff\xff\xff\xff.", "cut off"),
    "text of four gigabytes": (b"X\xff\xff\xff\xff.", "cut off"),
    "frame beyond the end": (b"\x95" + b"\xff" * 8 + b"}(K\x01K\x01K\x01K\x01.", "unfinished"),
    "memo entry that is not there": (b"j\xff\xff\xff\x7f.", "memo entry"),
    "marks": (b"(" * 100_000 + b".", "nested deeper"),
    "no end": (b"}" * 1000, "cut off"),
    "two values": (b"}}.", "unfinished"),
    "bytes behind its end": (b"}.}.", "before the end"),
    "key twice": (b"}(K\x01NK\x01Nu.", "a key twice"),
    "protocol of tomorrow": (b"\x80\x06}.", "protocol 6"),
    "half a surrogate": (b"X\x03\x00\x00\x00\xed\xa0\x80.", "not UTF-8"),
}

_LAUGHS = b"(]q\x00" + b"".join(b"](h%ch%ceq%c" % (at, at, at + 1) for at in range(60)) + b"t."
_TREES: Mapping[str, tuple[bytes, str]] = {
    "a billion laughs": (_LAUGHS, "grows out of bounds"),
    "tuples in tuples": (b"N" + b"\x85" * 100_000 + b".", "nested deeper"),
    "lists in lists": (b"]" * 200 + b"a" * 199 + b".", "nested deeper"),
    "itself": (b"]q\x00h\x00a.", "without end"),
    "a mapping of itself": (b"}q\x00K\x01h\x00s.", "without end"),
}


# --- zip ---------------------------------------------------------------------------------------------------------------------


def _zips() -> Iterator[Case]:
    for path in (LEDGER, REPLAY, LOADER):
        for name, (build, said, place) in _ZIPS.items():
            yield Case(
                f"zip: {name}: {path}",
                path,
                _written(lambda build=build, path=path: build(_pickle_of(path))),
                said,
                place,
            )
    yield Case(
        "zip: an entry of a tensor that is compressed",
        LOADER,
        _written(lambda: _zip(_pickle_of(LOADER), {"archive/data/0": bytes(4 << 20)}, compressed=True)),
        "compressed",
    )


def _pickle_of(path: str) -> bytes:
    inner = read_torch_zip(BytesSource(sound_files()[path]), DEFAULT_LIMITS).pickle_source
    return inner.read_at(0, inner.size_bytes)


def _zip(pickled: bytes, more: Mapping[str, bytes], *, compressed: bool = False) -> bytes:
    """A torch zip with more entries, written by the standard library."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        for name, data in more.items():
            archive.writestr(name, data, zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED)
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def _zip_twice(pickled: bytes) -> bytes:
    """Two entries of one name; the library warns, and writes them."""
    data = _zip(pickled, {"archive/data/0": b"first", "archive/data/1": b"second"})
    return data.replace(b"archive/data/1", b"archive/data/0")


def _zip_overlapping(pickled: bytes) -> bytes:
    """Two entries of the directory share one header: what one reader takes for the one, another takes for the other."""
    data = bytearray(_zip(pickled, {"archive/data/0": b"same", "archive/data/1": b"same"}))
    first, second = data.find(b"archive/data/0"), data.find(b"archive/data/1")
    listed = [at for at in range(len(data) - 4) if data[at : at + 4] == b"PK\x01\x02"]
    offsets = {bytes(data[at + 46 : at + 60]): at + 42 for at in listed}
    data[offsets[b"archive/data/1"] : offsets[b"archive/data/1"] + 4] = data[
        offsets[b"archive/data/0"] : offsets[b"archive/data/0"] + 4
    ]
    data[second : second + 14] = data[first : first + 14]
    return bytes(data)


def _zip_counting(pickled: bytes) -> bytes:
    """An end record that promises more entries than there are."""
    data = bytearray(write_torch_zip(pickled))
    data[-14:-10] = b"\xff\x7f\xff\x7f"
    return bytes(data)


def _zip_sized(pickled: bytes) -> bytes:
    """A directory that gives an entry four gigabytes."""
    data = bytearray(write_torch_zip(pickled))
    at = data.find(b"PK\x01\x02")
    data[at + 20 : at + 28] = struct.pack("<2L", 0xFFFFFFF0, 0xFFFFFFF0)
    return bytes(data)


def _zip_encrypted(pickled: bytes) -> bytes:
    data = bytearray(write_torch_zip(pickled))
    at = data.find(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


def _zip_flipped(pickled: bytes) -> bytes:
    data = bytearray(write_torch_zip(pickled))
    data[data.find(pickled) + 3] ^= 1
    return bytes(data)


_ZIPS: Mapping[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "compressed": (lambda pickled: _zip(pickled, {"archive/data/0": bytes(1 << 20)}, compressed=True), "compressed", "archive/data/0"),
    "a name that leads out": (lambda pickled: _zip(pickled, {"archive/../../x": b""}), "leads out", "archive/../../x"),
    "an absolute name": (lambda pickled: _zip(pickled, {"/etc/passwd": b""}), "leads out", "/etc/passwd"),
    "a name of the other system": (lambda pickled: _zip(pickled, {"archive/..\\x": b""}), "leads out", ""),
    "a name with an escape": (lambda pickled: _zip(pickled, {"archive/\x1b[31m/../x": b""}), "leads out", r"\x1b"),
    "a name twice": (_zip_twice, "two entries of one name", "archive/data/0"),
    "entries that overlap": (_zip_overlapping, "", "archive/data/"),
    "more entries promised": (_zip_counting, "", ""),
    "an entry larger than the file": (_zip_sized, "larger than the archive", "archive/data.pkl"),
    "encrypted": (_zip_encrypted, "encrypted", "archive/data.pkl"),
    "another byte": (_zip_flipped, "CRC differs", "archive/data.pkl"),
    "two top folders": (lambda pickled: _zip(pickled, {"other/data.pkl": b""}), "one top folder", ""),
    "a folder": (lambda pickled: _zip(pickled, {"archive/data/": b""}), "empty part", "archive/data/"),
    "behind other bytes": (lambda pickled: b"#!/bin/sh\n" + write_torch_zip(pickled), "", ""),
    "before other bytes": (lambda pickled: write_torch_zip(pickled) + b"more", "last bytes", ""),
    "half": (lambda pickled: write_torch_zip(pickled)[:-30], "", ""),
}  # fmt: skip


# --- tar ---------------------------------------------------------------------------------------------------------------------


def _tars() -> Iterator[Case]:
    for path in (ARCHIVE, LINEAGE):
        for name, (build, said, place) in _TARS.items():
            yield Case(
                f"tar: {name}: {path.rpartition('/')[2]}",
                path,
                _written(lambda build=build, path=path: build(sound_files()[path])),
                said,
                place,
            )


def _tar_of(*members: tarfile.TarInfo | tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member, io.BytesIO(bytes(member.size)))
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def _special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def _first_name(data: bytes) -> str:
    return tarfile.open(fileobj=io.BytesIO(data)).getnames()[0]


def _members(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(info.name, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]


def _huge_member(data: bytes) -> bytes:
    return member_headers(_first_name(data), 8 << 30) + data[BLOCK:]


def _negative_size(data: bytes) -> bytes:
    block = bytearray(data[:BLOCK])
    block[124:136] = b"\x80" + b"\xff" * 11
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data[BLOCK:]


_TARS: Mapping[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "compressed": (lambda data: gzip.compress(data, mtime=0), "compressed with gzip", "byte 0"),
    "an absolute name": (lambda data: _tar_of(("/etc/passwd", b"{}"), *_members(data)), "/etc/passwd", ""),
    "a name that leads out": (lambda data: _tar_of(("../../x", b"{}"), *_members(data)), "../../x", ""),
    "a name twice": (lambda data: _tar_of(*_members(data), *_members(data)[:1]), "", ""),
    "a symbolic link": (lambda data: _tar_of(_special(_first_name(data), tarfile.SYMTYPE, "/etc/passwd")), "", ""),
    "a hard link": (lambda data: _tar_of(*_members(data), _special("other", tarfile.LNKTYPE, _first_name(data))), "other", ""),
    "a device": (lambda data: _tar_of(_special("null", tarfile.CHRTYPE), *_members(data)), "null", ""),
    "a pipe": (lambda data: _tar_of(_special("pipe", tarfile.FIFOTYPE), *_members(data)), "pipe", ""),
    "a directory": (lambda data: _tar_of(_special("folder", tarfile.DIRTYPE), *_members(data)), "folder", ""),
    "another format": (lambda data: _tar_of(*_members(data), form=tarfile.GNU_FORMAT), "no header of an uncompressed tar", "byte 0"),
    "a member of eight gigabytes": (_huge_member, "", ""),
    "a size below zero": (_negative_size, "size", "byte 0"),
    "a checksum that is wrong": (lambda data: data[:148] + b"000000\0 " + data[156:], "checksum", "byte 0"),
    "bytes behind the end": (lambda data: data[:-1] + b"x", "bytes follow the end", ""),
    "half": (lambda data: data[: len(data) // 2], "", "byte"),
    "an escape in a name": (lambda data: _tar_of(("\x1b[31m", b"{}"), *_members(data)), r"\x1b", ""),
}  # fmt: skip


# --- JSON and YAML -----------------------------------------------------------------------------------------------------------


def _documents() -> Iterator[Case]:
    for path in (MANIFEST, "data_plane/metadata.json", f"{SESSIONS}/manifest.json", SESSION):
        for name, (data, said, place) in _JSON.items():
            yield Case(f"json: {name}: {path}", path, _written(data), said, place)
    yield Case(
        "json: a key of escapes", MANIFEST, _replaced(b"{", b'{"\\u001b[31m[red]\\u202e": 1,'), r"\x1b", verdict="valid"
    )
    yield Case(
        "json: a path that leads out",
        MANIFEST,
        _replaced(CONTINUATIONS.encode(), b"../../../etc/passwd"),
        "../../../etc/passwd",
    )
    yield Case("json: an absolute path", MANIFEST, _replaced(CONTINUATIONS.encode(), b"/etc/passwd"), "/etc/passwd")


_JSON: Mapping[str, tuple[bytes, str, str]] = {
    "no UTF-8": (b'{"a": "\xff\xfe"}', "not UTF-8", "line 1"),
    "another encoding": ('{"a": 1}'.encode("utf-16"), "not UTF-8", "line 1"),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', "byte order mark", "line 1"),
    "not a number": (b'{"a": NaN}', "NaN", "line 1"),
    "infinity": (b'{"a": [-Infinity]}', "-Infinity", "line 1"),
    "a number beyond all numbers": (b'{"a": 1e999}', "largest number", "line 1"),
    "a key twice": (b'{\n "a": {"b": 1, "b": 2}}', "occurs twice", "line 2"),
    "an integer of a million digits": (b'{"a": ' + b"9" * 1_000_000 + b"}", "digits", "line 1"),
    "brackets": (b"[" * 1_000_000, "nested deeper", "line 1"),
    "braces": (b'{"a":' * 500_000, "nested deeper", "line 1"),
    "balanced braces": (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested deeper", "line 1"),
    "half a surrogate": (b'{"a": "\\ud800"}', "Unicode", "line 1"),
    "a list": (b"[]", "object", "line 1"),
    "nothing": (b"", "", ""),
    "zeros": (bytes(4096), "", "line 1"),
    "a comment": (b'{"a": 1} // no', "not JSON", "line 1"),
    "a text that does not end": (b'{"a": "' + b"\\\\" * 100_000, "not JSON", "line 1"),
}


def _configurations() -> Iterator[Case]:
    for name, (data, said, place) in _YAML.items():
        yield Case(f"yaml: {name}", CONFIG, _written(data), said, place, verdict="incomplete")


_LAUGHING = b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (at, at, at - 1, at - 1) for at in range(1, 60))
_YAML: Mapping[str, tuple[bytes, str, str]] = {
    "a tag that calls": (
        b"a: !!python/object/apply:os.system ['touch /tmp/hostile-was-here']\n",
        "has a tag",
        "line 1",
    ),
    "a tag of an object": (b"a: !!python/object:os.system {}\n", "has a tag", "line 1"),
    "a tag of ours": (b"a: !secret x\n", "has a tag", "line 1"),
    "a billion laughs": (_LAUGHING, "values", "line"),
    "an alias of itself": (b"a: &a [*a]\n", "alias", "line 1"),
    "a merge key": (b"a: &a {x: 1}\nb:\n  <<: *a\n", "merge key", "line 3"),
    "a key twice": (b"a: 1\na: 2\n", "occurs twice", "line 2"),
    "brackets": (b"a: " + b"[" * 100_000, "maximum nesting", "line 1"),
    "brackets that close": (b"a: " + b"[" * 500 + b"]" * 500, "nested deeper", "line 1"),
    "indentation": (b"".join(b"%sa:\n" % (b" " * at) for at in range(500)), "nested deeper", "line 65"),
    "two documents": (b"a: 1\n---\nb: 2\n", "more than one document", "line 2"),
    "an integer of a million digits": (b"a: " + b"9" * 1_000_000 + b"\n", "number of more than", "line 1"),
    "an integer of sixties": (b"a: 1" + b":59" * 300_000 + b"\n", "", "line 1"),
    "no UTF-8": (b"a: \xff\n", "not UTF-8", "line 1"),
    "control characters": (b"a: \x00\n", "not YAML", ""),
    "a list": (b"- 1\n", "mapping", "line 1"),
    "a key that is a list": (b"? [1]\n: 2\n", "no text", "line"),
}


def _rows() -> Iterator[Case]:
    for name, (data, said, place) in _LINES.items():
        yield Case(
            f"rows: {name}",
            CONTINUATIONS,
            lambda path, data=data: path.write_bytes(path.read_bytes() + data) and None,
            said,
            place,
        )


_LINES: Mapping[str, tuple[bytes, str, str]] = {
    "a line of fifty megabytes": (
        b'{"schema_version":1,"rollout_id":"' + b"g" * (50 << 20) + b'"}\n',
        "exceeds the limit",
        "line 3",
    ),
    "a key twice": (b'{"schema_version":1,"schema_version":1}\n', "occurs twice", "line 3"),
    "no UTF-8": (b"\xff\n", "not UTF-8", "line 3"),
    "not a number": (b'{"schema_version":NaN}\n', "NaN", "line 3"),
    "a long integer": (b'{"schema_version":' + b"1" * 100_000 + b"}\n", "digits", "line 3"),
    "brackets": (b"[" * 100_000 + b"\n", "nested deeper", "line 3"),
    "half a line": (b'{"schema_version":1', "not JSON", "line 3"),
}


# --- names and kinds ---------------------------------------------------------------------------------------------------------


def _entries() -> Iterator[Case]:
    for path in (LEDGER, STATE, UNIT, ARCHIVE, SESSION, CONFIG, MANIFEST):
        short = path.rpartition("/")[2]
        yield Case(f"link: {short}", path, _linked, "link")
        yield Case(f"link within: {short}", path, _linked_beside, "link")
        yield Case(f"pipe: {short}", path, _piped, "pipe")
        yield Case(f"socket: {short}", path, _bound, "socket")
        yield Case(f"device: {short}", path, _device, "device")
        yield Case(f"directory in place of a file: {short}", path, _as_directory, "directory")
        verdict: VerdictName = "incomplete" if path == CONFIG else "invalid"
        yield Case(f"sparse giant: {short}", path, lambda path: os.truncate(path, 64 << 30), "", verdict=verdict)
    yield Case("link to a directory", "data_plane", _linked, "link")
    yield Case("file in place of a directory", "data_plane", _as_file, "", artifact="data_plane/metadata.json")
    yield Case("a name with an escape", "\x1b[2J\x1b]0;owned\x07", _written(b"x"), r"\x1b[2J", verdict="valid")
    yield Case("a name with markup", "[bold red]x[link=https:]", _written(b"x"), "x", verdict="valid", artifact="")
    yield Case("a name that turns the direction", "\u202egpj.exe", _written(b"x"), r"\u202e", verdict="valid")
    yield Case("a name that is no text", "no text \udcff", _written(b"x"), r"\udcff", verdict="valid")
    yield Case("a name with a line end", "line\nend", _written(b"x"), r"\x0a", verdict="valid")
    yield Case(
        "names that differ by case",
        "Config.yaml",
        _written(b"x"),
        "differ only in case",
        artifact=CONFIG,
        verdict="valid",
    )
    yield Case(
        "names that differ by Unicode form", f"{SESSIONS}/e\u0301.json", _normal_forms, "Unicode form", verdict="valid"
    )
    yield Case(
        "a tree without end",
        "deep",
        lambda path: path.joinpath(*["d"] * 100).mkdir(parents=True),
        "nested deeper",
        verdict="incomplete",
        artifact="manifest.json",
    )
    yield Case(
        "a name that everybody may write",
        LEDGER,
        lambda path: path.chmod(0o666),
        "changed by everybody",
        verdict="valid",
    )
    yield Case(
        "a file with another user's rights", LEDGER, lambda path: path.chmod(0o4644), "set-id bit", verdict="valid"
    )


def _linked(path: Path) -> None:
    is_directory = path.is_dir()
    path.rename(path.with_name(f"was-{path.name}"))
    path.symlink_to("/etc" if is_directory else "/etc/passwd")


def _linked_beside(path: Path) -> None:
    path.rename(path.with_name(f"was-{path.name}"))
    path.symlink_to(f"was-{path.name}")


def _piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _bound(path: Path) -> None:
    path.unlink()
    before = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


def _device(path: Path) -> None:
    """A character device that never ends. Raises PermissionError where that needs more rights."""
    path.unlink()
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_file(path: Path) -> None:
    path.rename(path.with_name("was"))
    path.write_bytes(b"")


def _normal_forms(path: Path) -> None:
    path.write_bytes(b"{}")
    path.with_name("\u00e9.json").write_bytes(b"{}")
