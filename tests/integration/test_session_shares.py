"""Clients of the older protocol: one principal's sessions leave room for those of others."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
import httpx2
import pytest
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tests.integration.http_serving import refused
from trt_agent_tools.mcp_server.access import RequestContext
from trt_agent_tools.mcp_server.server import make_server
from trt_agent_tools.mcp_server.session_shares import SessionShares
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.supervisor.shares import LOCAL

pytestmark = pytest.mark.anyio

SHARE = 2
WHOLE = 5
ACCEPT = {"Accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def nobody(context: RequestContext) -> BuildService:
    raise AssertionError("a list of tools is the same for everybody")


@dataclass
class Place:
    """The library's own server with shares before it; a header stands for the token."""

    http: httpx2.AsyncClient
    shares: SessionShares

    async def opening(self, principal: str) -> httpx2.Response:
        return await self.http.post(
            "/mcp", json=HELLO, headers={**ACCEPT, "X-Principal": principal}
        )

    async def opened(self, principal: str) -> dict[str, str]:
        """Open a session and return the headers of its requests."""
        response = await self.opening(principal)
        assert response.status_code == 200, response.text
        session_id = response.headers["mcp-session-id"]
        return {**ACCEPT, "X-Principal": principal, "Mcp-Session-Id": session_id}


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    server = make_server(nobody)
    app = server.streamable_http_app(streamable_http_path="/mcp", max_sessions=WHOLE, host="s")
    shares = SessionShares(app, whole=WHOLE, share=SHARE, idle_s=3600.0)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        principal = Request(scope).headers["x-principal"]
        # By this the library holds a session to who opened it.
        scope["user"] = AuthenticatedUser(
            AccessToken(token="", client_id=principal, scopes=[], subject=principal)
        )
        await shares.serve(principal, scope, receive, send)

    async with (
        server.session_manager.run(),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=serve), base_url="http://s", timeout=30
        ) as http,
    ):
        yield Place(http, shares)


async def test_who_has_its_share_is_refused_and_others_are_served(place: Place) -> None:
    for _ in range(SHARE):
        await place.opened("mine")
    told = refused(await place.opening("mine"), 429, ErrorCode.QUEUE_FULL)
    assert told.error.details == {"max_sessions": SHARE}
    await place.opened("theirs")


async def test_a_session_that_is_deleted_makes_room(place: Place) -> None:
    sessions = [await place.opened("mine") for _ in range(SHARE)]
    assert (await place.http.delete("/mcp", headers=sessions[0])).status_code == 200
    await place.opened("mine")
    refused(await place.opening("mine"), 429, ErrorCode.QUEUE_FULL)


async def test_what_another_tries_on_a_session_makes_no_room(place: Place) -> None:
    theirs = [await place.opened("theirs") for _ in range(SHARE)]
    for session in theirs:
        foreign = {**session, "X-Principal": "mine"}
        assert (await place.http.delete("/mcp", headers=foreign)).status_code == 404
    refused(await place.opening("theirs"), 429, ErrorCode.QUEUE_FULL)


async def test_a_request_that_opens_nothing_takes_no_place(place: Place) -> None:
    for _ in range(SHARE + 1):
        wrong = await place.http.post("/mcp", json=LIST, headers={**ACCEPT, "X-Principal": "mine"})
        assert wrong.status_code == 400, wrong.text
    await place.opened("mine")


async def test_sessions_that_idled_away_make_room(place: Place) -> None:
    for _ in range(SHARE):
        await place.opened("mine")
    for session in place.shares._sessions.values():
        session.used_at -= 3601.0
    await place.opened("mine")


async def test_openings_on_their_way_count(place: Place) -> None:
    statuses: list[int] = []

    async def open_one() -> None:
        statuses.append((await place.opening("mine")).status_code)

    async with anyio.create_task_group() as tasks:
        for _ in range(SHARE + 2):
            tasks.start_soon(open_one)
    assert sorted(statuses) == [200] * SHARE + [429] * 2


async def test_the_local_user_may_have_all(place: Place) -> None:
    for _ in range(WHOLE):
        await place.opened(LOCAL)
    refused(await place.opening(LOCAL), 429, ErrorCode.QUEUE_FULL)
