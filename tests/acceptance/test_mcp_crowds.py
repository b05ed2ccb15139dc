"""Clients of one supervisor that wait by the hundred, or do not read, hold no other client up."""

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.acceptance.conftest import ServeMany
from tests.acceptance.transports import (
    MANY_CLIENTS,
    Connection,
    Era,
    Place,
    Transport,
    arguments,
    over,
)
from tests.faults.conftest import GRACES, Play
from tests.faults.test_shutdown import POLL_S, Popen
from tests.hosts import ATTACHED
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import State

pytestmark = pytest.mark.anyio

WAITS = 200
SERVED_S = 15.0
"""Another client has all its answers within this, on a machine that is busy."""
UNREAD = 2000
PIPE_IS_FULL = 40_000
"""Messages fill the last of its pages in part."""


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    policy = tmp_path / "graces.toml"
    policy.write_text(GRACES)
    return ("--enable-replay", "--policy", str(policy))


@pytest.fixture
def hanging(play: Play) -> dict[str, object]:
    """Return the arguments of a build that runs until it is cancelled."""
    request = play({"at": 0.07, "do": "hang_idle"}, recording="quick")
    return {"model": Path(request.model).name, "backend": "replay"}


@over(*MANY_CLIENTS, reason="A server that its client starts has no other.")
async def test_two_hundred_waits_over_one_connection_leave_another_client_served(
    serve_many: ServeMany, options: tuple[str, ...], hanging: dict[str, object]
) -> None:
    answers: list[Snapshot] = []
    async with serve_many(*options) as connect, connect() as crowd, connect() as other:
        started = await crowd.snapshot("start_build", **hanging)
        running = await other.until(started.build_id, "Parsing")
        one = {"build_id": started.build_id}

        async def wait() -> None:
            since = running.seq + 1000
            answers.append(await crowd.snapshot("get_progress", **one, wait_s=40, since_seq=since))

        async with anyio.create_task_group() as waiting:
            for _ in range(WAITS):
                waiting.start_soon(wait)
            with anyio.fail_after(SERVED_S):
                for _ in range(5):
                    await other.snapshot("get_progress", **one)
                    await other.call("list_builds")
                assert not answers, "they wait"
                await other.snapshot("cancel_build", **one, wait_s=10)
            waiting.cancel_scope.deadline = anyio.current_time() + SERVED_S
    assert len(answers) == WAITS
    assert {answer.state for answer in answers} <= {State.CANCELLING, State.CANCELLED}


@pytest.fixture
def deaf(place: Place, options: tuple[str, ...]) -> Iterator[Popen]:
    """Start a front end whose client never reads what it is told."""
    process = subprocess.Popen(
        [sys.executable, *arguments(place, *options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ATTACHED},
    )
    yield process
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            stream.close()
    process.wait()


def ask_much(process: Popen, build_id: str) -> None:
    """Send more calls than their answers have room, as far as the pipe takes them."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "deaf", "version": "0"},
    }
    call = {"name": "get_progress", "arguments": {"build_id": build_id, "detail": "full"}}
    messages = [{"id": 0, "method": "initialize", "params": hello}]
    messages += [{"id": n, "method": "tools/call", "params": call} for n in range(1, UNREAD)]
    data = b"".join(
        json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages
    )
    assert process.stdin
    os.set_blocking(process.stdin.fileno(), False)
    while data:
        try:
            data = data[os.write(process.stdin.fileno(), data) :]
        except BlockingIOError:
            return


def unread_bytes(process: Popen) -> int:
    assert process.stdout
    (size,) = struct.unpack("i", fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, bytes(4)))
    return int(size)


@over(
    Connection(Transport.ATTACHED, Era.NEWEST),
    reason="It is about a front end's standard output; the HTTP server has its own test.",
)
async def test_a_client_that_does_not_read_holds_only_itself_up(
    serve_many: ServeMany, options: tuple[str, ...], hanging: dict[str, object], deaf: Popen
) -> None:
    async with serve_many(*options) as connect, connect() as other:
        started = await other.snapshot("start_build", **hanging)
        await other.until(started.build_id, "Parsing")
        ask_much(deaf, started.build_id)
        with anyio.fail_after(SERVED_S):
            # A full pipe tells nobody.
            while unread_bytes(deaf) < PIPE_IS_FULL:
                await anyio.sleep(POLL_S)
        with anyio.fail_after(SERVED_S):
            for _ in range(5):
                await other.snapshot("get_progress", build_id=started.build_id)
            ended = await other.snapshot("cancel_build", build_id=started.build_id, wait_s=10)
        assert ended.state is State.CANCELLED
        assert deaf.stdin
        assert deaf.stdout
        deaf.stdin.close()
        deaf.stdout.close()
        with anyio.fail_after(SERVED_S):
            await anyio.to_thread.run_sync(deaf.wait)
        assert not (await other.call("list_builds")).is_error
