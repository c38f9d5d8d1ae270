"""A ZIP builder in which every field can be wrong."""

import struct
import zlib
from dataclasses import dataclass, field


@dataclass
class Member:
    """One entry. `local` and `listed` override header fields: flags, method, crc, stored, size, name, extra; `listed` also header, disk."""

    name: str = "archive/data.pkl"
    data: bytes = b"\x80\x02N."
    local: dict = field(default_factory=dict)
    listed: dict = field(default_factory=dict)
    after: bytes = b""


def torch_members(pickle: bytes = b"\x80\x02N.", **more: bytes) -> list[Member]:
    """The entries that a torch zip must have, and others below the folder."""
    names = {"data.pkl": pickle, "byteorder": b"little", "version": b"3\n", **more}
    return [Member(f"archive/{name}", data) for name, data in names.items()]


def build_zip(
    members: list[Member], *, zip64: bool = False, end: dict | None = None, end64: dict | None = None, gap: bytes = b""
) -> bytes:
    """The archive; `end` overrides count, here, size, offset, disk, comment of the end record, `end64` those of the 64-bit one."""
    body, directory = b"", b""
    for member in members:
        facts = {
            "flags": 0,
            "method": 0,
            "crc": zlib.crc32(member.data),
            "stored": len(member.data),
            "size": len(member.data),
            "name": member.name.encode("utf-8", "surrogateescape"),
            "extra": b"",
            "header": len(body),
            "disk": 0,
            "magic": b"PK\x03\x04",
        }
        local = {**facts, **member.local}
        body += struct.pack(
            "<4s5H3L2H", local["magic"], 20, local["flags"], local["method"], 0, 0x21,
            local["crc"], local["stored"], local["size"], len(local["name"]), len(local["extra"]),
        ) + local["name"] + local["extra"] + member.data + member.after  # fmt: skip
        listed = {**facts, "magic": b"PK\x01\x02", **member.listed}
        directory += struct.pack(
            "<4s6H3L5H2L", listed["magic"], 20, 20, listed["flags"], listed["method"], 0, 0x21, listed["crc"],
            listed["stored"], listed["size"], len(listed["name"]), len(listed["extra"]), 0, listed["disk"], 0, 0, listed["header"],
        ) + listed["name"] + listed["extra"]  # fmt: skip
    where = {"count": len(members), "size": len(directory), "offset": len(body), "disk": 0, "comment": b""}
    last = {**where, "here": (end or {}).get("count", len(members)), **(end or {})}
    tail = b""
    if zip64:
        wide = {
            **where,
            "here": len(members),
            "length": 44,
            "disks": 1,
            "magic": b"PK\x06\x06",
            "at": len(body) + len(directory),
            **(end64 or {}),
        }
        tail = struct.pack(
            "<4sQ2H2L4Q", wide["magic"], wide["length"], 45, 45, wide["disk"], 0, wide["here"], wide["count"], wide["size"], wide["offset"]
        ) + struct.pack("<4sLQL", b"PK\x06\x07", 0, wide["at"], wide["disks"])  # fmt: skip
    tail += struct.pack(
        "<4s4H2LH", b"PK\x05\x06", last["disk"], 0, last["here"], last["count"], last["size"], last["offset"], len(last["comment"])
    ) + last["comment"]  # fmt: skip
    return body + directory + gap + tail
