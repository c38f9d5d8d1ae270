"""`python -m ckptctl.sim.process --settings FILE`: serve one Gym participant, or own a live queue, until SIGTERM.

The role stands in the settings; a role on the command line must be the same, so that a process list says who is who.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from pydantic import ValidationError

from ckptctl.sim.processes import end_with_owner
from ckptctl.sim.server import SimulatedServer, run_server
from ckptctl.sim.settings import (
    AgentSettings,
    PolicyModelSettings,
    PolicyWorkerSettings,
    QueueSettings,
    ResourcesSettings,
    RoleSettings,
    decode_settings,
)

FACTORIES = {
    PolicyModelSettings: ("ckptctl.sim.policy_model", "create_policy_app"),
    PolicyWorkerSettings: ("ckptctl.sim.policy_worker", "create_worker_app"),
    AgentSettings: ("ckptctl.sim.agent", "create_agent_app"),
    ResourcesSettings: ("ckptctl.sim.resources", "create_resources_app"),
    QueueSettings: ("ckptctl.sim.queue_host", "create_queue_app"),
}
"""Named, not imported: a process loads its own role only, which halves its start."""


def create_app(settings: RoleSettings, token: str | None) -> SimulatedServer:
    """The application of whatever role the settings describe."""
    module, factory = FACTORIES[type(settings)]
    server = getattr(import_module(module), factory)(settings, token)
    assert isinstance(server, SimulatedServer)
    return server


def main(arguments: list[str] | None = None) -> int:
    """Serve; 2 for settings that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m ckptctl.sim.process")
    parser.add_argument("role", nargs="?")
    parser.add_argument("--settings", required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        settings = decode_settings(Path(options.settings).read_bytes())
    except (OSError, ValidationError) as error:
        sys.stderr.write(f"settings `{options.settings}`: {error}\n")
        return 2
    if options.role not in (None, settings.role):
        sys.stderr.write(f"settings `{options.settings}` are for a {settings.role}, not a {options.role}\n")
        return 2
    end_with_owner(takes_group=settings.role == "transferqueue")  # Ray has children
    run_server(create_app(settings, os.environ.get(settings.token_env) or None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
