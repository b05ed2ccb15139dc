"""A service over the socket is the service itself: same answers, same refusals."""

import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest

from tests.integration.api_serving import FAST, Served, recording, served
from trt_agent_tools.api.client import RemoteService
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import FrontEnd, StartRequest
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import State

pytestmark = pytest.mark.anyio

Call: TypeAlias = Callable[[BuildService], Awaitable[object]]

OPTIONS = BuildOptions.model_validate({"overwrite": True, "builder_optimization_level": 2})


@pytest.fixture
async def api(root: Path, tmp_path: Path, nothing_left: None) -> AsyncIterator[Served]:
    async with served(root, tmp_path / "state") as running:
        yield running


async def built(api: Served, root: Path) -> Snapshot:
    """Return the end of a build with all the details that there are."""
    request = recording(root, "quick", speed=FAST).model_copy(
        update={
            "options": OPTIONS,
            "label": "nächtlich",
            "limits": {"build_time": "15m", "phase_time": {"Timing*": 300}},
            "idempotency_key": "k 1/2?",
        }
    )
    build = await api.remote.start(request, wait_s=0.0)
    with anyio.fail_after(30):
        while not build.ended:
            build = await api.remote.progress(build.build_id, wait_s=10, since_seq=build.seq)
    return await api.remote.progress(build.build_id, detail=Detail.FULL)


async def test_every_answer_is_the_same_over_the_socket(api: Served, root: Path) -> None:
    build = await built(api, root)
    assert build.state is State.SUCCEEDED
    assert build.phases
    assert build.versions
    session = await api.remote.open_session(SessionRequest(gpu_time=60, label="s"))
    calls: list[Call] = [
        *(
            lambda s, detail=detail: s.progress(build.build_id, detail=detail, wait_s=1)
            for detail in Detail
        ),
        lambda s: s.cancel(build.build_id, reason="too late", wait_s=1),
        lambda s: s.list_builds(),
        lambda s: s.list_builds(session_id=session.session_id),
        lambda s: s.list_builds(state=State.SUCCEEDED, limit=1),
        lambda s: s.session(),
        lambda s: s.session(session.session_id),
        lambda s: s.log(build.build_id, tail=5, min_severity=Severity.WARNING),
        lambda s: s.log(build.build_id),
        lambda s: s.manifest(build.build_id),
        lambda s: s.recording(build.build_id),
        lambda s: s.recording(build.build_id, tail=2),
        lambda s: s.policies(),
    ]
    for call in calls:
        assert await call(api.remote) == await call(api.local)


async def test_a_repeated_start_over_the_socket_is_the_same_build(api: Served, root: Path) -> None:
    request = recording(root, "quick", speed=FAST).model_copy(
        update={"idempotency_key": "once", "options": OPTIONS}
    )
    first = await api.remote.start(request)
    assert (await api.remote.start(request)).build_id == first.build_id


START = StartRequest(model="missing.onnx")
BAD: dict[str, Call] = {
    "no such build": lambda s: s.progress("b_0000000000000000"),
    "no build's id": lambda s: s.progress("../sessions/default"),
    "an empty id": lambda s: s.progress(""),
    "an id with a query": lambda s: s.log("b?tail=1"),
    "an id of text": lambda s: s.cancel("ü\n" * 100),
    "a long wait": lambda s: s.progress("b_0000000000000000", wait_s=45.5),
    "a negative wait": lambda s: s.start(START, wait_s=-0.5),
    "a wait that is no number": lambda s: s.cancel("b_0", wait_s=float("nan")),
    "an endless wait": lambda s: s.progress("b_0", wait_s=float("inf")),
    "no such model": lambda s: s.start(START),
    "outside the roots": lambda s: s.start(START.model_copy(update={"model": "/etc/hostname"})),
    "no such policy": lambda s: s.start(START.model_copy(update={"policy": "nonsense"})),
    "no such limit": lambda s: s.start(START.model_copy(update={"limits": {"patience": 1}})),
    "no such session": lambda s: s.start(START.model_copy(update={"session_id": "s_ü"})),
    "extend no build": lambda s: s.extend("b_0", limit="build_time", by="5m", reason="r" * 10_000),
    "list too many": lambda s: s.list_builds(limit=501),
    "list none": lambda s: s.list_builds(limit=0),
    "list an unknown session": lambda s: s.list_builds(session_id="a/b c"),
    "a session of nobody": lambda s: s.session("s_nobody"),
    "no session's id": lambda s: s.session("a/b?c"),
    "more than the policy": lambda s: s.open_session(SessionRequest(concurrent_builds=1024)),
    "no GPU time": lambda s: s.open_session(SessionRequest(gpu_time=0)),
    "a long log": lambda s: s.log("b_0000000000000000", tail=1001),
    "a manifest of nobody": lambda s: s.manifest("b_0000000000000000"),
    "a manifest of no id": lambda s: s.manifest("../policies"),
    "a recording of nobody": lambda s: s.recording("b_0000000000000000"),
    "a long recording": lambda s: s.recording("b_0000000000000000", tail=1001),
    "no recording at all": lambda s: s.recording("b_0000000000000000", tail=0),
}


