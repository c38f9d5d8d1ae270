"""`--memory` of every command that reads snapshots: what it takes, and that it is the bound of what is read."""

from __future__ import annotations

import pytest

from ckptctl.cli.offline import offline_world
from ckptctl.cli.options import Settings
from ckptctl.cli.sizes import limits_of
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from tests.command_line import run

MEBIBYTE = 1 << 20


@pytest.mark.parametrize("command", ["snapshot", "validate", "publish", "restore", "gc", "inspect"])
def test_too_little_is_refused_before_anything_is_done(tmp_path, command) -> None:
    """A usage error, whatever else is there."""
    done = run(command, "--memory", "100M", folder=tmp_path)

    assert 2 == done.status
    assert "`--memory 100M` is too little" in done.stderr


@pytest.mark.parametrize(("memory", "most"), [(None, DEFAULT_LIMITS.memory_bytes), ("1G", 964 * MEBIBYTE)])
def test_a_world_has_the_room_that_was_asked_for(tmp_path, memory, most) -> None:
    """By default that of 600M, of which the program takes 60M itself."""
    settings = Settings(quiet=True, limits=limits_of(memory))
    world = offline_world(settings, str(tmp_path))
    world.room.demand(most - 64 * MEBIBYTE)

    assert most == world.limits.memory_bytes
    with pytest.raises(DefectError):
        world.room.demand(most + 64 * MEBIBYTE)
