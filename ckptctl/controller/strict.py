"""What every server half demands of a request: strict JSON, bounded bodies, the bearer token.

The routes themselves are `http`'s (FastAPI, described by an OpenAPI document) and `ckptctl.sim.routes`' (bare Starlette).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.limits import DEFAULT_LIMITS

MAX_BODY_BYTES = DEFAULT_LIMITS.reply_bytes
UNAUTHORIZED: Mapping[str, str] = {"detail": "the control token is missing or wrong"}


class BodyTooLargeError(Exception):
    """A body above the limit: 413."""


async def read_body(stream: AsyncIterator[bytes]) -> bytes:
    """A whole request body. Raises BodyTooLargeError."""
    data = bytearray()
    async for chunk in stream:
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise BodyTooLargeError(f"the body exceeds {MAX_BODY_BYTES} bytes")
    return bytes(data)


def load_strict(data: bytes) -> Any:
    """Parse JSON without duplicate keys, NaN or unreasonable depth. Raises JSONDecodeError."""
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise json.JSONDecodeError(reason, "", 0) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def is_authorized(authorization: str | None, token: str) -> bool:
    """Whether an Authorization header carries the token; compared in constant time."""
    scheme, _, given = (authorization or "").partition(" ")
    return hmac.compare_digest(given.strip().encode(), token.encode()) and scheme.lower() == "bearer"


def invalid_content(errors: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The body of a 422: where and why, but never an echo of the input, which may be huge, not JSON, or secret."""
    return {"detail": [{"type": item["type"], "loc": list(item["loc"]), "msg": item["msg"]} for item in errors]}


def refusal_content(error: RefusalError, *, text_field: str = "detail") -> dict[str, Any]:
    """The body of a 409; the resources data plane writes its text into `message`."""
    return {"error": {"code": error.code, text_field: error.detail, **error.facts}}
