"""What `ckptctl sim fault` asks for: checked before any server is asked, as the server would check it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckptctl.cli.sim_options import FAULT_KINDS
from ckptctl.errors import UsageError

if TYPE_CHECKING:
    from ckptctl.sim.answers import FaultAnswer
    from ckptctl.sim.cluster_options import ClusterRecord

_OPTIONS = {
    "operation": "--operation",
    "code": "--code",
    "status": "--status",
    "times": "--times",
    "delay_s": "--delay",
    "rollout_id": "--rollout",
}


def order_of(kind: str | None, details: Mapping[str, Any]) -> dict[str, Any] | None:
    """The order of a fault from what was given (None: it was not), or None where none is ordered.

    Raises:
        UsageError: there is no such kind, it has no use for a detail, or a detail is no value of its own.
    """
    given = {name: value for name, value in details.items() if value is not None}
    if kind is None:
        if given:
            options = ", ".join(_OPTIONS[name] for name in given)
            raise UsageError(f"{options} without --kind orders nothing", hint=f"kinds: {', '.join(FAULT_KINDS)}")
        return None
    if kind not in FAULT_KINDS:
        raise UsageError(f"there is no kind of fault `{kind}`", hint=f"kinds: {', '.join(FAULT_KINDS)}")
    from pydantic import ValidationError

    from ckptctl.domain.document import reason_of
    from ckptctl.sim.fault_order import Fault

    order = {"kind": kind, **given}
    try:
        Fault.model_validate(order)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = [name for name in first["loc"] if isinstance(name, str)]
        option = f"{_OPTIONS.get(names[0], names[0])}: " if names else ""
        raise UsageError(
            f"no such fault: {option}{_in_options(reason_of(first['msg']))}", hint="see `ckptctl sim fault -h`"
        ) from None
    return order


def _in_options(reason: str) -> str:
    """A reason with the names that the command line has for an order's fields."""
    for name, option in _OPTIONS.items():
        reason = reason.replace(f"`{name}`", f"`{option}`")
    return reason


def demand_one(server: str | None, kind: str | None, *, clear: bool, list_all: bool) -> None:
    """Demand one thing to do, and a server for what needs one. Raises UsageError."""
    if [kind is not None, clear, list_all].count(True) != 1:
        raise UsageError("a fault needs one of --kind, --clear and --list", hint="`--list` shows what can be ordered")
    if server is None and not list_all:
        raise UsageError("--kind and --clear need --server", hint="`--list` shows the servers")


async def give(
    record: ClusterRecord, server: str | None, order: dict[str, Any] | None, *, list_all: bool
) -> FaultAnswer:
    """Give the order; without one forget those that were given, or list what can be ordered."""
    from ckptctl.sim.answers import FaultAnswer, ServerMenu
    from ckptctl.sim.cluster_client import ClusterClient

    names = [item.name for item in record.processes] if server is None else [server]
    async with ClusterClient(record) as client:
        if list_all:
            menu = [ServerMenu(server=name, **await client.fault_menu(name)) for name in names]
            return FaultAnswer(server=server, faults=[], menu=menu)
        found = await (client.clear_faults(names[0]) if order is None else client.order_fault(names[0], order))
        return FaultAnswer(server=server, faults=found["faults"], planted=found.get("planted"))
