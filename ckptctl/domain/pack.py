"""How a packed snapshot is recognised, without anything that reads one."""

from __future__ import annotations

PACK_SUFFIXES = (".tar.zst", ".tzst")
BUNDLE_MARK = "ckptctl-bundle.json"
"""A member that only a support bundle has, which is no packed snapshot."""
FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
MAGICS = (FRAME_MAGIC, *(bytes((0x50 + low, 0x2A, 0x4D, 0x18)) for low in range(16)))
"""How a zstd file may begin: with a frame, or with one that is to be skipped."""
