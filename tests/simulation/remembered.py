"""What the product works out anew in every process of a cluster, and what is the same in all of them: worked out once for all seeds.

Only pure functions of their arguments, and the routing tables of the applications, which hold no state. Whoever gets a value
that can be changed gets one of his own. Nothing here knows whether what it remembers was right.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import httpx2._urls as urls

from ckptctl.controller import app as controller_app
from ckptctl.controller.http import add_route
from ckptctl.domain import fingerprint
from ckptctl.domain.config_paths import PathMatcher
from ckptctl.domain.limits import Limits
from ckptctl.formats.config_file import decode_yaml, encode_yaml
from ckptctl.sim import controller_process
from tests.simulation.kernel import ACTING

MOST = 512
"""Values that one function remembers: seeds share little else than their configurations."""

_routes: dict[tuple[str, str], Any] = {}


@lru_cache(MOST)
def _decoded(data: bytes, limits: Limits) -> bytes:
    return pickle.dumps(decode_yaml(data, limits))


def _decode_yaml(data: bytes, limits: Limits) -> dict[str, Any]:
    config = pickle.loads(_decoded(bytes(data), limits))  # noqa: S301 - made above
    assert isinstance(config, dict)
    return config


_encoded: dict[str, bytes] = {}


def _encode_yaml(config: Mapping[str, Any]) -> bytes:
    key = repr(config)
    if key not in _encoded:
        if len(_encoded) >= MOST:
            _encoded.clear()
        _encoded[key] = encode_yaml(config)
    return _encoded[key]


@lru_cache(MOST)
def _matcher(patterns: tuple[str, ...]) -> PathMatcher:
    return PathMatcher(patterns)


def _add_route(app: Any, method: str, path: str, handler: Callable[..., Any], **facts: Any) -> None:
    """The route as it was built for the first application with one; it asks the process that serves for its own handler."""
    key = (method, path)
    process = ACTING.get()
    assert process is not None
    process.handlers[key] = handler
    if key not in _routes:

        async def ask(*values: Any, **named: Any) -> Any:
            serving = ACTING.get()
            assert serving is not None
            return await serving.handlers[key](*values, **named)

        add_route(app, method, path, ask, **facts)
        _routes[key] = app.router.routes[-1]
    else:
        app.router.routes.append(_routes[key])


FUNCTIONS: dict[Any, Any] = {decode_yaml: _decode_yaml, encode_yaml: _encode_yaml}
"""Replaced wherever a module of the product names them."""
OTHERS: tuple[tuple[Any, str, Any], ...] = (
    (PathMatcher, "step", lru_cache(1 << 16)(PathMatcher.step)),
    (PathMatcher, "is_match", lru_cache(1 << 16)(PathMatcher.is_match)),
    (fingerprint, "PathMatcher", lambda patterns: _matcher(tuple(patterns))),
    (controller_app, "add_route", _add_route),
    (controller_process, "add_route", _add_route),
    (urls, "urlparse", lru_cache(MOST)(urls.urlparse)),
)
"""(where, name, what stands there while the simulation is on)."""
