"""Two callers of one server over HTTP: neither knows of the other's builds."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.http_serving import (
    Mode,
    WebServer,
    agent,
    cancelled,
    http_client,
    plain,
    refused,
    start_body,
    started,
    token_for,
    web_server,
)
from trt_agent_tools.api.attach import stop
from trt_agent_tools.api.client import RemoteService
from trt_agent_tools.api.place import find_socket
from trt_agent_tools.api.tokens import revoke_token
from trt_agent_tools.mcp_server.subscriptions import MAX_STREAMS_OF_ONE
from trt_agent_tools.model.documents import PolicyList
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import FrontEnd
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import BuildList, Snapshot
from trt_agent_tools.model.states import State

pytestmark = pytest.mark.anyio

NEVER = "b_0000000000000000"
MODES: tuple[Mode, ...] = ("auto", "legacy")


@dataclass(frozen=True)
class Shared:
    """A server for all tests of this file, each with principals of its own."""

    server: WebServer
    names: Iterator[str]

    def token(self, *policies: str) -> str:
        return token_for(self.server.state, next(self.names), *policies)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("http").resolve()
    (folder / "root").mkdir()
    token_for(folder / "state", "first")
    with web_server(folder / "root", folder / "state") as server:
        yield Shared(server, (f"principal{number}" for number in range(1000)))


@dataclass(frozen=True)
class Two:
    server: WebServer
    mine: httpx2.AsyncClient
    theirs: httpx2.AsyncClient
    their_token: str
    build: Snapshot


@pytest.fixture
async def two(shared: Shared, nothing_left: None) -> AsyncIterator[Two]:
    """A build of mine that runs, and somebody else."""
    their_token = shared.token()
    async with (
        plain(shared.server, shared.token()) as mine,
        plain(shared.server, their_token) as theirs,
    ):
        build = await started(mine, start_body(shared.server))
        yield Two(shared.server, mine, theirs, their_token, build)
        await cancelled(mine, build.build_id)


Ask = Callable[[httpx2.AsyncClient, str], AbstractAsyncContextManager[httpx2.Response]]
BUILD_CALLS: dict[str, tuple[str, str, dict[str, object] | None]] = {
    "progress": ("GET", "", None),
    "events": ("GET", "/events", None),
    "log": ("GET", "/log", None),
    "manifest": ("GET", "/manifest", None),
    "recording": ("GET", "/recording", None),
    "cancel": ("POST", "/cancel", {}),
    "extend": ("POST", "/extend", {"limit": "build_time", "by": "1m", "reason": "more"}),
}


@pytest.mark.parametrize("call", BUILD_CALLS)
async def test_a_build_of_another_principal_is_answered_as_one_that_never_was(
    two: Two, call: str
) -> None:
    method, path, body = BUILD_CALLS[call]
    answers = []
    for build_id in (two.build.build_id, NEVER):
        response = await two.theirs.request(method, f"/v1/builds/{build_id}{path}", json=body)
        refused(response, 404, ErrorCode.UNKNOWN_BUILD)
        answers.append(response.text.replace(build_id, "ID"))
    assert answers[0] == answers[1]
    mine = await two.mine.get(f"/v1/builds/{two.build.build_id}")
    assert not Snapshot.model_validate_json(mine.content).ended


async def test_a_list_shows_ones_own_builds_alone(two: Two) -> None:
    mine = BuildList.model_validate_json((await two.mine.get("/v1/builds")).content)
    theirs = BuildList.model_validate_json((await two.theirs.get("/v1/builds")).content)
    assert [build.build_id for build in mine.builds] == [two.build.build_id]
    assert theirs == BuildList(builds=[])


async def test_a_session_of_another_principal_is_unknown(two: Two) -> None:
    opened = await two.mine.post("/v1/sessions", json={"gpu_time": "1m"})
    session_id = Session.model_validate_json(opened.content).session_id
    refused(await two.theirs.get(f"/v1/sessions/{session_id}"), 404, ErrorCode.UNKNOWN_SESSION)
    listed = await two.theirs.get(f"/v1/builds?session_id={session_id}")
    refused(listed, 404, ErrorCode.UNKNOWN_SESSION)
    body = start_body(two.server)
    body["request"] = {**body["request"], "session_id": session_id}
    refused(await two.theirs.post("/v1/builds", json=body), 404, ErrorCode.UNKNOWN_SESSION)
    defaults = [
        Session.model_validate_json((await http.get("/v1/sessions/default")).content).session_id
        for http in (two.mine, two.theirs)
    ]
    assert defaults[0] != defaults[1]


async def test_an_idempotency_key_is_the_principals_own(two: Two) -> None:
    body = start_body(two.server, "quick", speed=40.0)
    body["request"] = {**body["request"], "idempotency_key": "k"}
    other = start_body(two.server, "quick", speed=40.0)
    other["request"] = {**other["request"], "idempotency_key": "k"}
    first = await started(two.mine, body)
    second = await started(two.theirs, other)
    assert first.build_id != second.build_id
    assert (await started(two.mine, body)).build_id == first.build_id
    for http, build in ((two.mine, first), (two.theirs, second)):
        await cancelled(http, build.build_id)


async def test_an_output_that_another_principal_writes_to_is_busy_without_naming_its_build(
    two: Two,
) -> None:
    body = start_body(two.server)
    body["request"] = {
        **body["request"],
        "output": Path(str(two.build.model)).with_suffix(".engine").name,
    }
    busy = await two.theirs.post("/v1/builds", json=body)
    refused(busy, 409, ErrorCode.OUTPUT_BUSY)
    assert two.build.build_id not in busy.text


@pytest.mark.parametrize("mode", MODES)
async def test_agents_do_not_see_each_others_builds(two: Two, mode: Mode) -> None:
    async with agent(two.server, two.their_token, mode) as other:
        for tool, more in (
            ("get_progress", {}),
            ("cancel_build", {}),
            ("get_log", {}),
            ("extend_build", {"limit": "build_time", "by": "1m", "reason": "more"}),
        ):
            hidden = await other.refusal(tool, build_id=two.build.build_id, **more)
            never = await other.refusal(tool, build_id=NEVER, **more)
            assert hidden.code is ErrorCode.UNKNOWN_BUILD
            assert hidden.message.replace(two.build.build_id, NEVER) == never.message
        listed = await other.call("list_builds")
        assert BuildList.model_validate(listed.structured_content).builds == []


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_and_a_program_with_tokens_of_one_principal_share_its_builds(
    shared: Shared, nothing_left: None, mode: Mode
) -> None:
    name = next(shared.names)
    one, other = (token_for(shared.server.state, name) for _ in range(2))
    async with plain(shared.server, one) as http, agent(shared.server, other, mode) as client:
        build = await started(http, start_body(shared.server))
        seen = await client.snapshot("get_progress", build_id=build.build_id)
        assert not seen.ended
        ended = await client.snapshot("cancel_build", build_id=build.build_id, wait_s=30)
        assert ended.state is State.CANCELLED


async def test_an_older_clients_session_answers_to_the_principal_that_opened_it_alone(
    shared: Shared,
) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accept = {"Accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with (
        plain(shared.server, shared.token()) as mine,
        plain(shared.server, shared.token()) as theirs,
    ):
        opened = await mine.post("/mcp", json=hello, headers=accept)
        assert opened.status_code == 200, opened.text
        session = {**accept, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await mine.post("/mcp", json=ready, headers=session)).status_code == 202
        assert (await theirs.post("/mcp", json=call, headers=session)).status_code == 404
        assert (await theirs.delete("/mcp", headers=session)).status_code == 404
        assert "start_build" in (await mine.post("/mcp", json=call, headers=session)).text


async def test_a_token_is_good_until_it_is_revoked_and_no_longer(shared: Shared) -> None:
    token = shared.token()
    async with plain(shared.server, token) as http, agent(shared.server, token) as client:
        assert (await http.get("/v1/builds")).status_code == 200
        revoke_token(shared.server.state, token.split("_")[1])
        refused(await http.get("/v1/builds"), 401, ErrorCode.UNAUTHENTICATED)
        with pytest.raises(MCPError, match="error response"):
            await client.call("list_builds")


async def test_a_caller_names_the_policies_of_its_token_and_no_others(
    shared: Shared, nothing_left: None
) -> None:
    async with plain(shared.server, shared.token("ci", "interactive")) as http:
        listed = PolicyList.model_validate_json((await http.get("/v1/policies")).content)
        assert [(p.name, p.is_default) for p in listed.policies] == [
            ("ci", True),
            ("interactive", False),
        ]
        body = start_body(shared.server)
        request = body["request"]
        for policy in ("overnight", "default", "./ci.toml", "/etc/passwd"):
            body["request"] = {**request, "policy": policy}
            answer = refused(
                await http.post("/v1/builds", json=body), 403, ErrorCode.POLICY_NOT_ALLOWED
            )
            assert answer.error.details["valid"] == ["ci", "interactive"]
            opened = await http.post("/v1/sessions", json={"policy": policy})
            refused(opened, 403, ErrorCode.POLICY_NOT_ALLOWED)
        default = Session.model_validate_json((await http.get("/v1/sessions/default")).content)
        assert default.policy == "ci"
        build = await started(http, {"request": request})
        assert build.policy == "ci"
        await cancelled(http, build.build_id)
        opened = await http.post("/v1/sessions", json={})
        assert Session.model_validate_json(opened.content).policy == "ci"
        opened = await http.post("/v1/sessions", json={"policy": "interactive"})
        assert Session.model_validate_json(opened.content).policy == "interactive"


async def test_a_token_without_policies_has_the_servers_own(shared: Shared) -> None:
    async with plain(shared.server, shared.token()) as http:
        listed = PolicyList.model_validate_json((await http.get("/v1/policies")).content)
        assert [(p.name, p.is_default) for p in listed.policies] == [("default", True)]
        opened = await http.post("/v1/sessions", json={"policy": "overnight"})
        refused(opened, 403, ErrorCode.POLICY_NOT_ALLOWED)


async def test_a_session_under_a_policy_that_this_token_may_not_name_takes_no_builds_of_it(
    shared: Shared,
) -> None:
    name = next(shared.names)
    wide, narrow = (token_for(shared.server.state, name, p) for p in ("overnight", "ci"))
    async with plain(shared.server, wide) as first, plain(shared.server, narrow) as second:
        opened = Session.model_validate_json((await first.post("/v1/sessions", json={})).content)
        assert opened.policy == "overnight"
        body = start_body(shared.server)
        body["request"] = {**body["request"], "session_id": opened.session_id}
        refused(await second.post("/v1/builds", json=body), 403, ErrorCode.POLICY_NOT_ALLOWED)
        # Nor under a policy of its own: the session's budget and slots would be used all the same.
        body["request"] = {**body["request"], "policy": "ci"}
        refused(await second.post("/v1/builds", json=body), 403, ErrorCode.POLICY_NOT_ALLOWED)


async def test_what_a_front_end_of_the_host_may_say_is_refused(shared: Shared) -> None:
    async with plain(shared.server, shared.token()) as http:
        body = start_body(shared.server)
        body["front_end"] = {"roots": ["/"]}
        refused(await http.post("/v1/builds", json=body), 422, ErrorCode.INVALID_ARGUMENT)
        for method, path in (("GET", "/v1/hello"), ("GET", "/v1/attach"), ("POST", "/v1/stop")):
            assert (await http.request(method, path)).status_code == 404


async def test_the_supervisor_is_not_stopped_while_builds_of_any_principal_run(two: Two) -> None:
    with pytest.raises(Refusal) as told:
        await stop(two.server.state)
    assert told.value.info.code is ErrorCode.BUILDS_LIVE
    assert told.value.info.details["builds"] == [two.build.build_id]


async def test_the_local_user_has_builds_of_its_own(two: Two) -> None:
    socket = find_socket(two.server.state)
    async with RemoteService(socket, FrontEnd(roots=[str(two.server.root)])) as local:
        assert (await local.list_builds()).builds == []
        with pytest.raises(Refusal) as told:
            await local.progress(two.build.build_id)
    assert told.value.info.code is ErrorCode.UNKNOWN_BUILD


async def test_who_has_its_share_of_streams_is_refused_and_others_are_served(
    shared: Shared,
) -> None:
    async def listen(token: str) -> Client:
        http = await open_all.enter_async_context(http_client(token, None))
        transport = streamable_http_client(f"{shared.server.url}/mcp", http_client=http)
        return await open_all.enter_async_context(Client(transport))

    def stream(client: Client) -> AbstractAsyncContextManager[object]:
        return client.listen(resource_subscriptions=["policy://default"])

    async with AsyncExitStack() as open_all:
        mine, theirs = await listen(shared.token()), await listen(shared.token())
        with anyio.fail_after(60):
            for _ in range(MAX_STREAMS_OF_ONE):
                await open_all.enter_async_context(stream(mine))
            with pytest.raises(MCPError) as caught:
                await open_all.enter_async_context(stream(mine))
            assert caught.value.error.data["code"] == ErrorCode.QUEUE_FULL.value
            assert caught.value.error.data["details"] == {"max_streams": MAX_STREAMS_OF_ONE}
            await open_all.enter_async_context(stream(theirs))


async def test_what_is_too_long_is_refused_in_a_line(two: Two) -> None:
    long = "9" * 100_000
    build = f"/v1/builds/{two.build.build_id}"
    body = start_body(two.server)
    request = body["request"]
    bodies: list[tuple[str, dict[str, object]]] = [
        (f"{build}/extend", {"limit": "build_time", "by": f"{long}s", "reason": "more"}),
        (f"{build}/extend", {"limit": long, "by": "1m", "reason": "more"}),
        ("/v1/sessions", {"gpu_time": f"{long}s"}),
        ("/v1/builds", {"request": {**request, "limits": {long: "1m"}}}),
        ("/v1/builds", {"request": {**request, "limits": {"phase_time": {long: "1m"}}}}),
        ("/v1/builds", {"request": {**request, "options": {long: 1}}}),
    ]
    for path, asked in bodies:
        response = await two.mine.post(path, json=asked)
        refused(response, 422, ErrorCode.INVALID_ARGUMENT)
        assert len(response.content) < 1000, path
    ended = await two.mine.post(f"{build}/cancel?wait_s=30", json={"reason": long})
    assert ended.status_code == 200, ended.text
    full = await two.mine.get(f"{build}?detail=full")
    notes = Snapshot.model_validate_json(full.content).notes
    assert notes
    assert max(map(len, notes)) < 300


async def test_plugins_that_are_not_allowed_are_told_in_a_line(two: Two) -> None:
    body = start_body(two.server)
    plugins = [f"{number:02}{'x' * 1000}.so" for number in range(64)]
    body["request"] = {**body["request"], "options": {"plugins": plugins}}
    response = await two.mine.post("/v1/builds", json=body)
    refused(response, 403, ErrorCode.PLUGIN_NOT_ALLOWED)
    assert len(response.content) < 3000


@pytest.mark.parametrize("path", ["/v1/builds", "/mcp"])
@pytest.mark.parametrize("nested", [b"[", b'{"a":'], ids=["lists", "objects"])
async def test_a_body_nested_deeper_than_any_parser_goes_is_refused(
    two: Two, path: str, nested: bytes
) -> None:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    response = await two.mine.post(path, content=nested * 8000, headers=headers)
    assert 400 <= response.status_code < 500, response.text
    assert (await two.mine.get("/v1/builds")).status_code == 200
