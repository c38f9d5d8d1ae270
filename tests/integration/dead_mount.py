"""A file system that is dead: it takes every request and answers none, so that whoever asks sits in the kernel and hears no signal.

A FUSE file system of a few lines: it answers the first request (FUSE_INIT), without which nobody would wait uninterruptibly.
"""

import ctypes
import os
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

_IN_HEADER = struct.Struct("<IIQQIIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI7I")
_MNT_FORCE, _MNT_DETACH = 1, 2


class DeadMount:
    """Mounted at a folder while the context lasts; afterwards everybody who waited is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self) -> Self:
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if self._libc.mount(b"ckptctl-dead", os.fsencode(self.folder), b"fuse.ckptctl-dead", 0, options):
            code = ctypes.get_errno()
            os.close(self._device)
            raise OSError(code, f"cannot mount: {os.strerror(code)}")
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        return self

    def _take(self) -> None:
        with suppress(OSError):  # unmounted
            while True:
                request = os.read(self._device, 1 << 17)
                _, opcode, unique, *_ = _IN_HEADER.unpack_from(request)
                if opcode == 26:
                    answer = _INIT_OUT.pack(7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7)
                    os.write(self._device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)

    def __exit__(self, *_: object) -> None:
        # By force first: that ends the connection, and everybody who waits gets an error.
        self._libc.umount2(os.fsencode(self.folder), _MNT_FORCE)
        self._libc.umount2(os.fsencode(self.folder), _MNT_DETACH)
        self._thread.join(5)
        os.close(self._device)
