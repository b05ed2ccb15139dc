"""A real MCP client that talks to the real server over stdio."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.snapshot import Snapshot


class Refused(BaseModel):
    error: ErrorInfo


class Agent:
    """Calls tools as an agent would, and reads answers as the models that the server promises."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: object) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def snapshot(self, tool: str, **arguments: object) -> Snapshot:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        return Snapshot.model_validate(result.structured_content)

    async def refusal(self, tool: str, **arguments: object) -> ErrorInfo:
        """Call a tool that must refuse; its text says what the structure says."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.structured_content
        error = Refused.model_validate(result.structured_content).error
        text = result.content[0]
        assert isinstance(text, TextContent)
        assert error.code.value in text.text
        assert error.message in text.text
        assert error.hint, "a refusal tells what to do"
        return error

    async def until(self, build_id: str, condition: str, *, within_s: float = 60) -> Snapshot:
        """Poll without pause until the running phase's path contains `condition`, or the end."""
        with anyio.fail_after(within_s):
            while True:
                snapshot = await self.snapshot("get_progress", build_id=build_id)
                if snapshot.ended or condition in (snapshot.current or ""):
                    return snapshot

    async def end(self, build_id: str, *, within_s: float = 120) -> Snapshot:
        """Wait for the end as an agent does, with `wait_s`, and return the full snapshot."""
        with anyio.fail_after(within_s):
            snapshot = await self.snapshot("get_progress", build_id=build_id)
            while not snapshot.ended:
                snapshot = await self.snapshot(
                    "get_progress", build_id=build_id, wait_s=20, since_seq=snapshot.seq
                )
            return await self.snapshot("get_progress", build_id=build_id, detail="full")


class Serve(Protocol):
    def __call__(
        self, *options: str, environment: dict[str, str] | None = None
    ) -> AbstractAsyncContextManager[Agent]: ...


def server(root: Path, state: Path, *options: str) -> list[str]:
    """Return the arguments of Python that start a server on a root and a state folder."""
    return [
        *("-m", "trt_agent_tools", "serve"),
        *("--root", str(root), "--state-dir", str(state)),
        *options,
    ]


@asynccontextmanager
async def connected(
    arguments: list[str], environment: dict[str, str] | None = None
) -> AsyncIterator[Agent]:
    """Start a server and be its client."""
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments, env={**os.environ, **(environment or {})}
    )
    async with Client(stdio_client(parameters)) as client:
        yield Agent(client)


@pytest.fixture
def serve(root: Path, tmp_path: Path, nothing_left: None) -> Serve:
    """Start `trt-agent-tools serve` on a root and a state folder of the test's own."""

    def start(
        *options: str, environment: dict[str, str] | None = None
    ) -> AbstractAsyncContextManager[Agent]:
        arguments = server(root, tmp_path / "state", "--embedded", *options)
        return connected(arguments, environment)

    return start


def size(model: BaseModel) -> int:
    """Return the bytes of a model as compact JSON."""
    return len(json.dumps(model.model_dump(mode="json", exclude_none=True), separators=(",", ":")))
