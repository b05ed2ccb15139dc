"""`serve --http` in a process of its own, and clients of both kinds."""

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance.agent import Agent
from tests.integration.api_serving import recording
from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.api.tokens import add_token
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.snapshot import Snapshot

LISTENS = " listens on "
LISTENS_S = 40.0
ENDS_S = 20.0
Mode = Literal["auto", "legacy"]


START = """
import trt_agent_tools
trt_agent_tools.__version__ = {version!r} or trt_agent_tools.__version__
from trt_agent_tools.cli.main import main
main()
"""


class WebServer:
    """A server that has told where it listens; with `version` it believes to be of that version."""

    def __init__(self, root: Path, state: Path, *options: str, version: str | None = None) -> None:
        self.root = root
        self.state = state
        self.told: list[str] = []
        self._listens = threading.Event()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", START.format(version=version), "serve", "--http"),
                *("--port", "0"),
                *("--root", str(root), "--state-dir", str(state), "--enable-replay", *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._listens.wait(LISTENS_S), self.told
        lines = [line for line in self.told if LISTENS in line]
        if not lines:
            self.close()
            raise AssertionError(f"it does not listen: {self.told}")
        self.url = lines[0].split(LISTENS)[1].split()[0]

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.told.append(line)
            if LISTENS in line:
                self._listens.set()
        self._listens.set()
        # Whoever watches for its end by its pid is to see it gone.
        self.process.wait()

    def end(self) -> int:
        """Ask it to end, and return its exit status."""
        self.process.terminate()
        return self.process.wait(ENDS_S)

    def close(self) -> str:
        """Leave nothing of it; return what it printed on standard output."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(ENDS_S)
        assert self.process.stdout
        with self.process.stdout as stdout:
            printed = stdout.read()
        if self.process.stderr:
            self.process.stderr.close()
        return printed


@contextmanager
def web_server(
    root: Path, state: Path, *options: str, version: str | None = None
) -> Iterator[WebServer]:
    """Serve until the block is left; the server prints nothing on standard output."""
    server = WebServer(root, state, *options, version=version)
    try:
        yield server
    finally:
        printed = server.close()
    assert not printed


def token_for(state: Path, name: str, *policies: str) -> str:
    """Make a token of a principal."""
    return add_token(state, name, policies=list(policies)).text


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass
class Waits:
    """Counts the requests that wait and have been sent, to know when `expected` are on their way."""

    expected: int
    sent: int = 0
    all_sent: anyio.Event = field(default_factory=anyio.Event)

    async def note(self, request: httpx2.Request) -> None:
        """Look at a request that is about to be sent."""
        if "wait_s" in f"{request.url}{request.content.decode()}":
            request.extensions["trace"] = self._trace

    async def _trace(self, step: str, _: object) -> None:
        self.sent += step == "http11.send_request_body.complete"
        if self.sent == self.expected:
            self.all_sent.set()


def http_client(token: str | None, waits: Waits | None, url: str = "") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=url,
        headers=bearer(token) if token else {},
        timeout=60,
        limits=httpx2.Limits(max_connections=None),
        event_hooks={"request": [waits.note] if waits else []},
    )


@asynccontextmanager
async def plain(
    server: WebServer, token: str | None = None, waits: Waits | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client of the API."""
    async with http_client(token, waits, server.url) as http:
        yield http


@asynccontextmanager
async def agent(
    server: WebServer,
    token: str | None = None,
    mode: Mode = "auto",
    waits: Waits | None = None,
) -> AsyncIterator[Agent]:
    """Give a client of MCP."""
    async with (
        http_client(token, waits) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield Agent(client)


def start_body(
    server: WebServer, name: str = "silent_step", *, speed: float = 1.0
) -> dict[str, dict[str, object]]:
    """Write a recording into the root and return the body that starts it."""
    asked = recording(server.root, name, speed=speed, responsive=True)
    return {"request": asked.model_dump(mode="json", exclude_unset=True)}


async def started(http: httpx2.AsyncClient, body: dict[str, dict[str, object]]) -> Snapshot:
    """Start a build that is accepted."""
    response = await http.post("/v1/builds", json=body)
    assert response.status_code == 201, response.text
    return Snapshot.model_validate_json(response.content)


async def cancelled(http: httpx2.AsyncClient, build_id: str) -> Snapshot:
    """End a build and return when it has ended."""
    response = await http.post(f"/v1/builds/{build_id}/cancel?wait_s=30")
    assert response.status_code == 200, response.text
    snapshot = Snapshot.model_validate_json(response.content)
    assert snapshot.ended
    return snapshot


async def running(http: httpx2.AsyncClient, build_id: str, step: str) -> Snapshot:
    """Return when a build is in a step."""
    with anyio.fail_after(30):
        seq = 0
        while True:
            response = await http.get(f"/v1/builds/{build_id}?wait_s=10&since_seq={seq}")
            snapshot = Snapshot.model_validate_json(response.content)
            if step in (snapshot.current or ""):
                return snapshot
            assert not snapshot.ended
            seq = snapshot.seq


@dataclass(frozen=True)
class Answered:
    """What a raw connection was answered."""

    status: int
    text: str


async def raw(server: WebServer, request: bytes) -> Answered:
    """Send bytes, and read until the server closes."""
    address = httpx2.URL(server.url)
    with anyio.fail_after(20):
        async with await anyio.connect_tcp(address.host, address.port or 0) as stream:
            await stream.send(request)
            text = b""
            try:
                while True:
                    text += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    return Answered(int(text.split(b" ", 2)[1]), text.decode())


def refused(response: httpx2.Response, status: int, code: ErrorCode) -> ErrorAnswer:
    """Check that a refusal has the form that every one has."""
    assert response.status_code == status, response.text
    body = ErrorAnswer.model_validate_json(response.content)
    assert body.error.code is code
    assert body.error.message
    assert body.error.hint
    return body
