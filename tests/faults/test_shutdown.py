"""The front end goes, in every way there is; its builds go with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import anyio
import psutil
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.conftest import Models, processes_of_this_run
from tests.faults.conftest import GRACES, Action, Play

pytestmark = pytest.mark.anyio


Popen: TypeAlias = "subprocess.Popen[bytes]"
POLL_S = 0.02
"""Between looks at what another process does: it tells nobody. Every loop has a deadline."""


class Server:
    """A server on pipes, spoken to as an older client does: with plain lines."""

    def __init__(self, arguments: list[str], state: Path) -> None:
        self.arguments = arguments
        self._builds = state / "builds"
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    async def start_build(self, model: str, backend: str) -> None:
        call = {"name": "start_build", "arguments": {"model": model, "backend": backend}}
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        }
        await self._request(1, "initialize", hello)
        await self._request(2, "tools/call", call)

    async def _request(self, number: int, method: str, parameters: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        with anyio.fail_after(15):
            await anyio.to_thread.run_sync(self.process.stdout.readline)

    async def worker_in(self, phase: str) -> psutil.Process:
        """Return the worker once its build has begun `phase`."""
        with anyio.fail_after(30):
            while not any(
                phase in file.read_text() for file in self._builds.glob("*/events.jsonl")
            ):
                await anyio.sleep(POLL_S)
        (worker,) = [p for p in processes_of_this_run() if p.ppid() == self.process.pid]
        return worker

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def server(root: Path, tmp_path: Path, nothing_left: None) -> Iterator[Server]:
    policy = tmp_path / "graces.toml"
    policy.write_text(GRACES)
    state = tmp_path / "state"
    running = Server(
        [
            *("-m", "trt_agent_tools", "serve", "--embedded", "--enable-replay"),
            *("--root", str(root), "--state-dir", str(state), "--policy", str(policy)),
        ],
        state,
    )
    yield running
    running.close()


async def exit_of(process: psutil.Process) -> None:
    """Return when a process that is no child of this one has ended."""
    try:
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            await anyio.sleep(POLL_S)
    except psutil.NoSuchProcess:
        return


def close_stdin(process: Popen) -> None:
    assert process.stdin
    process.stdin.close()


def send(number: signal.Signals) -> Callable[[Popen], None]:
    return lambda process: process.send_signal(number)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        pytest.param(close_stdin, 0, id="end of stdin"),
        pytest.param(send(signal.SIGTERM), 0, id="SIGTERM"),
        pytest.param(send(signal.SIGINT), 0, id="SIGINT"),
        pytest.param(send(signal.SIGKILL), -signal.SIGKILL, id="SIGKILL"),
    ],
)
@pytest.mark.parametrize("deaf", [False, True], ids=["obedient", "ignores SIGTERM"])
async def test_a_silent_build_ends_with_its_server(
    server: Server, play: Play, end: Callable[[Popen], None], status: int, deaf: bool
) -> None:
    deafness: Action = {"at": 0, "do": "ignore_sigterm" if deaf else "print", "text": "hello"}
    if deaf:
        del deafness["text"]
    request = play(deafness, {"at": 1.2, "do": "hang_idle"}, speed=5)
    await server.start_build(Path(request.model).name, "replay")
    worker = await server.worker_in("Determining refit engines")
    end(server.process)
    with anyio.fail_after(10):
        assert await anyio.to_thread.run_sync(server.process.wait) == status
        await exit_of(worker)


@pytest.mark.tensorrt_rtx
async def test_a_real_build_in_its_silent_step_ends_when_the_server_is_killed(
    server: Server, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    await server.start_build("silent.onnx", "auto")
    worker = await server.worker_in("Determining refit engines")
    server.process.kill()
    with anyio.fail_after(5):
        await exit_of(worker)


async def test_a_stopped_worker_ends_with_its_server_and_its_half_file_is_swept_at_the_next_start(
    server: Server, root: Path, tmp_path: Path, play: Play
) -> None:
    request = play({"at": 1.2, "do": "hang_idle"}, speed=5)
    await server.start_build(Path(request.model).name, "replay")
    worker = await server.worker_in("Determining refit engines")
    # What a worker that is killed in the middle of writing leaves, at the worker's own name.
    (folder,) = (tmp_path / "state" / "builds").iterdir()
    half = root / f".{Path(request.model).stem}.engine.{folder.name}.partial"
    half.write_bytes(b"half an engine")
    # A stopped process reads no end of file: the kernel's own signal has to end it.
    worker.send_signal(signal.SIGSTOP)
    server.process.kill()
    with anyio.fail_after(5):
        await exit_of(worker)
    assert half.exists()
    parameters = StdioServerParameters(
        command=sys.executable, args=server.arguments, env=dict(os.environ)
    )
    async with Client(stdio_client(parameters)) as client:
        await client.list_tools()
        assert not half.exists()