async def refusal(call: Awaitable[object]) -> ErrorInfo:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.info


@pytest.mark.parametrize("name", BAD)
async def test_every_refusal_is_the_same_over_the_socket(api: Served, name: str) -> None:
    assert await refusal(BAD[name](api.remote)) == await refusal(BAD[name](api.local))


async def test_a_front_end_without_roots_reads_nothing(api: Served, root: Path) -> None:
    async with RemoteService(api.listener.path, FrontEnd()) as bare:
        assert (await bare.list_builds()).builds == []
        request = recording(root, "quick", speed=FAST)
        info = await refusal(bare.start(request))
        assert info.code is ErrorCode.OUTSIDE_ROOTS


async def test_events_over_the_socket_end_with_the_terminal_snapshot(
    api: Served, root: Path
) -> None:
    build = await api.remote.start(recording(root, speed=10))
    with anyio.fail_after(30):
        seen = [s async for s in api.remote.events(build.build_id, detail=Detail.TREE)]
    assert [s.ended for s in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[-1] == await api.local.progress(build.build_id, detail=Detail.TREE)
    # One that has ended is told at once.
    with anyio.fail_after(5):
        again = [s async for s in api.remote.events(build.build_id)]
    assert [s.seq for s in again] == [seen[-1].seq]
    with pytest.raises(Refusal):
        await anext(api.remote.events("b_0000000000000000"))


async def test_events_may_be_left_at_any_time(api: Served, root: Path) -> None:
    build = await api.remote.start(recording(root, speed=5))
    async with aclosing(api.remote.events(build.build_id)) as events:
        await anext(events)
    with anyio.move_on_after(0.2):
        async for _ in api.remote.events(build.build_id):
            pass
    gc.collect()
    assert (await api.remote.cancel(build.build_id, wait_s=20)).state is State.CANCELLED


async def test_a_cancelled_wait_leaves_the_build_and_the_service_well(
    api: Served, root: Path
) -> None:
    build = await api.remote.start(recording(root, speed=5))
    for _ in range(3):
        with anyio.move_on_after(0.05) as scope:
            await api.remote.progress(build.build_id, wait_s=30, since_seq=10**9)
        assert scope.cancelled_caught
    assert not (await api.remote.progress(build.build_id)).ended


async def test_many_calls_at_once_are_all_answered(api: Served, root: Path) -> None:
    build = await api.remote.start(recording(root, speed=8))
    states: list[Snapshot] = []

    async def wait() -> None:
        snapshot = await api.remote.progress(build.build_id)
        while not snapshot.ended:
            snapshot = await api.remote.progress(build.build_id, wait_s=20, since_seq=snapshot.seq)
        states.append(snapshot)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(wait)
    assert [s.state for s in states] == [State.SUCCEEDED] * 40


async def test_a_service_counts_as_a_front_end_until_it_is_left(api: Served) -> None:
    before = api.control.hello().front_ends
    async with RemoteService(api.listener.path, FrontEnd()):
        assert api.control.hello().front_ends == before + 1
    with anyio.fail_after(5):
        while api.control.hello().front_ends != before:
            await anyio.sleep(0.01)


async def test_without_a_supervisor_there_is_a_refusal_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(5), pytest.raises(Refusal) as caught:
        async with RemoteService(tmp_path / "supervisor.sock", FrontEnd()):
            pass
    info = caught.value.info
    assert info.code is ErrorCode.SUPERVISOR_GONE
    assert info.hint
    assert info.details == {"socket": str(tmp_path / "supervisor.sock")}


async def test_a_socket_file_that_nobody_listens_on_is_no_supervisor(
    api: Served, tmp_path: Path
) -> None:
    stale = tmp_path / "stale.sock"
    listener = await anyio.create_unix_listener(stale)
    await listener.aclose()
    stale.touch()
    with anyio.fail_after(5), pytest.raises(Refusal) as caught:
        async with RemoteService(stale, FrontEnd()):
            pass
    assert caught.value.info.code is ErrorCode.SUPERVISOR_GONE


async def test_another_program_on_the_socket_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"

    async def serve_nonsense(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")

    async with (
        await anyio.create_unix_listener(path) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve_nonsense)
        with anyio.fail_after(5), pytest.raises(Refusal, match="404") as caught:
            async with RemoteService(path, FrontEnd()):
                pass
        tasks.cancel_scope.cancel()
    assert caught.value.info.hint


async def test_the_client_does_not_pay_for_the_server(tmp_path: Path) -> None:
    code = (
        "import sys, trt_agent_tools.api.attach\n"
        "print(sorted({'fastapi', 'uvicorn', 'starlette', 'mcp'} & set(sys.modules)))"
    )
    done = await anyio.run_process([sys.executable, "-c", code])
    assert done.stdout.decode().strip() == "[]"
