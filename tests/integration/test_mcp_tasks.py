"""Builds as tasks: the same builds under the same ids, for clients that declare the extension."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ElicitRequestParams,
    ElicitResult,
)

from tests.acceptance.agent import Agent
from tests.integration.mcp_serving import agent_of, played
from tests.integration.task_client import (
    CreatedTask,
    SeenTask,
    TakesTasks,
    cancel_task,
    get_task,
    update_task,
)
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.verdict import Rule

pytestmark = pytest.mark.anyio

POLL_S = 0.05
"""Tasks are polled: there is nothing to wait for."""


async def never_asked(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """A client that can ask its user; tasks are answered by tasks/update instead."""
    raise AssertionError((context, params))


@asynccontextmanager
async def held(
    root: Path, state: Path, *, asks: bool = False, speed: float = 1.0, crashes: bool = False
) -> AsyncIterator[tuple[Agent, CreatedTask]]:
    """Start a build that is held as a task."""
    tasks = TakesTasks()
    asked = never_asked if asks else None
    actions: list[dict[str, object]] = [{"at": 1.2, "do": "crash"}] if crashes else []
    async with agent_of(root, state, asked=asked, extensions=[tasks]) as agent:
        await agent.call("start_build", **played(root, speed=speed, actions=actions), wait_s=45)
        (task,) = tasks.created
        yield agent, task


async def until(agent: Agent, task_id: str, reached: Callable[[SeenTask], bool]) -> SeenTask:
    with anyio.fail_after(60):
        while not reached(task := await get_task(agent.client, task_id)):
            await anyio.sleep(POLL_S)
    return task


def result_of(task: SeenTask) -> Snapshot:
    assert task.result
    return Snapshot.model_validate(task.result.structured_content)


async def test_a_start_that_would_be_waited_for_is_a_task_under_the_builds_own_id(
    root: Path, tmp_path: Path
) -> None:
    async with held(root, tmp_path / "state", speed=10.0) as (agent, task):
        assert task.status == "working"
        assert task.ttl_ms is None
        assert task.poll_interval_ms
        snapshot = await agent.snapshot("get_progress", build_id=task.task_id, detail="tree")
        assert snapshot.created_at == task.created_at
        ended = await until(agent, task.task_id, lambda seen: seen.status == "completed")
        assert result_of(ended).state is State.SUCCEEDED
        assert ended.status_message == result_of(ended).summary
        assert ended.last_updated_at > ended.created_at
        assert (await get_task(agent.client, task.task_id)) == ended


async def test_a_failed_build_is_a_completed_task_whose_result_says_so(
    root: Path, tmp_path: Path
) -> None:
    async with held(root, tmp_path / "state", speed=10.0, crashes=True) as (agent, task):
        ended = await until(agent, task.task_id, lambda seen: seen.status == "completed")
        assert result_of(ended).state is State.FAILED
        assert result_of(ended).error


async def test_a_task_can_be_cancelled_and_the_build_is_gone(root: Path, tmp_path: Path) -> None:
    async with held(root, tmp_path / "state") as (agent, task):
        await cancel_task(agent.client, task.task_id)
        ended = await until(agent, task.task_id, lambda seen: seen.status == "cancelled")
        assert "user_request" in ended.status_message
        assert ended.result is None
        await cancel_task(agent.client, task.task_id)
        snapshot = await agent.snapshot("get_progress", build_id=task.task_id)
        assert snapshot.reason is Reason.USER_REQUEST


async def test_a_warning_asks_for_more_time_until_it_is_answered(
    root: Path, tmp_path: Path
) -> None:
    async with held(root, tmp_path / "state", asks=True) as (agent, task):
        asking = await until(agent, task.task_id, lambda seen: seen.status == "input_required")
        ((key, question),) = asking.input_requests.items()
        assert question["method"] == "elicitation/create"
        assert "build_time" in question["params"]["message"]
        await update_task(agent.client, task.task_id, {"another": {"action": "accept"}})
        assert (await get_task(agent.client, task.task_id)).input_requests.keys() == {key}
        answer = {"action": "accept", "content": {"seconds": 3600}}
        await update_task(agent.client, task.task_id, {key: answer})
        assert (await get_task(agent.client, task.task_id)).status == "working"
        tree = await agent.snapshot("get_progress", build_id=task.task_id, detail="tree")
        (limit,) = (use.limit_s for use in tree.limits or [] if use.rule is Rule.BUILD_TIME)
        assert limit == 3640
        # Answered twice, it is not extended twice.
        await update_task(agent.client, task.task_id, {key: answer})
        again = await agent.snapshot("get_progress", build_id=task.task_id, detail="tree")
        assert limit in [use.limit_s for use in again.limits or []]


async def test_a_declined_question_is_not_asked_again(root: Path, tmp_path: Path) -> None:
    async with held(root, tmp_path / "state", asks=True) as (agent, task):
        asking = await until(agent, task.task_id, lambda seen: seen.status == "input_required")
        (key,) = asking.input_requests
        await update_task(agent.client, task.task_id, {key: {"action": "decline"}})
        assert (await get_task(agent.client, task.task_id)).status == "working"


async def test_a_wrong_answer_is_refused_and_the_question_stands(
    root: Path, tmp_path: Path
) -> None:
    async with held(root, tmp_path / "state", asks=True) as (agent, task):
        asking = await until(agent, task.task_id, lambda seen: seen.status == "input_required")
        (key,) = asking.input_requests
        answer = {"action": "accept", "content": {"seconds": 1e6}}
        with pytest.raises(MCPError, match="at most") as caught:
            await update_task(agent.client, task.task_id, {key: answer})
        assert caught.value.error.data["code"] == "above_ceiling"
        # A wrong answer loses nothing: the question stands, and a right one counts.
        assert (await get_task(agent.client, task.task_id)).input_requests.keys() == {key}
        answer = {"action": "accept", "content": {"seconds": "15 minutes"}}
        with pytest.raises(MCPError, match="number of seconds"):
            await update_task(agent.client, task.task_id, {key: answer})
        answer = {"action": "accept", "content": {"seconds": 60}}
        await update_task(agent.client, task.task_id, {key: answer})
        assert (await get_task(agent.client, task.task_id)).status == "working"


async def test_a_client_that_cannot_ask_its_user_is_not_kept_waiting_for_an_answer(
    root: Path, tmp_path: Path
) -> None:
    async with held(root, tmp_path / "state") as (agent, task):
        warned = await until(
            agent, task.task_id, lambda seen: "extend_build" in seen.status_message
        )
        assert warned.status == "working"


async def test_a_task_that_is_not_there_is_an_invalid_parameter(root: Path, tmp_path: Path) -> None:
    async with agent_of(root, tmp_path / "state", extensions=[TakesTasks()]) as agent:
        for call in (get_task, cancel_task):
            with pytest.raises(MCPError, match="there is no build") as caught:
                await call(agent.client, "b_0000000000000000")
            assert caught.value.error.code == INVALID_PARAMS
        with pytest.raises(MCPError):
            await update_task(agent.client, "b_0000000000000000", {})


async def test_a_client_that_does_not_declare_tasks_gets_none_and_may_not_ask_for_them(
    root: Path, tmp_path: Path
) -> None:
    async with agent_of(root, tmp_path / "state") as agent:
        started = await agent.snapshot("start_build", **played(root), wait_s=1)
        with pytest.raises(MCPError) as caught:
            await get_task(agent.client, started.build_id)
        assert caught.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_a_start_that_is_refused_or_not_waited_for_is_no_task(
    root: Path, tmp_path: Path
) -> None:
    tasks = TakesTasks()
    async with agent_of(root, tmp_path / "state", extensions=[tasks]) as agent:
        await agent.snapshot("start_build", **played(root))
        await agent.refusal("start_build", model="none.onnx", wait_s=45)
        assert not tasks.created


async def test_an_older_client_knows_nothing_of_tasks(root: Path, tmp_path: Path) -> None:
    async with agent_of(root, tmp_path / "state", "legacy") as agent:
        started = await agent.snapshot("start_build", **played(root), wait_s=1)
        with pytest.raises(MCPError):
            await get_task(agent.client, started.build_id)
