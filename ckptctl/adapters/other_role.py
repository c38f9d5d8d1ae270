"""What a server seems to be that lacks a route: the url of another role in the configuration is the usual reason.

Asks only what every server tells without a token (capabilities of Gym servers, the controller's public status), so the token
does not reach anybody by it. Decides nothing: it is a hint beside the refusal.
"""

from __future__ import annotations

from ckptctl.adapters.channel import Channel
from ckptctl.domain.controller import PREFIX as CONTROLLER_PREFIX
from ckptctl.domain.controller import PublicStatus
from ckptctl.domain.ids import AGENT, MODEL, RESOURCES
from ckptctl.domain.participant import PREFIX as GYM_PREFIX
from ckptctl.domain.participant import Capabilities
from ckptctl.domain.safe_text import safe
from ckptctl.errors import RouteMissingError, ServerRefusedError, UnreachableError

PATIENCE_S = 2.0
CONTROLLER = "controller"
"""How errors and notices call it."""
WORDS = {MODEL: "policy model", AGENT: "agent", RESOURCES: "resources server"}
ROUTES = {
    "agent-checkpoint": AGENT,
    "resources-checkpoint": RESOURCES,
    "model-admission": MODEL,
    "model-checkpoint": MODEL,
}


async def explained(channel: Channel, url: str, key: str, error: RouteMissingError) -> RouteMissingError:
    """The same error, with what the server says it is when that is another role than the one that was asked for.

    `key`: where the configuration has the url.
    """
    asked = CONTROLLER if error.server == CONTROLLER else ROUTES.get(error.operation.partition("/")[0])
    found = await _seen(channel, url, error.server)
    if found is not None and found[0] == asked:
        return error
    if found is None:
        hint = f"{error.hint}, or {key} ({url}) is no url of ours"
    else:
        hint = f"that server is {found[1]}: {key} seems to have the url of another one ({url})"
    return RouteMissingError(
        server=error.server,
        operation=error.operation,
        status=error.status,
        server_code=error.server_code,
        detail=error.detail,
        hint=hint,
    )


async def _seen(channel: Channel, url: str, server: str) -> tuple[str, str] | None:
    """Role and words for it, if the server tells."""
    try:
        facts = await channel.call(
            server, url, "GET", f"{GYM_PREFIX}/capabilities", Capabilities, timeout_s=PATIENCE_S, is_authorised=False
        )
    except (ServerRefusedError, UnreachableError):
        pass
    else:
        return facts.component, f"the {WORDS.get(facts.component, safe(facts.component))} `{safe(facts.name)}`"
    try:
        await channel.call(
            server, url, "GET", f"{CONTROLLER_PREFIX}/status", PublicStatus, timeout_s=PATIENCE_S, is_authorised=False
        )
    except (ServerRefusedError, UnreachableError):
        return None
    return CONTROLLER, "a rollout controller"
