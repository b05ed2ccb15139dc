"""The MCP server in this process, over a real supervisor, and clients of both eras of the protocol."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from mcp.client import Client
from mcp.client.extension import ClientExtension
from mcp.client.session import ElicitationFnT

from tests.acceptance.agent import Agent
from tests.integration.api_serving import recording
from trt_agent_tools.mcp_server.access import always
from trt_agent_tools.mcp_server.server import make_server
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

Mode = Literal["auto", "legacy"]
MODES: tuple[Mode, ...] = ("auto", "legacy")

EARLY = """
[rules]
build_time = { limit = "40s", ceiling = "8h", warn_at = 0.05 }
queue_time = { limit = "40s", ceiling = "8h", warn_at = 0.05 }
[session]
extension_total = "8h"
"""
"""A policy that warns after 2 s of 40: time enough to answer, on a machine of any speed."""


@asynccontextmanager
async def agent_of(
    root: Path,
    state: Path,
    mode: Mode = "auto",
    *,
    asked: ElicitationFnT | None = None,
    extensions: list[ClientExtension] | None = None,
) -> AsyncIterator[Agent]:
    """Be the client of a server whose supervisor takes recordings, and warns early."""
    policy = root.parent / "early.toml"
    policy.write_text(EARLY)
    config = SupervisorConfig(state, (root,), policy=str(policy), enable_replay=True)
    async with (
        Supervisor(config) as service,
        Client(
            make_server(always(service)),
            mode=mode,
            elicitation_callback=asked,
            extensions=extensions,
        ) as client,
    ):
        yield Agent(client)


def played(
    root: Path, *, speed: float = 1.0, actions: list[dict[str, object]] | None = None
) -> dict[str, object]:
    """Write a recording into the root and return the arguments that start it."""
    request = recording(root, speed=speed, actions=actions or [])
    return {"model": request.model, "backend": "replay"}
