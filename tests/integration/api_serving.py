"""The API served in this process on a real socket, over a real supervisor."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2

from trt_agent_tools.api.access import always
from trt_agent_tools.api.client import RemoteService
from trt_agent_tools.api.control import Control
from trt_agent_tools.api.listener import Listener
from trt_agent_tools.api.routes import make_app
from trt_agent_tools.model.request import Backend, FrontEnd, StartRequest
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

DATA = Path(__file__).parents[1] / "data"
FAST = 40.0
"""Plays the quick recording in a moment."""


@dataclass(frozen=True)
class Served:
    """A supervisor, and ways to it."""

    local: Supervisor
    control: Control
    remote: RemoteService
    http: httpx2.AsyncClient
    listener: Listener
    front_end: FrontEnd


@asynccontextmanager
async def served(root: Path, state: Path) -> AsyncIterator[Served]:
    """Serve until the block is left, as the host process does."""
    config = SupervisorConfig(state, (root,), enable_replay=True)
    front_end = FrontEnd(roots=[str(root)], enable_replay=True)
    async with anyio.create_task_group() as tasks:
        async with Supervisor(config) as local:
            control = Control(local)
            path = state / "supervisor.sock"
            listener = Listener(make_app(always(local), control=control), path, tasks)
            listener.open()
            try:
                async with (
                    RemoteService(path, front_end) as remote,
                    httpx2.AsyncClient(
                        transport=httpx2.AsyncHTTPTransport(uds=str(path)), base_url="http://s"
                    ) as http,
                ):
                    yield Served(local, control, remote, http, listener, front_end)
            finally:
                control.stopping.set()
        listener.close()


def recording(
    root: Path, name: str = "silent_step", *, speed: float = 1.0, **settings: object
) -> StartRequest:
    """Write a recording into the root and return the request that plays it."""
    number = sum(1 for _ in root.iterdir())
    model = root / f"{name}{number}.jsonl"
    first = {"type": "replay", "speed": speed, **settings}
    model.write_text(json.dumps(first) + "\n" + (DATA / f"{name}.jsonl").read_text())
    return StartRequest(model=model.name, backend=Backend.REPLAY)
