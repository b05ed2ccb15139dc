"""Holds requests to what the API promises to take: known queries, bodies of a bounded size."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import anyio
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trt_agent_tools.api.answers import refuse
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.untrusted import one_line

MAX_BODY_BYTES = 128 * 1024
"""A longer body is refused, and never kept. 64 profiles of 20 inputs are 95 KB."""

MAX_KEYS = 8192
"""A body with more colons is refused before it is parsed: each key that is not known costs time, and
while one caller's is spent nobody else is served. 64 profiles of 20 inputs have 5,200 keys."""

READ_ON_BYTES = 16 * 1024 * 1024
READ_ON_S = 1.0
"""How much of a longer body is read and dropped, and for how long, so that its sender gets the answer."""

BODY_S = 30.0
"""A body has come within this, or it is waited for no longer."""


class StrictRoute(APIRoute):
    """A route that refuses queries that it does not know, or that come twice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler that looks at the query first."""
        handle = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}

        async def strict(request: Request) -> Response:
            names = [name for name, _ in request.query_params.multi_items()]
            wrong = [name for name in names if name not in known or names.count(name) > 1]
            if wrong:
                raise Refusal(
                    ErrorCode.INVALID_ARGUMENT,
                    f"the query {one_line(wrong[0], 60)!r} is not known here, or came twice",
                    f"This path takes {', '.join(sorted(known)) or 'no query'}.",
                    {"valid": sorted(known)},
                )
            return await handle(request)

        return strict


class BodyLimit:
    """Reads a request's body, at most `MAX_BODY_BYTES`, before the application is asked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        body = b""
        more = True
        with anyio.move_on_after(BODY_S) as patience:
            while more and max(len(body), _announced(scope)) <= MAX_BODY_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message.get("body", b"")
                more = message.get("more_body", False)
        if patience.cancelled_caught:
            await _too_slow()(scope, receive, send)
            return
        if max(len(body), _announced(scope)) > MAX_BODY_BYTES:
            if more:
                await _read_on(receive)
            await _too_large()(scope, receive, send)
            return
        if body.count(b":") > MAX_KEYS:
            await _too_many_keys()(scope, receive, send)
            return
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self._app(scope, replay, send)


async def _read_on(receive: Receive) -> None:
    """Read and drop what is still being sent: a caller whose connection breaks sees no answer."""
    size = 0
    with anyio.move_on_after(READ_ON_S):
        while size <= READ_ON_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return


def _too_large() -> Response:
    return _unread(
        f"the body is larger than {MAX_BODY_BYTES} bytes",
        "Send a smaller one: a model goes by its path.",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )


def _too_many_keys() -> Response:
    return refuse(
        ErrorInfo(
            ErrorCode.INVALID_ARGUMENT,
            f"the body has more than {MAX_KEYS} keys",
            "Send fewer: /openapi.json tells which are taken.",
        ),
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )


def _too_slow() -> Response:
    return _unread(
        f"the body has not come within {BODY_S:.0f} seconds",
        "Send the request again, all of it at once.",
        HTTPStatus.REQUEST_TIMEOUT,
    )


def _unread(message: str, hint: str, status: HTTPStatus) -> Response:
    refused = refuse(ErrorInfo(ErrorCode.INVALID_ARGUMENT, message, hint), status)
    # The rest of the body is not waited for any longer.
    refused.headers["Connection"] = "close"
    return refused


def _announced(scope: Scope) -> int:
    """Return the body's length as its header says it, 0 without one."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            # The server has refused what is no number.
            return int(value)
    return 0
