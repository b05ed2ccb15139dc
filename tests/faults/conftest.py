"""Builds that misbehave on demand, in real processes with real signals."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import pytest

from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

DATA = Path(__file__).parents[1] / "data"
GRACES = '[escalation]\ncancel_grace = "300ms"\nterminate_grace = "300ms"\n'

Action = dict[str, str | int | float | bool]


class Play(Protocol):
    def __call__(
        self, *actions: Action, recording: str = ..., speed: float = ..., label: str = ...
    ) -> StartRequest: ...


@pytest.fixture
def play(root: Path) -> Play:
    """Return a request for a replay that does `actions` at their times."""
    number = 0

    def request(
        *actions: Action, recording: str = "silent_step", speed: float = 1, label: str = "replay"
    ) -> StartRequest:
        nonlocal number
        number += 1
        settings = {"type": "replay", "speed": speed, "actions": list(actions)}
        model = root / f"{recording}{number}.jsonl"
        model.write_text(json.dumps(settings) + "\n" + (DATA / f"{recording}.jsonl").read_text())
        return StartRequest(model=str(model), backend=Backend.REPLAY, label=label)

    return request


class Watcher:
    """A supervisor and what a test asks of it, every wait with a deadline."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.service = supervisor

    async def start(self, request: StartRequest) -> str:
        return (await self.service.start(request)).build_id

    async def until(
        self, build_id: str, condition: Sequence[str] = (), *, within_s: float = 20
    ) -> Snapshot:
        """Poll until the running phase's path contains every part of `condition`, or the end."""
        with anyio.fail_after(within_s):
            while True:
                snapshot = await self.service.progress(build_id, detail=Detail.FULL)
                current = snapshot.current or ""
                if snapshot.ended or (current and all(part in current for part in condition)):
                    return snapshot
                await anyio.lowlevel.checkpoint()

    async def end(self, build_id: str, *, within_s: float = 20) -> Snapshot:
        with anyio.fail_after(within_s):
            snapshot = await self.service.progress(build_id)
            while not snapshot.ended:
                snapshot = await self.service.progress(build_id, wait_s=10, since_seq=snapshot.seq)
        return await self.service.progress(build_id, detail=Detail.FULL)

    async def cancel(self, build_id: str, *, at_once: bool = False) -> Snapshot:
        await self.service.cancel(build_id, at_once=at_once)
        return await self.end(build_id)


class Supervise(Protocol):
    def __call__(self, policy: str = ...) -> AbstractAsyncContextManager[Watcher]: ...


@pytest.fixture
def supervise(root: Path, tmp_path: Path, nothing_left: None) -> Supervise:
    @asynccontextmanager
    async def start(policy: str = GRACES) -> AsyncIterator[Watcher]:
        file = tmp_path / "policy.toml"
        file.write_text(policy)
        config = SupervisorConfig(tmp_path / "state", (root,), policy=str(file), enable_replay=True)
        async with Supervisor(config) as supervisor:
            yield Watcher(supervisor)

    return start
