"""The controller interface's routes on FastAPI: validation, credential, the form of errors, and their description.

Order of checks, for every route added here (participant-protocol section 2):

1. body and query are valid, else 422 (also: not JSON, duplicate keys, NaN, too deep; 413 when too large);
2. the bearer token is right, else 401;
3. the handler runs; its RefusalError becomes 409 `{"error": {"code", "detail"}}`.

Fence, phases and meaning of a request are the handler's business.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

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
from ckptctl.domain.document import Document

Handler = Callable[..., Awaitable[BaseModel | Mapping[str, Any] | Response]]

_bearer = HTTPBearer(auto_error=False, description="the control token of the run")
_Credential = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


class ErrorObject(Document):
    """Why a request was refused."""

    code: str
    detail: str


class ErrorBody(Document):
    """Body of a 409."""

    error: ErrorObject


class StrictRequest(Request):
    """A request whose JSON body has no duplicate keys and no NaN, and a bounded size and depth."""

    async def body(self) -> bytes:
        """The whole body. Raises HTTPException 413 above the limit."""
        if not hasattr(self, "_body"):
            try:
                self._body = await read_body(self.stream())
            except BodyTooLargeError as error:
                raise HTTPException(413, str(error)) from error
        return self._body

    async def json(self) -> Any:
        """The parsed body. Raises JSONDecodeError, which becomes 422."""
        return load_strict(await self.body())


class StrictRoute(APIRoute):
    """Hands every endpoint a StrictRequest."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Wrap FastAPI's handler."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await inner(StrictRequest(request.scope, request.receive))

        return handle


def new_app(title: str, version: str, description: str = "") -> FastAPI:
    """A FastAPI application with the documented error bodies and no routes of its own (no docs, no served schema)."""
    app = FastAPI(
        title=title, version=version, description=description, openapi_url=None, docs_url=None, redoc_url=None
    )
    app.router.route_class = StrictRoute
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return JSONResponse(refusal_content(error), 409)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return JSONResponse(invalid_content(error.errors()), 422)


def add_route(
    app: FastAPI,
    method: str,
    path: str,
    handler: Handler,
    *,
    token: str,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    reply: Any = None,
    wants_credential: bool = False,
    summary: str = "",
) -> None:
    """Add one control route.

    `handler` takes the body or the query, whichever the route has. With `wants_credential` the route may be asked without a
    token, and the handler is told by `authorized`; a wrong token is refused everywhere.
    """

    async def endpoint(**arguments: Any) -> Response:
        given: HTTPAuthorizationCredentials | None = arguments.pop("credential", None)
        authorized = is_authorized(None if given is None else f"Bearer {given.credentials}", token)
        if not authorized and (given is not None or not wants_credential):
            return JSONResponse(UNAUTHORIZED, 401, headers={"www-authenticate": "Bearer"})
        values = list(arguments.values())
        return respond(await (handler(*values, authorized=authorized) if wants_credential else handler(*values)))

    parameters: list[tuple[str, Any]] = [("credential", _Credential)]
    if body is not None:
        parameters.insert(0, ("body", body))
    if query is not None:
        parameters.insert(0, ("query", Annotated[query, Query()]))
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([inspect.Parameter(name, keyword, annotation=kind) for name, kind in parameters])
    endpoint.__signature__ = signature  # type: ignore[attr-defined]  # FastAPI reads the signature, mypy does not know it
    responses: dict[int | str, dict[str, Any]] = {
        401: {"description": UNAUTHORIZED["detail"]},
        409: {"model": ErrorBody, "description": "refused; nothing was changed"},
    }
    name = (method + path).replace("/", "_").replace("-", "_").strip("_").lower()
    app.add_api_route(
        path,
        endpoint,
        methods=[method],
        response_model=reply,
        responses=responses,
        summary=summary or None,
        operation_id=name,
        openapi_extra={"security": [{}]} if wants_credential else None,  # beside the token: none at all
    )


def respond(result: BaseModel | Mapping[str, Any] | Response) -> Response:
    """What a handler returned, as a response."""
    if isinstance(result, Response):
        return result
    if isinstance(result, BaseModel):
        return JSONResponse(result.model_dump(mode="json"))
    return JSONResponse(dict(result))
