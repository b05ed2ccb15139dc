"""Serves MCP over streamable HTTP, to clients of both eras."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from trt_agent_tools.api.addresses import Addresses
from trt_agent_tools.api.gate import caller_of
from trt_agent_tools.api.strict import MAX_BODY_BYTES
from trt_agent_tools.mcp_server.access import RequestContext
from trt_agent_tools.mcp_server.server import make_server
from trt_agent_tools.mcp_server.session_shares import SessionShares
from trt_agent_tools.model.service import BuildService

PATH = "/mcp"

MAX_SESSIONS = 1_000
"""So many sessions of clients of the older protocol are open; one more is answered with 503."""

MAX_SESSIONS_OF_ONE = MAX_SESSIONS // 8
"""Likewise of one principal, whose next is answered with 429."""

SESSION_IDLE_S = 30 * 60.0
"""A session without a request for so long is closed; its client opens another."""


@asynccontextmanager
async def open_mcp(
    service_of: Callable[[Request], BuildService], addresses: Addresses
) -> AsyncIterator[ASGIApp]:
    """Give the application that serves `PATH` until the block is left.

    Every request is answered for its own caller, whatever session it is in; a session answers to the
    principal that opened it alone.
    """
    # Below ERROR the library logs the ids of sessions, and what anybody sends.
    logging.getLogger("mcp").setLevel(logging.ERROR)

    def service_in(context: RequestContext) -> BuildService:
        if not isinstance(context.request, Request):
            # A fault of this program: nobody is served.
            raise RuntimeError("a request over HTTP has come without its HTTP request")
        return service_of(context.request)

    server = make_server(service_in)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_IDLE_S,
        transport_security=TransportSecuritySettings(
            allowed_hosts=list(addresses.hosts), allowed_origins=list(addresses.origins)
        ),
    )
    async with server.session_manager.run():
        yield _Known(
            SessionShares(
                AuthContextMiddleware(app),
                whole=MAX_SESSIONS,
                share=MAX_SESSIONS_OF_ONE,
                idle_s=SESSION_IDLE_S,
            )
        )


class _Known:
    """Tells the library who asks, so that its own checks of who owns what hold too."""

    def __init__(self, sessions: SessionShares) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        principal = caller_of(Request(scope)).principal
        # The token itself has been judged; no part of the library is to have it.
        scope["user"] = AuthenticatedUser(
            AccessToken(token="", client_id=principal, scopes=[], subject=principal)
        )
        await self._sessions.serve(principal, scope, receive, send)
