"""Policies on real TensorRT-RTX builds: healthy ones live, and limits end the others, saying why."""

import shutil
from pathlib import Path

import pytest

from tests.acceptance.agent import Agent
from tests.acceptance.conftest import Serve
from tests.acceptance.transports import EACH_TRANSPORT, STDIO, over
from tests.conftest import Models
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Action, Level, Rule, Verdict

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.tensorrt_rtx,
    over(STDIO, reason="Policies are carried out by the supervisor; such builds take their time."),
]

POLICY = """
[escalation]
cancel_grace = "500ms"
terminate_grace = "1s"

[rules]
build_time = { limit = "1h", ceiling = "2h" }

[session]
gpu_time = "1h"
extension_total = "1h"
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "short.toml"
    file.write_text(POLICY)
    return str(file)


def cancelling(snapshot: Snapshot) -> Verdict:
    """Return the one verdict that ended the build."""
    assert snapshot.verdicts
    (verdict,) = [v for v in snapshot.verdicts if v.action is Action.CANCEL]
    return verdict


async def session(agent: Agent, **arguments: object) -> Session:
    result = await agent.call("get_session", **arguments)
    assert not result.is_error, result.content
    return Session.model_validate(result.structured_content)


async def test_the_default_policy_lets_a_build_live_that_is_silent_for_most_of_its_time(
    serve: Serve, root: Path, models: Models
) -> None:
    shutil.copy(models.silent, root)
    async with serve() as agent:
        started = await agent.snapshot("start_build", model="silent.onnx")
        ended = await agent.end(started.build_id)
    assert ended.state is State.SUCCEEDED
    assert not [v for v in ended.verdicts or [] if v.action is Action.CANCEL]


async def test_a_silent_limit_ends_a_build_that_is_quiet_for_so_long(
    serve: Serve, root: Path, models: Models, policy: str
) -> None:
    shutil.copy(models.silent, root)
    async with serve("--policy", policy) as agent:
        started = await agent.snapshot("start_build", model="silent.onnx", limits={"silent": "2s"})
        ended = await agent.end(started.build_id)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.SILENT)
    assert ended.ended_by is Rung.TERMINATE
    verdict = cancelling(ended)
    assert verdict.rule is Rule.SILENT
    assert verdict.threshold == 2
    assert 2 <= verdict.observed["silent"] < 2.7
    assert "2.0s" in ended.summary
    assert [path.name for path in root.iterdir()] == ["silent.onnx"]


async def test_a_build_time_limit_ends_a_build_in_the_right_reason(
    serve: Serve, root: Path, models: Models, policy: str
) -> None:
    shutil.copy(models.silent, root)
    async with serve("--policy", policy) as agent:
        started = await agent.snapshot(
            "start_build", model="silent.onnx", limits={"build_time": "3s"}
        )
        warned = await agent.snapshot("get_progress", build_id=started.build_id, wait_s=20)
        while not warned.limits and not warned.ended:
            warned = await agent.snapshot(
                "get_progress", build_id=started.build_id, wait_s=20, since_seq=warned.seq
            )
        ended = await agent.end(started.build_id)
    assert warned.state is State.BUILDING, "the warning comes before the end, and wakes a wait"
    assert warned.limits
    assert [(use.rule, use.level, use.limit_s) for use in warned.limits] == [
        (Rule.BUILD_TIME, Level.WARNED, 3.0)
    ]
    assert "extend_build" in warned.summary
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.BUILD_TIME)
    assert 3 <= cancelling(ended).observed["build_time"] < 3.7


async def test_a_session_is_cut_during_the_build_that_uses_it_up_and_refuses_the_next(
    serve: Serve, root: Path, models: Models, policy: str
) -> None:
    shutil.copy(models.silent, root)
    shutil.copy(models.quick, root)
    async with serve("--policy", policy) as agent:
        opened = await agent.call("open_session", gpu_time="4s", label="small")
        mine = Session.model_validate(opened.structured_content)
        other = Session.model_validate(
            (await agent.call("open_session", gpu_time="1h")).structured_content
        )
        key = {"session_id": mine.session_id}
        first = await agent.snapshot("start_build", model="quick.onnx", **key)
        assert (await agent.end(first.build_id)).state is State.SUCCEEDED
        after_one = await session(agent, **key)
        second = await agent.snapshot("start_build", model="silent.onnx", **key)
        bystander = await agent.snapshot(
            "start_build", model="quick.onnx", output="other.engine", session_id=other.session_id
        )
        ended = await agent.end(second.build_id)
        third = await agent.refusal("start_build", model="quick.onnx", output="3.engine", **key)
        untouched = await agent.end(bystander.build_id)
        final = await session(agent, **key)
    assert after_one.left_s is not None
    assert 0 < after_one.left_s < 4
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.GPU_BUDGET)
    assert third.code is ErrorCode.BUDGET_EXHAUSTED
    assert third.details["left_s"] == 0
    assert untouched.state is State.SUCCEEDED, "another session's build is not touched"
    spent = [build.gpu_s for build in final.builds]
    assert final.left_s == 0
    assert ended.ended_by is Rung.TERMINATE
    # An evaluation interval is 0.2 s; what a busy machine adds is not a grace period.
    assert 4 <= final.spent_s < 4 + 1
    assert final.spent_s == pytest.approx(sum(s or 0 for s in spent), abs=0.2)


async def test_an_extension_asked_for_after_the_warning_saves_the_build(
    serve: Serve, root: Path, models: Models, policy: str
) -> None:
    shutil.copy(models.silent, root)
    async with serve("--policy", policy) as agent:
        started = await agent.snapshot(
            "start_build", model="silent.onnx", limits={"build_time": "4s"}
        )
        snapshot = started
        while not snapshot.limits or snapshot.limits[0].level is not Level.WARNED:
            snapshot = await agent.snapshot(
                "get_progress", build_id=started.build_id, wait_s=20, since_seq=snapshot.seq
            )
        extended = await agent.snapshot(
            "extend_build",
            build_id=started.build_id,
            limit="build_time",
            by="30m",
            reason="nearly there",
        )
        too_much = await agent.refusal(
            "extend_build", build_id=started.build_id, limit="build_time", by="40m", reason="more"
        )
        ended = await agent.end(started.build_id)
        too_late = await agent.refusal(
            "extend_build", build_id=started.build_id, limit="build_time", by="1s", reason="more"
        )
    assert extended.limits
    (limit,) = [use for use in extended.limits if use.rule is Rule.BUILD_TIME]
    assert limit.limit_s == 4 + 30 * 60
    assert too_much.code is ErrorCode.ABOVE_CEILING
    assert "30m00s" in too_much.message, "what the session may still extend by is named"
    assert ended.state is State.SUCCEEDED
    assert ended.notes
    assert any("nearly there" in note for note in ended.notes)
    assert too_late.code is ErrorCode.TOO_LATE


@over(*EACH_TRANSPORT, reason="A refusal comes at once, and says the same everywhere.")
async def test_bad_limits_sessions_and_extensions_are_refused_with_what_is_valid(
    serve: Serve, root: Path, models: Models, policy: str
) -> None:
    shutil.copy(models.quick, root)
    async with serve("--policy", policy) as agent:
        for limits, code, told in (
            ({"build_tim": "1m"}, ErrorCode.INVALID_ARGUMENT, "build_tim"),
            ({"build_time": "1 fortnight"}, ErrorCode.INVALID_ARGUMENT, "duration"),
            ({"build_time": "-5s"}, ErrorCode.INVALID_ARGUMENT, "duration"),
            ({"build_time": 0}, ErrorCode.INVALID_ARGUMENT, "greater than 0"),
            ({"build_time": "1000000d"}, ErrorCode.INVALID_ARGUMENT, "at most"),
            ({"build_time": "3h"}, ErrorCode.ABOVE_CEILING, "1h00m"),
            ({"host_memory": -1}, ErrorCode.INVALID_ARGUMENT, "size"),
            ({"phase_time": {"a >  > b": "1m"}}, ErrorCode.INVALID_ARGUMENT, "pattern"),
            ({"gpu_time": "2h"}, ErrorCode.BUDGET_EXHAUSTED, "left"),
        ):
            error = await agent.refusal("start_build", model="quick.onnx", limits=limits)
            assert error.code is code, (limits, error)
            assert told in error.message, (limits, error)
        unknown = await agent.refusal("start_build", model="quick.onnx", session_id="s_none")
        listed = await agent.refusal("list_builds", session_id="s_none")
        much = await agent.refusal("open_session", gpu_time="2h")
        none = await agent.refusal("open_session", gpu_time=0)
        many = await agent.refusal("open_session", gpu_time="1m", concurrent_builds=5)
        build = await agent.snapshot("start_build", model="quick.onnx")
        rule = await agent.refusal(
            "extend_build", build_id=build.build_id, limit="host_memory", by="1m", reason="why not"
        )
        nobody = await agent.refusal(
            "extend_build", build_id="b_0", limit="build_time", by="1m", reason="why not"
        )
        await agent.end(build.build_id)
    assert unknown.code is ErrorCode.UNKNOWN_SESSION
    assert listed.code is ErrorCode.UNKNOWN_SESSION
    assert much.code is ErrorCode.ABOVE_CEILING
    assert "1h00m" in much.message
    assert none.code is ErrorCode.INVALID_ARGUMENT
    assert many.code is ErrorCode.ABOVE_CEILING
    assert rule.code is ErrorCode.INVALID_ARGUMENT
    assert "build_time" in rule.hint
    assert nobody.code is ErrorCode.UNKNOWN_BUILD
