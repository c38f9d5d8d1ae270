"""Where the control token comes from: the environment variable that the configuration names, or a private file. Never
an argument.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.config import OwnSection
from ckptctl.errors import ConfigError, StorageError

_MAX_BYTES = 4096


def load_token(own: OwnSection, config_path: str, environment: Mapping[str, str]) -> str:
    """The control token.

    Raises:
        ConfigError: it is not there, others may read it, or it is no token. The text never holds it.
    """
    if own.token_file is not None:
        return _checked(_read_private(own.token_file, config_path), config_path, "ckptctl.token_file")
    token = environment.get(own.token_env, "")
    if not token:
        raise ConfigError(
            path=config_path,
            location="ckptctl.token_env",
            problem=f"names `{own.token_env}`, which is not set",
            hint="export the token that the Gym servers were started with, or name a file with `ckptctl.token_file`",
        )
    return _checked(token, config_path, "ckptctl.token_env")


def _read_private(path: str, config_path: str) -> str:
    try:
        # A link may lead there (a mounted secret often is one), so the descriptor's own mode is what counts.
        real = os.path.realpath(path)
        with LocalStore().open_source(real) as source:
            mode = os.fstat(source.descriptor).st_mode
            data = source.read_at(0, _MAX_BYTES)
    except (FileNotFoundError, StorageError) as error:
        raise ConfigError(
            path=config_path,
            location="ckptctl.token_file",
            problem=f"names `{path}`, which cannot be read",
            hint="it must be a regular file of the user who runs ckptctl",
        ) from error
    if mode & 0o077:
        raise ConfigError(
            path=config_path,
            location="ckptctl.token_file",
            problem=f"names `{path}`, which others may read or change (mode {mode & 0o777:04o})",
            hint=f"chmod 600 {path}",
        )
    return data.decode("utf-8", "replace")


def _checked(token: str, config_path: str, location: str) -> str:
    stripped = token.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise ConfigError(
            path=config_path,
            location=location,
            problem="does not give a token (printable ASCII without blanks)",
            hint="it is the value that the servers got",
        )
    return stripped
