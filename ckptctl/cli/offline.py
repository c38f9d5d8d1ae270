"""Composition of the commands that ask no server: configuration, store, lock and journal of one checkpoint directory.

Imports no HTTP client, so that looking at files stays quick; commands that talk to servers are composed by `wiring`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.journal import FileJournal
from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.locks import FileLock
from ckptctl.adapters.memory import resident_bytes
from ckptctl.adapters.progress import NoProgress, StreamProgress
from ckptctl.adapters.reported_store import ByteCount, ReportedStore
from ckptctl.cli.answer import Aside
from ckptctl.cli.options import Settings
from ckptctl.cli.place import demand_other
from ckptctl.domain.config import RunConfig
from ckptctl.domain.memory_room import MemoryRoom
from ckptctl.domain.safe_text import inert, safe
from ckptctl.errors import ConfigError, UsageError
from ckptctl.ports import Clock, Controller, Participants, Progress
from ckptctl.render.next_command import with_config
from ckptctl.workflows.load_config import load_config
from ckptctl.workflows.targets import absolute
from ckptctl.workflows.world import World

T = TypeVar("T")


class _NoServer:
    """Stands where the servers would: an offline command that asks one has a bug."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"an offline command asked a server: {name}")


def run_offline(settings: Settings, work: Callable[[World, RunConfig], T]) -> T:
    """Run a command that needs the configuration but no server and no token."""
    config = load(settings)
    return work(offline_world(settings, config.checkpoint_dir), config)


def run_in(settings: Settings, path: str | None, work: Callable[[World, str, RunConfig | None], T]) -> T:
    """Run a command on one checkpoint directory: `path`, or the one that the configuration names.

    With a path no configuration is needed; one of that very directory is handed on all the same.
    """
    if path is None and not settings.config:
        raise UsageError(
            "this command needs a PATH or a run configuration",
            hint="give the checkpoint directory, or name a configuration with `--config` or `CKPTCTL_CONFIG`",
        )
    if path is None:
        return run_offline(settings, lambda world, run: work(world, run.checkpoint_dir, run))
    checkpoint_dir = absolute(path)
    settings.notes.about(checkpoint_dir)
    config = load(settings) if settings.config else None
    settings.notes.directories = [checkpoint_dir]
    if config is not None and not is_same_directory(config.checkpoint_dir, checkpoint_dir):
        notice_of(settings)(
            f"configuration `{config.path}` is of another directory (`{config.checkpoint_dir}`): it is not used"
        )
        config = None
    return work(offline_world(settings, checkpoint_dir), checkpoint_dir, config)


def offline_world(settings: Settings, checkpoint_dir: str) -> World:
    """The ports of an offline command."""
    clock = SystemClock()
    nobody = _NoServer()
    return world_of(settings, checkpoint_dir, clock, cast("Participants", nobody), cast("Controller", nobody))


def world_of(
    settings: Settings, checkpoint_dir: str, clock: SystemClock, participants: Participants, controller: Controller
) -> World:
    """The ports of one command on one checkpoint directory."""
    count = ByteCount(progress_of(settings, clock))
    return World(
        store=ReportedStore(checkpoint_dir, count=count),
        lock=FileLock(checkpoint_dir),
        journal=FileJournal(checkpoint_dir, clock),
        clock=clock,
        progress=count,
        participants=participants,
        controller=controller,
        notice=notice_of(settings),
        is_same_directory=is_same_directory,
        limits=settings.limits,
        room=room_of(settings),
    )


def room_of(settings: Settings) -> MemoryRoom:
    """The room of a command that begins now."""
    return MemoryRoom(resident_bytes, settings.limits.memory_bytes)


def load(settings: Settings) -> RunConfig:
    """The run configuration; it must name the checkpoint directory.

    Raises:
        ConfigError: it cannot be used.
        UsageError: the answer would replace the token's file.
    """
    real_path = os.path.realpath(settings.config) if settings.config and os.path.exists(settings.config) else None  # noqa: PTH110 - str paths
    config = load_config(LocalStore(), settings.config, absolute("."), real_path=real_path)
    if not config.checkpoint_dir:
        raise ConfigError(
            path=config.path,
            location="checkpointing.checkpoint_dir",
            problem="is missing",
            hint="name the run's checkpoint directory",
        )
    settings.notes.about(config.checkpoint_dir)
    own = config.sections.ckptctl
    if settings.output and own is not None and own.token_file is not None:
        demand_other(settings.output, "ckptctl.token_file", own.token_file)
    return config


def notice_of(settings: Settings) -> Callable[[str], None]:
    """Where warnings go: to stderr, which in JSON is kept for the one object of a failure unless more was asked for."""

    def notice(text: str) -> None:
        if settings.format != "json" or settings.verbose:
            told = with_config(text, settings.config if settings.is_config_named else None)
            Aside().say(inert(f"warning: {safe(told)}\n"))
            settings.said.add(text)

    return notice


def is_same_directory(one: str, other: str) -> bool:
    """Whether two paths are one directory; by name where they are not there."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121 - str paths
    except OSError:
        return os.path.normpath(one) == os.path.normpath(other)


def is_inside(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it, wherever links lead."""
    real, whole = (os.path.realpath(one) for one in (path, folder))
    return real == whole or real.startswith(f"{whole}/")


def reported_store(settings: Settings) -> tuple[ReportedStore, Progress]:
    """A store for reading alone, and where the work on it says how far it is."""
    count = ByteCount(progress_of(settings, SystemClock()))
    return ReportedStore(count=count), count


def progress_of(settings: Settings, clock: Clock) -> Progress:
    """Where long work says how far it is: nowhere with `-q`, nor in a file of JSON errors unless more was asked for."""
    aside = Aside()
    if settings.quiet or (settings.format == "json" and not aside.isatty() and not settings.verbose):
        return NoProgress()
    columns = aside.columns if aside.isatty() else None
    return StreamProgress(aside, clock, columns=columns, is_verbose=bool(settings.verbose))
