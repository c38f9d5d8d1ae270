"""Control routes of the simulated participants: the same order of checks as the controller's, on bare Starlette.

Many small processes are started on few cores, again and again; this starts in a third of FastAPI's time and nobody needs a
description of these routes. Order: 422, 401, then the handler, whose RefusalError becomes 409.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ckptctl.controller.refusal import RefusalError
from ckptctl.controller.strict import (
    UNAUTHORIZED,
    BodyTooLargeError,
    invalid_content,
    is_authorized,
    load_strict,
    read_body,
    refusal_content,
)

Handler = Callable[..., Awaitable[BaseModel | Mapping[str, Any]]]


def add_route(
    app: Starlette,
    method: str,
    path: str,
    handler: Handler,
    *,
    token: str | None,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
) -> None:
    """Add one route. `handler` takes the body or the query, whichever there is; with `token` None it needs no credential."""

    async def endpoint(request: Request) -> Response:
        try:
            given = await _validated(request, body, query)
        except ValidationError as error:
            return JSONResponse(invalid_content([dict(item) for item in error.errors()]), 422)
        except json.JSONDecodeError as error:
            return JSONResponse(invalid_content([{"type": "json_invalid", "loc": ["body"], "msg": error.msg}]), 422)
        except BodyTooLargeError as error:
            return JSONResponse({"detail": str(error)}, 413)
        if token is not None and not is_authorized(request.headers.get("authorization"), token):
            return JSONResponse(UNAUTHORIZED, 401, headers={"www-authenticate": "Bearer"})
        try:
            result = await handler(*given)
        except RefusalError as error:
            return refusal_response(error)
        return JSONResponse(result.model_dump(mode="json") if isinstance(result, BaseModel) else dict(result))

    app.router.add_route(path, endpoint, methods=[method])


async def _validated(
    request: Request, body: type[BaseModel] | None, query: type[BaseModel] | None
) -> tuple[BaseModel, ...]:
    if body is not None:
        return (body.model_validate(load_strict(await read_body(request.stream()))),)
    if query is not None:
        return (query.model_validate(dict(request.query_params)),)
    return ()


def refusal_response(
    error: RefusalError, *, text_field: str = "detail", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The 409 for a refusal."""
    return JSONResponse(refusal_content(error, text_field=text_field), 409, headers=dict(headers or {}))
