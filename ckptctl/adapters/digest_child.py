"""The program that maps large files into memory and digests them on all threads, in a process of its own.

A mapped file that is cut short while it is read kills its reader (SIGBUS): that must not be ckptctl. Run by path, not as a
module of the package, with nothing imported that is not needed. It gets open descriptors and opens nothing itself.

Arguments: the folder that `blake3` lies in, and the descriptor of a socket. Messages: a size in bytes with a descriptor in; `+N`
after every N bytes, then the digest, `changed` (the file ended too early) or `unread` (its bytes could not be fetched) out.
"""

from __future__ import annotations

import _socket  # `socket` and `signal` take longer to import than everything else here together
import mmap
import os
import sys

WINDOW_BYTES = 32 << 20
"""Mapped at a time: bounds the memory that counts as ours, and how late a change shows."""
POPULATE_READ = 22
"""MADV_POPULATE_READ: fetch all pages at once; twice as quick as one fault after the other (Linux 5.14)."""
_NOT_KNOWN = 22
"""EINVAL of an older kernel: then the pages come one by one."""
_DESCRIPTOR_BYTES = 4
"""A C int."""


def main() -> None:
    """Serve until the socket is closed."""
    sys.path.append(sys.argv[1])
    channel = _socket.socket(fileno=int(sys.argv[2]))
    while True:
        message, rights, _, _ = channel.recvmsg(64, _socket.CMSG_SPACE(_DESCRIPTOR_BYTES))
        if not message:
            return
        [(_, _, data)] = rights
        descriptor = int.from_bytes(data[:_DESCRIPTOR_BYTES], sys.byteorder)
        try:
            channel.send(digest(channel, descriptor, int(message)))
        finally:
            os.close(descriptor)


def digest(channel: _socket.socket, descriptor: int, size_bytes: int) -> bytes:
    """BLAKE3 of one open file, or the word for why there is none."""
    from blake3 import blake3  # noqa: PLC0415 - found only once its folder is known

    hasher = blake3(max_threads=blake3.AUTO)
    for offset in range(0, size_bytes, WINDOW_BYTES):
        count = min(WINDOW_BYTES, size_bytes - offset)
        try:
            window = mmap.mmap(descriptor, count, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset)
        except ValueError:  # the file is shorter than that by now
            return b"changed"
        except OSError:
            return b"unread"
        with window:
            try:
                window.madvise(POPULATE_READ)
            except OSError as error:
                if error.errno != _NOT_KNOWN:
                    return b"unread"
            hasher.update(window)
        channel.send(b"+%d" % count)
    return hasher.hexdigest().encode()


if __name__ == "__main__":
    main()
