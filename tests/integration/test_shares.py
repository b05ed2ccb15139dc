"""What all callers share is shared: one that asks for too much is told so, and the others are served."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from tests.integration.api_serving import FAST, recording
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.events import Inspected
from trt_agent_tools.model.inspection import InspectRequest
from trt_agent_tools.model.request import InspectOrder
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.states import State
from trt_agent_tools.supervisor import builds, inspection, sessions
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor
from trt_agent_tools.supervisor.shares import LOCAL

pytestmark = pytest.mark.anyio

MINE = "token:mine"
THEIRS = "token:theirs"

POLICY = """
[rules]
[session]
queued_builds = 2
concurrent_builds = 1
"""


@pytest.fixture
async def supervisor(root: Path, tmp_path: Path, nothing_left: None) -> AsyncIterator[Supervisor]:
    policy = tmp_path / "few.toml"
    policy.write_text(POLICY)
    config = SupervisorConfig(tmp_path / "state", (root,), enable_replay=True, policy=str(policy))
    async with Supervisor(config) as service:
        yield service


@pytest.fixture
async def busy(supervisor: Supervisor, root: Path) -> Supervisor:
    """A supervisor whose device is taken, so that everything else waits."""
    build = await supervisor.start(recording(root))
    with anyio.fail_after(30):
        while build.state is not State.BUILDING:
            build = await supervisor.progress(build.build_id, wait_s=10, since_seq=build.seq)
    return supervisor


async def full(supervisor: Supervisor, root: Path, principal: str, **named: str) -> ErrorInfo:
    """Return the refusal of one build more."""
    request = recording(root).model_copy(update=named)
    with pytest.raises(Refusal) as refused:
        await supervisor.start(request, principal=principal)
    info = refused.value.info
    assert info.code is ErrorCode.QUEUE_FULL
    assert info.hint
    return info


async def test_more_sessions_do_not_queue_more_builds(busy: Supervisor, root: Path) -> None:
    opened = [
        (await busy.open_session(SessionRequest(), principal=MINE)).session_id
        for _ in range(builds.QUEUES_OF_ONE)
    ]
    for session_id in opened:
        for _ in range(2):
            request = recording(root).model_copy(update={"session_id": session_id})
            await busy.start(request, principal=MINE)
    told = await full(busy, root, MINE, session_id=opened[0])
    assert told.message.startswith("2 builds of the session wait already")
    assert told.details["limit"] == "queued_builds"
    another = await busy.open_session(SessionRequest(), principal=MINE)
    told = await full(busy, root, MINE, session_id=another.session_id)
    assert told.message.startswith("8 builds of all your sessions wait already")
    assert told.details == {
        "limit": "queued_builds_of_principal",
        "queued_builds_of_principal": 8,
    }
    theirs = await busy.start(recording(root), principal=THEIRS)
    assert theirs.state is State.QUEUED


async def test_one_caller_has_a_share_of_the_live_builds_and_others_theirs(
    busy: Supervisor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "MAX_LIVE", 3)
    monkeypatch.setattr(builds, "MAX_LIVE_OF_ONE", 1)
    await busy.start(recording(root), principal=MINE)
    told = await full(busy, root, MINE)
    assert told.details == {"limit": "live_builds_of_principal", "live_builds_of_principal": 1}
    await busy.start(recording(root), principal=THEIRS)
    told = await full(busy, root, "token:third")
    assert told.details == {"limit": "live_builds", "live_builds": 3}


async def test_the_local_user_queues_in_as_many_sessions_as_it_likes(
    busy: Supervisor, root: Path
) -> None:
    for _ in range(builds.QUEUES_OF_ONE + 1):
        session = await busy.open_session(SessionRequest())
        for _ in range(2):
            request = recording(root).model_copy(update={"session_id": session.session_id})
            await busy.start(request)
    waiting = [build for build in busy.live_builds() if busy._builds.of(build, LOCAL)]
    assert len(waiting) == 2 * (builds.QUEUES_OF_ONE + 1) + 1


async def test_a_session_that_was_forgotten_has_spent_what_it_had(
    supervisor: Supervisor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_ONE", 1)
    monkeypatch.setattr(sessions, "UNUSED_S", 0.0)
    monkeypatch.setattr(builds, "MAX_REMEMBERED", 0)
    asked = SessionRequest(gpu_time=600.0)
    first = (await supervisor.open_session(asked, principal=MINE)).session_id
    for _ in range(2):
        request = recording(root, "quick", speed=FAST).model_copy(update={"session_id": first})
        build = await supervisor.start(request, principal=MINE)
        with anyio.fail_after(30):
            while not build.ended:
                build = await supervisor.progress(
                    build.build_id, wait_s=10, since_seq=build.seq, principal=MINE
                )
    spent = (await supervisor.session(first, principal=MINE)).spent_s
    assert spent > 0
    await supervisor.open_session(asked, principal=MINE)
    supervisor._builds.forget_oldest()
    # Whatever still happens to hold it, a thread's last call perhaps, holds it for a while alone.
    del supervisor._sessions._alive[first]
    told = await supervisor.session(first, principal=MINE)
    assert told.spent_s == pytest.approx(spent, abs=0.01)
    assert told.budget_s == 600.0


class Looks:
    """Stands for the workers that look at models: each call waits until it is let go."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.begun: list[str] = []
        self.changed = anyio.Event()

    async def look(self, order: InspectOrder) -> Inspected:
        self.begun.append(Path(order.model).name)
        self.changed.set()
        self.changed = anyio.Event()
        await self.go_on.wait()
        raise Refusal(ErrorCode.INVALID_MODEL, "it is no model", "Give one.")

    async def until(self, begun: set[str]) -> None:
        with anyio.fail_after(30):
            while set(self.begun) != begun:
                await self.changed.wait()


@pytest.mark.tensorrt_rtx
async def test_callers_that_wait_to_look_at_models_do_not_hold_up_another(
    supervisor: Supervisor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks()
    monkeypatch.setattr(inspection, "_look", looks.look)
    asked: list[str] = []

    async def ask(principal: str, number: int) -> None:
        name = f"{principal.removeprefix('token:')}{number}.onnx"
        (root / name).write_bytes(b"model")
        asked.append(name)
        with pytest.raises(Refusal, match="it is no model"):
            await supervisor.inspect(InspectRequest(model=name), principal=principal)

    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for number in range(6):
            tasks.start_soon(ask, MINE, number)
        await looks.until({"mine0.onnx", "mine1.onnx"})
        tasks.start_soon(ask, THEIRS, 0)
        await looks.until({"mine0.onnx", "mine1.onnx", "theirs0.onnx"})
        looks.go_on.set()
    assert sorted(looks.begun) == sorted(asked)
