"""One HTTP connection pool to a supervisor's Unix socket."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from urllib.parse import urlencode

import anyio
import httpx2
from pydantic import BaseModel, ValidationError
from typing_extensions import Self

from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.untrusted import one_line

ANSWER_S = 10.0
"""An answer takes at most this long, beside what the call itself waits for."""

CONNECT_S = 2.0
CLOSE_S = 1.0
_IDLE_S = 300.0
_SUCCESS = range(200, 300)

Query = Mapping[str, str | int | float | None]


class GoneError(Exception):
    """Nobody answers on the socket, or the answer broke off."""


class SilentError(GoneError):
    """An answer did not come in time; the connection may be well all the same."""


class UnreachableError(GoneError):
    """Nothing was sent: nobody listens."""


def gone(error: httpx2.TransportError) -> GoneError:
    """Return what a failed exchange means."""
    kind = GoneError
    if isinstance(error, httpx2.ConnectError):
        kind = UnreachableError
    elif isinstance(error, httpx2.TimeoutException):
        kind = SilentError
    return kind(str(error) or type(error).__name__)


class Connection:
    """Speaks to one socket; connections are kept open between calls."""

    def __init__(self, socket: Path) -> None:
        # The transport alone: a client over it, with its cookies and redirects, costs as much again.
        self._transport = httpx2.AsyncHTTPTransport(
            uds=str(socket),
            verify=False,
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=8, keepalive_expiry=_IDLE_S
            ),
        )

    async def __aenter__(self) -> Self:
        """Connect when there is something to ask."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._transport.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: BaseModel | None = None,
        wait_s: float = 0.0,
    ) -> bytes:
        """Return the body of a successful answer that takes `wait_s` and `ANSWER_S` at most.

        Raises:
            GoneError: nobody answers.
            Refusal: the supervisor refuses.
        """
        async with self.open(
            method, path, query=query, body=body, silent_s=wait_s + ANSWER_S
        ) as response:
            try:
                return await response.aread()
            except httpx2.TransportError as error:
                raise gone(error) from error

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: BaseModel | None = None,
        silent_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Give a successful answer whose body is still to come. Nothing for `silent_s` breaks it off.

        Raises:
            GoneError: nobody answers.
            Refusal: the supervisor refuses.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        request = httpx2.Request(
            method,
            f"http://supervisor{path}" + (f"?{urlencode(given)}" if given else ""),
            content=None if body is None else body.model_dump_json(),
            headers=None if body is None else {"Content-Type": "application/json"},
            extensions={
                "timeout": {
                    "connect": CONNECT_S,
                    "pool": CONNECT_S,
                    "write": ANSWER_S,
                    "read": silent_s,
                }
            },
        )
        try:
            response = await self._transport.handle_async_request(request)
        except httpx2.TransportError as error:
            raise gone(error) from error
        try:
            if response.status_code not in _SUCCESS:
                raise await _refusal(response)
            yield response
        finally:
            if not response.is_closed:
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await response.aclose()


async def _refusal(response: httpx2.Response) -> Refusal:
    """Return what a refusing answer says."""
    try:
        content = await response.aread()
    except httpx2.TransportError as error:
        raise gone(error) from error
    try:
        info = ErrorAnswer.model_validate_json(content).error
    except ValidationError:
        # Another program on the socket, or a supervisor with a code that this version lacks.
        return Refusal(
            ErrorCode.INTERNAL_ERROR,
            f"the supervisor answered with status {response.status_code} and "
            f"{one_line(content.decode('utf-8', 'replace'), 200)!r}",
            "The supervisor's log may tell more.",
        )
    return Refusal(info.code, info.message, info.hint, info.details)
