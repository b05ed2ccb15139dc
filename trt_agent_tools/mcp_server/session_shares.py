"""How many sessions of the older protocol one principal may have open; the SDK bounds all together alone."""

import time
from collections import Counter
from dataclasses import dataclass

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trt_agent_tools.api.answers import refuse
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.supervisor.shares import share_of

_SESSION_ID = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_FIRST_REFUSAL = 400
_NOT_FOUND = 404


@dataclass
class _Session:
    """A session that is open as far as its requests and answers tell."""

    principal: str
    used_at: float
    requests: int = 0


class SessionShares:
    """Refuses a principal's next session when `share` of its own are open.

    Sessions are told by what goes over the wire: the answer to the request that opens one names it, it is
    over with a DELETE, when it is not found, and after `idle_s` without a request. The local user may
    have the `whole`.
    """

    def __init__(self, app: ASGIApp, *, whole: int, share: int, idle_s: float) -> None:
        self._app = app
        self._whole = whole
        self._share = share
        self._idle_s = idle_s
        self._sessions: dict[str, _Session] = {}
        self._opening: Counter[str] = Counter()

    async def serve(self, principal: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of `principal`."""
        version = _value(scope, _VERSION)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            # The newer protocol has no sessions.
            await self._app(scope, receive, send)
        elif (session_id := _value(scope, _SESSION_ID)) is not None:
            await self._serve_open(session_id, principal, scope, receive, send)
        else:
            await self._serve_opening(principal, scope, receive, send)

    async def _serve_open(
        self, session_id: str, principal: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            await self._app(scope, receive, send)
            return

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                deleted = scope["method"] == "DELETE" and status < _FIRST_REFUSAL
                if deleted or status == _NOT_FOUND:
                    self._sessions.pop(session_id, None)
            await send(message)

        session.requests += 1
        try:
            await self._app(scope, receive, note)
        finally:
            session.requests -= 1
            session.used_at = time.monotonic()

    async def _serve_opening(
        self, principal: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        most = share_of(principal, whole=self._whole, share=self._share)
        if self._open(principal) + self._opening[principal] >= most:
            await _too_many(most)(scope, receive, send)
            return

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < _FIRST_REFUSAL:
                named = _value(message, _SESSION_ID)
                if named is not None:
                    self._sessions[named] = _Session(principal, time.monotonic())
            await send(message)

        self._opening[principal] += 1
        try:
            await self._app(scope, receive, note)
        finally:
            self._opening -= Counter([principal])

    def _open(self, principal: str) -> int:
        """Return how many sessions of `principal` are open, having forgotten those that idled away."""
        now = time.monotonic()
        self._sessions = {
            session_id: session
            for session_id, session in self._sessions.items()
            if session.requests or now - session.used_at <= self._idle_s
        }
        return sum(session.principal == principal for session in self._sessions.values())


def _too_many(most: int) -> ASGIApp:
    return refuse(
        ErrorInfo(
            ErrorCode.QUEUE_FULL,
            f"{most} MCP sessions of yours are open, as many as may be",
            "Close one with DELETE, or use a client of the newer protocol, which has no sessions.",
            {"max_sessions": most},
        )
    )


def _value(held: Scope | Message, name: bytes) -> str | None:
    """Return a header of a request or of an answer."""
    for key, value in held.get("headers", ()):
        if key.lower() == name:
            text: str = value.decode("latin-1")
            return text
    return None
