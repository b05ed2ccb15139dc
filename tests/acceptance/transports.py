"""The one server behind every transport, and clients of both eras of the protocol.

A test that takes `serve` runs over all of `EVERYWHERE` unless it is marked: `over(...)` names the
connections that make sense for it, and why the others would tell nothing new.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import psutil
import pytest
from anyio.streams.text import TextReceiveStream
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.acceptance.agent import Agent, JudgingAgent
from tests.faults.test_shutdown import exit_of
from tests.hosts import ATTACHED, LONGEST_S
from trt_agent_tools.api.attach import stop
from trt_agent_tools.api.embedded import embedded
from trt_agent_tools.mcp_server.access import always
from trt_agent_tools.mcp_server.server import make_server
from trt_agent_tools.supervisor.config import SupervisorConfig


class Transport(str, Enum):
    MEMORY = "memory"
    STDIO = "stdio"
    ATTACHED = "attached"
    """Over stdio, the supervisor being a process of its own."""
    HTTP = "http"


class Era(str, Enum):
    NEWEST = "newest"
    LEGACY = "legacy"

    @property
    def mode(self) -> Literal["auto", "legacy"]:
        return "legacy" if self is Era.LEGACY else "auto"


@dataclass(frozen=True)
class Connection:
    """How a client reaches the server, and which revision of the protocol the two speak."""

    transport: Transport
    era: Era

    def __str__(self) -> str:
        return f"{self.transport.value}-{self.era.value}"


EVERYWHERE = tuple(Connection(transport, era) for transport in Transport for era in Era)
STDIO = Connection(Transport.STDIO, Era.NEWEST)
EACH_TRANSPORT = (
    *(Connection(transport, Era.NEWEST) for transport in Transport),
    Connection(Transport.STDIO, Era.LEGACY),
)
MANY_CLIENTS = tuple(each for each in EVERYWHERE if each.transport is not Transport.STDIO)
"""Where one supervisor has room for a second client."""


def over(*connections: Connection, reason: str) -> pytest.MarkDecorator:
    """Mark a test or a file that runs over these connections alone."""
    return pytest.mark.over(*connections, reason=reason)


Connect = Callable[[], AbstractAsyncContextManager[Agent]]
"""Connects one more client to a server that runs."""


@dataclass(frozen=True)
class Place:
    """The folders of a server: one that builds may use, and its state."""

    root: Path
    state: Path


def arguments(place: Place, *options: str) -> list[str]:
    """Return the arguments of Python that start a server."""
    folders = ("--root", str(place.root), "--state-dir", str(place.state))
    return ["-m", "trt_agent_tools", "serve", *folders, *options]


def serving(
    connection: Connection, place: Place, *options: str
) -> AbstractAsyncContextManager[Connect]:
    """Run a server with the options of `serve`, and everything that it starts, for the block's time."""
    start = {
        Transport.MEMORY: in_memory,
        Transport.STDIO: over_stdio,
        Transport.ATTACHED: through_the_supervisor,
        Transport.HTTP: over_http,
    }[connection.transport]
    return start(place, connection.era, *options)


@asynccontextmanager
async def in_memory(place: Place, era: Era, *options: str) -> AsyncIterator[Connect]:
    """Serve in this process, with no bytes between server and client."""
    async with embedded(_config(place, *options)) as service:
        server = make_server(always(service))
        yield lambda: _connected(Client(server, mode=era.mode))


@asynccontextmanager
async def over_stdio(place: Place, era: Era, *options: str) -> AsyncIterator[Connect]:
    """Let each client start its server, whose builds end with it. There is room for one at a time."""
    yield partial(over_pipes, arguments(place, "--embedded", *options), era)


@asynccontextmanager
async def through_the_supervisor(place: Place, era: Era, *options: str) -> AsyncIterator[Connect]:
    """Let each client start a front end of the one supervisor, which the first of them starts."""
    try:
        yield partial(over_pipes, arguments(place, *options), era, ATTACHED)
    finally:
        with anyio.CancelScope(shield=True), anyio.fail_after(LONGEST_S):
            if asked := await stop(place.state, force=True):
                await exit_of(psutil.Process(asked.pid))


@asynccontextmanager
async def over_http(place: Place, era: Era, *options: str) -> AsyncIterator[Connect]:
    """Serve on a port of this host that the server chooses."""
    async with http_server(place, *options) as url:
        yield lambda: _connected(Client(f"{url}/mcp", mode=era.mode))


@asynccontextmanager
async def http_server(place: Place, *options: str) -> AsyncIterator[str]:
    """Run `serve --http` without tokens and return its address."""
    listen = ("--http", "--host", "127.0.0.1", "--port", "0", "--no-auth")
    command = [sys.executable, *arguments(place, *listen, *options)]
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stdout=None)
    assert process.stderr
    lines = TextReceiveStream(process.stderr, errors="replace")
    async with anyio.create_task_group() as tasks:
        try:
            with anyio.fail_after(LONGEST_S):
                url = await _address(lines)
            # A server whose stderr nobody reads would stand still one day.
            tasks.start_soon(_drain, lines)
            yield url
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.terminate()
                with anyio.move_on_after(LONGEST_S) as late:
                    await process.wait()
                if late.cancelled_caught:
                    process.kill()
                await process.aclose()
            tasks.cancel_scope.cancel()
    assert process.returncode == 0, "the server ends in good order"


@asynccontextmanager
async def over_pipes(
    command: list[str], era: Era, environment: dict[str, str] | None = None
) -> AsyncIterator[Agent]:
    """Start Python with `command` and be the client on its standard streams."""
    parameters = StdioServerParameters(
        command=sys.executable, args=command, env={**os.environ, **(environment or {})}
    )
    async with _connected(Client(stdio_client(parameters), mode=era.mode)) as agent:
        yield agent


@asynccontextmanager
async def _connected(client: Client) -> AsyncIterator[Agent]:
    async with client:
        yield JudgingAgent(client)


def _config(place: Place, *options: str) -> SupervisorConfig:
    """Return what the command line makes of the options that tests give."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--enable-replay", action="store_true")
    parser.add_argument("--allow-plugin", type=Path, action="append", default=[])
    given = parser.parse_args(options)
    return SupervisorConfig(
        place.state,
        (place.root,),
        policy=given.policy,
        enable_replay=given.enable_replay,
        allowed_plugins=tuple(given.allow_plugin),
    )


async def _address(lines: TextReceiveStream) -> str:
    told = ""
    async for text in lines:
        told += text
        if found := re.search(r"(http://[^\s/]+:\d+)\S*\s", told):
            return found[1]
    raise AssertionError(f"the server ended without telling its address: {told}")


async def _drain(lines: TextReceiveStream) -> None:
    async for _ in lines:
        pass
