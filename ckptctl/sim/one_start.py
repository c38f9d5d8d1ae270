"""One start at a time in a run directory: of two sets of processes the record would name only one.

The kernel's lock on the directory itself, so nothing is left behind and a starter that is killed lets go of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from ckptctl.adapters import durable
from ckptctl.domain.safe_text import safe
from ckptctl.errors import RefusedError

_NO_LOCKS_HERE = {errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL}
"""What file systems answer that lock no directories (NFS): a start there is not kept from another."""


@contextmanager
def only_start(run_dir: str) -> Iterator[None]:
    """Make the directory and be the only one that starts a cluster in it.

    Raises:
        RefusedError: another command is starting one there.
        StorageError: the directory cannot be made or opened.
    """
    durable.make_directory(run_dir)
    try:
        descriptor = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise durable.storage_error("open", run_dir, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        hint = f"wait until it has ended; `ckptctl sim status --dir {quote(safe(run_dir))}` then shows what runs"
        raise RefusedError(f"another command is starting a cluster in `{run_dir}`", hint=hint) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            os.close(descriptor)
            raise durable.storage_error("lock", run_dir, error) from error
    try:
        yield
    finally:
        os.close(descriptor)
