"""Where a command may write what the user asked for: never over its own inputs, never into what ckptctl proves.

Looked at before any work is done, on the real paths: wherever links lead.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

from ckptctl.errors import StorageError, UsageError

PATH_METAVARS = frozenset({"PATH", "FILE", "DIR", "DIR_A", "DIR_B", "STAGED"})
"""Parameters of these names hold paths: what a command reads, or another file that it writes."""
RUN_DIR = "--dir"
CLUSTER_RECORD = "cluster.json"
CLUSTER_FILES = frozenset(
    {CLUSTER_RECORD, "ckptctl.yaml", "control.token", "results.jsonl", "dispatches.jsonl", "restores.jsonl"}
)
CLUSTER_AUDIT, CLUSTER_FOLDERS = "audit-", frozenset({"capture", "logs", "settings"})
"""What an embedded cluster keeps in its run directory, as `ckptctl.sim` has it; a test compares, since nothing imports that."""
ANSWER = "output"
"""The parameter that says where the answer goes."""


def demand_place(output: str, option: str = "--output") -> None:
    """Refuse a file for an answer, or for what `option` is about.

    Raises:
        UsageError: it is a folder, or lies in a checkpoint's anchor, snapshot, data plane or control folder.
        StorageError: there is no folder for it, or none that can be written to.
        NothingThereError: it is relative, and the working directory was removed.
    """
    try:
        folder = os.path.dirname(os.path.realpath(output))  # noqa: PTH120 - str paths
    except FileNotFoundError:
        from ckptctl.workflows.targets import absolute

        absolute(output)  # refuses it, in the words that every path gets
        raise
    if os.path.isdir(output):  # noqa: PTH112 - str paths
        raise UsageError(f"`{option} {_told(output)}` is a directory", hint="name a file in it")
    demand_outside(option, output, folder)
    if os.path.isfile(f"{folder}/{CLUSTER_RECORD}") or os.path.isfile(f"{folder}/../{CLUSTER_RECORD}"):  # noqa: PTH113 - str paths
        _demand_no_part_of_a_cluster(output, option)
    for place in (os.path.dirname(output) or ".", folder):  # noqa: PTH120 - the first as the system goes, `..` and all
        if not os.path.isdir(place):  # noqa: PTH112 - str paths
            raise StorageError(operation="write", path=output, detail=f"there is no folder `{place}`")
    if not os.access(folder, os.W_OK) and not os.access(output, os.W_OK):
        raise StorageError(operation="write", path=output, detail=f"the folder `{folder}` cannot be written to")


def demand_known_places(ctx: Any, config: str | None) -> None:
    """Refuse relative paths when the working directory was removed: they mean nothing, and Python would say so in its own way.

    Raises:
        NothingThereError: the configuration, or one of the command's paths, is such a one.
    """
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except FileNotFoundError:
        from ckptctl.workflows.targets import absolute

        for path in (config, *(path for _, path in _paths_of(ctx))):
            if path:
                absolute(path)


def demand_outside(option: str, named: str, folder: str) -> None:
    """Refuse a folder in which a file more, or other bytes, would make a checkpoint worthless; `named` as the user did.

    Raises:
        UsageError: it is or lies in an anchor, a snapshot, a data plane or a control folder.
    """
    from ckptctl.adapters.local_store import LocalStore
    from ckptctl.workflows.guarded import owner_of

    owner = owner_of(LocalStore(), os.path.realpath(folder))
    if owner is not None:
        raise UsageError(
            f"`{option} {_told(named)}`: that place belongs to {owner}, and nothing else may be written there",
            hint="give a place outside of anchors and snapshots; nothing was done",
        )


def demand_no_input(ctx: Any, output: str, config: str | None, written: str = "--output") -> None:
    """Refuse an answer that would replace what the command itself reads or writes, under whatever name.

    Raises:
        UsageError: it is the configuration, or one of the command's paths.
    """
    for option, path in (("--config", config), *_paths_of(ctx)):
        if path and option != written:
            demand_other(output, option, path, written)
        if option == RUN_DIR and path and os.path.realpath(path) == os.path.dirname(os.path.realpath(output)):  # noqa: PTH120 - str paths
            _demand_no_part_of_a_cluster(output, written)


def demand_other(output: str, option: str, path: str, written: str = "--output") -> None:
    """Refuse an answer that would replace the file that an option, or a place of the configuration, names. Raises UsageError."""
    if _is_same_file(path, output):
        raise UsageError(
            f"`{written} {_told(output)}` would replace what `{option}` names",
            hint="give it a file of its own; nothing was done",
        )


def _demand_no_part_of_a_cluster(output: str, option: str) -> None:
    """Refuse a file of an embedded cluster: without its record nobody can end its processes. Raises UsageError."""
    folder, _, name = os.path.realpath(output).rpartition("/")
    if name in CLUSTER_FILES or name.startswith(CLUSTER_AUDIT) or folder.rpartition("/")[2] in CLUSTER_FOLDERS:
        raise UsageError(
            f"`{option} {_told(output)}` would replace a file of the embedded cluster that has its place there",
            hint="give it a name of its own; nothing was done",
        )


def _paths_of(ctx: Any) -> Iterator[tuple[str, str]]:
    """Every path of a command line but the answer's, with the option or argument that it was given to."""
    for parameter in ctx.command.params:
        if parameter.name == ANSWER or parameter.metavar not in PATH_METAVARS:
            continue
        value = ctx.params.get(parameter.name)
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        for path in (value,) if isinstance(value, str) else value or ():
            yield name, path


def _is_same_file(one: str, other: str) -> bool:
    """Whether both are one regular file, or will be; a terminal or a pipe may be read and written."""
    try:
        found = os.stat(other)  # noqa: PTH116 - str paths
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.stat(one))  # noqa: PTH116 - as above
    except OSError:
        pass
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except FileNotFoundError:  # a relative one, and the working directory is gone
        return False


def _told(path: str) -> str:
    from ckptctl.domain.safe_text import safe

    return safe(path)
