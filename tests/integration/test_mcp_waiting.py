"""Waits in a call: told meanwhile, ended early, and never the end of a build."""

from pathlib import Path

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from tests.acceptance.agent import Agent
from tests.integration.mcp_serving import MODES, Mode, agent_of, played
from trt_agent_tools.mcp_server import asking, waiting
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.snapshot import BuildList, Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.verdict import Level, Rule

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", MODES)]


class User:
    """Whom the client asks: gives the same answer each time, and remembers what it was asked."""

    def __init__(self, answer: ElicitResult | None) -> None:
        self.answer = answer
        self.questions: list[ElicitRequestFormParams] = []

    async def __call__(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        del context
        assert isinstance(params, ElicitRequestFormParams)
        self.questions.append(params)
        if self.answer is None:
            await anyio.sleep_forever()
        assert self.answer
        return self.answer


async def until_nothing_changes(agent: Agent, build_id: str) -> Snapshot:
    """Return once the build is in its silent step, and warned: for 15 s nothing ends a wait."""
    now = await agent.until(build_id, "Determining refit engines")
    with anyio.fail_after(30):
        while "extend_build" not in now.summary:
            now = await agent.snapshot(
                "get_progress", build_id=build_id, wait_s=45, since_seq=now.seq
            )
    return now


async def test_a_wait_tells_how_the_build_stands_by_rising_progress_that_ends_with_it(
    mode: Mode, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "TELL_S", 1.0)
    told: list[tuple[float, float | None, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with agent_of(root, tmp_path / "state", mode) as agent:
        started = await agent.snapshot("start_build", **played(root))
        build = await until_nothing_changes(agent, started.build_id)
        result = await agent.client.call_tool(
            "get_progress",
            {"build_id": build.build_id, "wait_s": 4, "since_seq": build.seq},
            progress_callback=tell,
        )
        count = len(told)
        assert Snapshot.model_validate(result.structured_content).state is State.BUILDING
        assert count >= 2
        assert [t[0] for t in told] == sorted({t[0] for t in told})
        assert {t[1] for t in told} == {4}
        assert all(build.build_id in (t[2] or "") for t in told)
        await agent.snapshot("get_progress", build_id=build.build_id, wait_s=1)
        assert len(told) == count


@pytest.mark.parametrize("asks_for_progress", [True, False])
async def test_a_wait_returns_at_a_phase_change_and_at_the_end(
    mode: Mode, root: Path, tmp_path: Path, asks_for_progress: bool
) -> None:
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        del progress, total, message

    seen: list[Snapshot] = []
    async with agent_of(root, tmp_path / "state", mode) as agent:
        seen.append(await agent.snapshot("start_build", **played(root, speed=4.0)))
        with anyio.fail_after(60):
            while not seen[-1].ended:
                result = await agent.client.call_tool(
                    "get_progress",
                    {"build_id": seen[0].build_id, "wait_s": 45, "since_seq": seen[-1].seq},
                    progress_callback=tell if asks_for_progress else None,
                )
                seen.append(Snapshot.model_validate(result.structured_content))
    assert seen[-1].state is State.SUCCEEDED
    assert len({s.current for s in seen}) > 2
    # Each wait ended with something new.
    assert [s.seq for s in seen] == sorted({s.seq for s in seen})


async def test_a_wait_that_the_client_gives_up_leaves_the_build_alone(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    async with agent_of(root, tmp_path / "state", mode) as agent:
        started = await agent.snapshot("start_build", **played(root))
        now = await until_nothing_changes(agent, started.build_id)
        with pytest.raises(MCPError):
            await agent.client.call_tool(
                "get_progress",
                {"build_id": started.build_id, "wait_s": 45, "since_seq": now.seq},
                read_timeout_seconds=0.3,
            )
        assert (await agent.end(started.build_id)).state is State.SUCCEEDED


async def test_a_cancel_waits_for_the_end_and_tells_meanwhile(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    told: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with agent_of(root, tmp_path / "state", mode) as agent:
        started = await agent.snapshot("start_build", **played(root))
        await agent.until(started.build_id, "Determining refit engines")
        result = await agent.client.call_tool(
            "cancel_build",
            {"build_id": started.build_id, "wait_s": 40},
            progress_callback=tell,
        )
        ended = Snapshot.model_validate(result.structured_content)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.USER_REQUEST)
    assert told


async def until_asked(agent: Agent, user: User, build_id: str) -> Snapshot:
    """Wait as an agent does until its user was asked; return what the call was answered with then."""
    now = await agent.snapshot("get_progress", build_id=build_id)
    with anyio.fail_after(60):
        while not user.questions and not now.ended:
            now = await agent.snapshot(
                "get_progress", build_id=build_id, wait_s=45, since_seq=now.seq
            )
    return now


def limit_of(snapshot: Snapshot, rule: Rule) -> float | None:
    (use,) = (use for use in snapshot.limits or [] if use.rule is rule)
    return use.limit_s


async def test_a_user_who_is_asked_at_the_warning_can_give_the_build_more_time(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    user = User(ElicitResult(action="accept", content={"seconds": 60}))
    async with agent_of(root, tmp_path / "state", mode, asked=user) as agent:
        started = await agent.snapshot("start_build", **played(root))
        assert not (await until_asked(agent, user, started.build_id)).ended
        now = await agent.snapshot("get_progress", build_id=started.build_id, detail="tree")
        assert limit_of(now, Rule.BUILD_TIME) == 100
        assert any("allowed it" in note for note in now.notes or [])
        (question,) = user.questions
        assert "build_time" in question.message
        assert started.build_id in question.message


async def test_a_user_can_be_asked_while_a_start_waits_and_no_other_build_is_started_by_the_answer(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    user = User(ElicitResult(action="accept", content={"seconds": 60}))
    async with agent_of(root, tmp_path / "state", mode, asked=user) as agent:
        first = await agent.snapshot("start_build", **played(root))
        second = await agent.snapshot("start_build", **played(root), wait_s=45)
        assert second.state is State.QUEUED
        assert "queue_time" in user.questions[0].message
        assert limit_of(second, Rule.QUEUE_TIME) == 100
        listed = await agent.call("list_builds")
        found = BuildList.model_validate(listed.structured_content).builds
        assert {build.build_id for build in found} == {first.build_id, second.build_id}


@pytest.mark.parametrize(
    "answer", [ElicitResult(action="decline"), ElicitResult(action="cancel")], ids=["no", "left"]
)
async def test_a_user_who_does_not_want_it_changes_nothing_and_is_asked_once(
    mode: Mode, root: Path, tmp_path: Path, answer: ElicitResult
) -> None:
    user = User(answer)
    async with agent_of(root, tmp_path / "state", mode, asked=user) as agent:
        started = await agent.snapshot("start_build", **played(root, speed=4.0))
        ended = await agent.end(started.build_id)
    assert ended.state is State.SUCCEEDED
    assert limit_of(ended, Rule.BUILD_TIME) == 40
    assert len(user.questions) == 1


async def test_a_user_who_asks_for_too_much_is_told_the_ceiling(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    user = User(ElicitResult(action="accept", content={"seconds": 1e6}))
    async with agent_of(root, tmp_path / "state", mode, asked=user) as agent:
        now = await agent.snapshot("start_build", **played(root))
        with anyio.fail_after(60):
            while not (
                result := await agent.call(
                    "get_progress", build_id=now.build_id, wait_s=45, since_seq=now.seq
                )
            ).is_error:
                now = Snapshot.model_validate(result.structured_content)
        assert result.structured_content
        assert result.structured_content["error"]["code"] == ErrorCode.ABOVE_CEILING.value


async def test_a_user_who_never_answers_does_not_hold_the_call_of_an_older_client(
    mode: Mode, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "auto":
        pytest.skip("a client of the newest revision waits for its user between two calls")
    monkeypatch.setattr(asking, "ANSWER_S", 0.5)
    user = User(None)
    async with agent_of(root, tmp_path / "state", mode, asked=user) as agent:
        started = await agent.snapshot("start_build", **played(root))
        now = await until_asked(agent, user, started.build_id)
        assert limit_of(now, Rule.BUILD_TIME) == 40


async def test_a_client_that_cannot_ask_reads_the_warning_and_what_it_may_ask_for(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    async with agent_of(root, tmp_path / "state", mode) as agent:
        now = await agent.snapshot("start_build", **played(root))
        with anyio.fail_after(30):
            while "extend_build" not in now.summary:
                now = await agent.snapshot(
                    "get_progress", build_id=now.build_id, wait_s=45, since_seq=now.seq
                )
        assert now.limits
        assert (now.limits[0].level, now.limits[0].ceiling_s) == (Level.WARNED, 8 * 3600)
        extended = await agent.snapshot(
            "extend_build", build_id=now.build_id, limit="build_time", by="1m", reason="one step"
        )
        assert limit_of(extended, Rule.BUILD_TIME) == 100
