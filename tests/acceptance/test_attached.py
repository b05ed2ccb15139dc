"""What holds when the supervisor is a process of its own: builds outlive whoever started them."""

import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from tests.acceptance.agent import Agent
from tests.acceptance.conftest import ServeMany
from tests.acceptance.transports import (
    Connect,
    Connection,
    Era,
    Place,
    Transport,
    arguments,
    over,
)
from tests.conftest import Models
from tests.faults.test_shutdown import Popen, Server, close_stdin, exit_of, send
from tests.hosts import command, host_of, stop_host
from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.snapshot import BuildList
from trt_agent_tools.model.states import Reason, Rung, State

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.tensorrt_rtx,
    over(
        Connection(Transport.ATTACHED, Era.NEWEST),
        reason="It is about front ends and a supervisor that are processes of their own.",
    ),
]

SILENT = "Determining refit engines"
LEAVES_S = 5.0
"""A front end is gone within this, on a machine that is busy."""


@pytest.fixture
async def attach(serve_many: ServeMany) -> AsyncIterator[Connect]:
    """Connect a client to the state folder's supervisor; it is ended after the test."""
    async with serve_many() as connect:
        yield connect


async def builds(agent: Agent) -> dict[str, State]:
    listed = await agent.call("list_builds")
    found = BuildList.model_validate(listed.structured_content).builds
    return {build.build_id: build.state for build in found}


async def in_silent_step(agent: Agent, build_id: str) -> None:
    with anyio.fail_after(60):
        snapshot = await agent.snapshot("get_progress", build_id=build_id)
        while SILENT not in (snapshot.current or ""):
            assert not snapshot.ended
            snapshot = await agent.snapshot(
                "get_progress", build_id=build_id, wait_s=10, since_seq=snapshot.seq
            )


async def test_two_clients_see_each_others_builds_and_either_can_cancel(
    attach: Connect, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    shutil.copy(models.quick, root)
    async with attach() as one, attach() as other:
        first = await one.snapshot("start_build", model="silent.onnx")
        second = await other.snapshot("start_build", model="quick.onnx")
        assert set(await builds(one)) == {first.build_id, second.build_id}
        await in_silent_step(other, first.build_id)
        cancelled = await other.snapshot("cancel_build", build_id=first.build_id, wait_s=30)
        assert (cancelled.state, cancelled.ended_by) == (State.CANCELLED, Rung.TERMINATE)
        assert (await one.end(first.build_id)).reason is Reason.USER_REQUEST
        assert (await one.end(second.build_id)).state is State.SUCCEEDED
    assert not list(root.glob("silent.engine*"))


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(close_stdin, id="end of stdin"),
        pytest.param(send(signal.SIGTERM), id="SIGTERM"),
        pytest.param(send(signal.SIGKILL), id="SIGKILL"),
    ],
)
async def test_a_build_goes_on_when_its_client_leaves_and_the_next_one_finds_it(
    attach: Connect,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[Popen], None],
) -> None:
    monkeypatch.setenv("TRT_AGENT_TOOLS_EMBEDDED", "0")
    # Long enough to leave in the middle of it, on a machine of any speed.
    transformer(place.root / "lasting.onnx", blocks=32)
    client = Server(arguments(place), place.state)
    await client.start_build("lasting.onnx", "auto")
    leave(client.process)
    with anyio.fail_after(LEAVES_S):
        await anyio.to_thread.run_sync(client.process.wait)
    client.close()
    assert not (place.root / "lasting.engine").exists(), "it was to leave before the end"
    async with attach() as following:
        (build_id,) = await builds(following)
        assert (await following.end(build_id)).state is State.SUCCEEDED


async def test_an_idempotency_key_names_the_same_build_across_a_restart_of_the_supervisor(
    attach: Connect, place: Place, models: Models
) -> None:
    shutil.copy(models.quick, place.root)
    async with attach() as agent:
        first = await agent.snapshot("start_build", model="quick.onnx", idempotency_key="k")
        ended = await agent.end(first.build_id)
    before = host_of(place.state)
    stop_host(place.state)
    async with attach() as agent:
        again = await agent.snapshot("start_build", model="quick.onnx", idempotency_key="k")
        assert (again.build_id, again.state) == (first.build_id, State.SUCCEEDED)
        assert again.result == ended.result
        assert host_of(place.state) != before


async def test_a_supervisor_that_is_killed_leaves_a_lost_build_and_a_free_device(
    attach: Connect, place: Place, models: Models
) -> None:
    shutil.copy(models.silent, place.root)
    shutil.copy(models.quick, place.root)
    async with attach() as agent:
        started = await agent.snapshot("start_build", model="silent.onnx")
        await in_silent_step(agent, started.build_id)
        host = host_of(place.state)
        workers = host.children(recursive=True)
        assert workers
        host.kill()
        with anyio.fail_after(LEAVES_S):
            for process in (host, *workers):
                await exit_of(process)
        first = await agent.call("get_progress", build_id=started.build_id)
        if first.is_error:
            # The front end had not heard yet that its supervisor is gone: it says so, and goes on.
            assert "supervisor_gone" in str(first.content)
        lost = await agent.snapshot("get_progress", build_id=started.build_id)
        assert (lost.state, lost.reason) == (State.LOST, Reason.SUPERVISOR_LOST)
        following = await agent.snapshot("start_build", model="quick.onnx")
        assert (await agent.end(following.build_id)).state is State.SUCCEEDED
    assert sorted(path.suffix for path in place.root.iterdir()) == [
        ".engine",
        ".json",
        ".onnx",
        ".onnx",
    ]


async def test_an_embedded_server_is_refused_while_another_supervisor_holds_the_folder(
    attach: Connect, place: Place
) -> None:
    async with attach():
        refused = command("serve", "--embedded", "--root", place.root, "--state-dir", place.state)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: supervisor_running: ")
    assert "--embedded" in refused.stderr.splitlines()[1]
