"""Who and what is turned away from a server over HTTP, before anything else sees it."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx2
import pytest

from tests.integration.http_serving import (
    WebServer,
    agent,
    bearer,
    plain,
    raw,
    refused,
    token_for,
    web_server,
)
from trt_agent_tools.api.gate import OPEN_PATHS
from trt_agent_tools.api.strict import MAX_BODY_BYTES
from trt_agent_tools.api.tokens import PREFIX, TOKENS
from trt_agent_tools.model.errors import ErrorCode

pytestmark = pytest.mark.anyio

PATHS = ("/v1/builds", "/mcp", "/openapi.json", "/metrics", "/nowhere")


@dataclass(frozen=True)
class Guarded:
    server: WebServer
    token: str

    @property
    def host(self) -> str:
        return self.server.url.removeprefix("http://")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("gate").resolve()
    (folder / "root").mkdir()
    token = token_for(folder / "state", "caller")
    allowed = ("--allow-host", "builds.example", "--allow-origin", "https://pages.example")
    with web_server(folder / "root", folder / "state", *allowed) as server:
        yield Guarded(server, token)


@pytest.fixture
async def known(guarded: Guarded) -> AsyncIterator[httpx2.AsyncClient]:
    async with plain(guarded.server, guarded.token) as http:
        yield http


@pytest.fixture
async def unknown(guarded: Guarded) -> AsyncIterator[httpx2.AsyncClient]:
    async with plain(guarded.server) as http:
        yield http


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_served_without_a_token(unknown: httpx2.AsyncClient, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        response = await unknown.request(method, path)
        refused(response, 401, ErrorCode.UNAUTHENTICATED)
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="trt-agent-tools"'


async def test_whether_a_server_is_well_and_ready_is_told_to_everybody(
    unknown: httpx2.AsyncClient,
) -> None:
    for path in ("/healthz", "/readyz"):
        response = await unknown.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
        assert (await unknown.get(f"{path}/")).status_code != 200


def garbage(token: str) -> dict[str, str]:
    token_id, secret = token.removeprefix(PREFIX).split("_", 1)
    return {
        "another secret": f"Bearer {PREFIX}{token_id}_{'A' * len(secret)}",
        "another id": f"Bearer {PREFIX}{'0' * len(token_id)}_{secret}",
        "the secret alone": f"Bearer {secret}",
        "cut short": f"Bearer {token[:-1]}",
        "with more": f"Bearer {token}A",
        "another scheme": f"Basic {token}",
        "no scheme": token,
        "nothing": "Bearer",
        "far too long": f"Bearer {'A' * 9000}",
        "not ASCII": "Bearer tökén",
    }


@pytest.mark.parametrize("kind", garbage(f"{PREFIX}000000000000_{'B' * 43}"))
async def test_what_is_no_token_lets_nobody_in(
    guarded: Guarded, unknown: httpx2.AsyncClient, kind: str
) -> None:
    value = garbage(guarded.token)[kind].encode()
    response = await unknown.get("/v1/builds", headers=[(b"Authorization", value)])
    refused(response, 401, ErrorCode.UNAUTHENTICATED)
    assert response.headers["WWW-Authenticate"].startswith("Bearer ")


async def test_two_tokens_in_one_request_let_nobody_in(
    guarded: Guarded, unknown: httpx2.AsyncClient
) -> None:
    value = f"Bearer {guarded.token}"
    response = await unknown.get(
        "/v1/builds", headers=[("Authorization", value), ("Authorization", value)]
    )
    refused(response, 401, ErrorCode.UNAUTHENTICATED)


@pytest.mark.parametrize("path", ["/v1/builds", "/healthz", "/mcp"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "builds.example.evil"]
)
async def test_a_request_for_a_host_that_this_is_not_is_turned_away(
    guarded: Guarded, known: httpx2.AsyncClient, path: str, host: str
) -> None:
    port = guarded.host.rpartition(":")[2]
    response = await known.get(path, headers={"Host": host.format(port=port)})
    refused(response, 421, ErrorCode.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "host",
    [
        "localhost:{port}",
        "LOCALHOST:{port}",
        "[::1]:{port}",
        "builds.example",
        "builds.example:8443",
    ],
)
async def test_a_server_answers_to_its_own_names_and_those_that_its_operator_gave(
    guarded: Guarded, known: httpx2.AsyncClient, host: str
) -> None:
    port = guarded.host.rpartition(":")[2]
    response = await known.get("/v1/builds", headers={"Host": host.format(port=port)})
    assert response.status_code == 200, response.text


async def test_two_hosts_in_one_request_are_turned_away(guarded: Guarded) -> None:
    request = (
        f"GET /healthz HTTP/1.1\r\nHost: {guarded.host}\r\nHost: evil.example\r\n"
        "Connection: close\r\n\r\n"
    )
    assert (await raw(guarded.server, request.encode())).status in {400, 421}


@pytest.mark.parametrize("path", ["/v1/builds", "/healthz", "/mcp"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://pages.example:444"])
async def test_pages_of_other_origins_are_turned_away(
    known: httpx2.AsyncClient, path: str, origin: str
) -> None:
    response = await known.get(path, headers={"Origin": origin})
    refused(response, 403, ErrorCode.INVALID_ARGUMENT)


async def test_pages_of_the_servers_own_and_allowed_origins_are_served(
    guarded: Guarded, known: httpx2.AsyncClient
) -> None:
    for origin in (guarded.server.url, "https://pages.example"):
        response = await known.get("/v1/builds", headers={"Origin": origin})
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("path", ["/v1/builds", "/mcp"])
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    guarded: Guarded, path: str
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {guarded.host}\r\nAuthorization: Bearer {guarded.token}\r\n"
        "Content-Type: application/json\r\n"
    )
    announced = f"{head}Content-Length: {MAX_BODY_BYTES + 1}\r\n\r\n"
    answered = await raw(guarded.server, announced.encode())
    assert answered.status == 413
    assert "invalid_argument" in answered.text
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
    chunks = MAX_BODY_BYTES // 0x10000 + 1
    answered = await raw(guarded.server, chunked + chunk * chunks)
    assert answered.status == 413


@pytest.mark.parametrize("path", ["/v1/builds", "/mcp"])
async def test_a_body_of_somebody_unknown_is_not_read_at_all(guarded: Guarded, path: str) -> None:
    request = (
        f"POST {path} HTTP/1.1\r\nHost: {guarded.host}\r\nContent-Length: 1000\r\n"
        "Content-Type: application/json\r\n\r\n"
    )
    answered = await raw(guarded.server, request.encode())
    assert answered.status == 401
    assert "connection: close" in answered.text.lower()


async def test_where_a_proxy_says_a_request_came_from_is_not_believed(
    unknown: httpx2.AsyncClient,
) -> None:
    forwarded = {
        "X-Forwarded-For": "127.0.0.1",
        "X-Forwarded-Host": "localhost",
        "Forwarded": "for=1",
    }
    refused(await unknown.get("/v1/builds", headers=forwarded), 401, ErrorCode.UNAUTHENTICATED)


async def test_tokens_that_cannot_be_read_let_nobody_in_until_they_can(
    guarded: Guarded, known: httpx2.AsyncClient, unknown: httpx2.AsyncClient
) -> None:
    path = guarded.server.state / TOKENS
    good = path.read_bytes()
    try:
        path.write_text('{"version": 1, "tokens": [{"id"')
        refused(await known.get("/v1/builds"), 503, ErrorCode.CANNOT_AUTHENTICATE)
        assert (await unknown.get("/healthz")).status_code == 200
    finally:
        path.write_bytes(good)
    assert (await known.get("/v1/builds")).status_code == 200
    assert any(TOKENS in line and "damaged" in line for line in guarded.server.told)


async def test_the_schema_tells_that_callers_show_a_token(known: httpx2.AsyncClient) -> None:
    schema = (await known.get("/openapi.json")).json()
    assert schema["components"]["securitySchemes"] == {
        "HTTPBearer": {"type": "http", "scheme": "bearer"}
    }
    for path, methods in schema["paths"].items():
        for said in methods.values():
            assert ("security" in said) is (path not in OPEN_PATHS), path


async def test_no_token_and_no_session_id_reaches_the_log(guarded: Guarded) -> None:
    async with agent(guarded.server, guarded.token, "legacy") as client:
        await client.call("list_builds")
    async with plain(guarded.server) as http:
        await http.get("/v1/builds", headers=bearer(f"{guarded.token}x"))
    told = "".join(guarded.server.told)
    assert guarded.token.rpartition("_")[2] not in told
    assert "session ID" not in told
