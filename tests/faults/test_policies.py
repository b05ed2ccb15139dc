"""Builds that hang, trickle or eat memory, under policies: the right rule ends each, and no other."""

import time

import anyio
import pytest

from tests.faults.conftest import Play, Supervise, Watcher
from trt_agent_tools.model.duration import parse_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.proposal import Change, Proposal
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Action, Rule, Verdict

pytestmark = pytest.mark.anyio

GRACES = '\n[escalation]\ncancel_grace = "200ms"\nterminate_grace = "200ms"\n'
SILENT = ("Determining refit engines",)


def rules(text: str) -> str:
    return f"[rules]\n{text}\n{GRACES}"


def _whole(proposal: Proposal) -> str:
    assert proposal.expected_s
    return f"{round(proposal.expected_s)}s"


def given(snapshot: Snapshot, action: Action) -> list[Verdict]:
    return [verdict for verdict in snapshot.verdicts or [] if verdict.action is action]


async def test_a_builder_that_hangs_idle_is_called_hung_and_ended(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('step_stall = "3s"\nbuild_time = "1h"')) as watcher:
        build = await watcher.start(play({"at": 1.2, "do": "hang_idle"}, speed=5))
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.STEP_STALL)
    (verdict,) = given(ended, Action.CANCEL)
    assert "the builder is hung" in verdict.message
    assert "Determining refit engines" in verdict.message
    assert verdict.observed["inactive_s"] >= 3


async def test_a_builder_that_is_quiet_but_busy_is_not_called_hung(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('step_stall = "2s"')) as watcher:
        build = await watcher.start(play({"at": 1.2, "do": "burn_cpu"}, speed=3))
        ended = await watcher.end(build, within_s=40)
    assert ended.state is State.SUCCEEDED
    assert not given(ended, Action.CANCEL)


async def test_a_builder_that_hangs_busy_is_ended_by_the_silent_rule_alone(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('step_stall = "2s"\nsilent = "3s"')) as watcher:
        build = await watcher.start(
            play({"at": 1.2, "do": "burn_cpu", "for_s": 600}, {"at": 1.3, "do": "hang_idle"})
        )
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.SILENT)
    assert [verdict.rule for verdict in given(ended, Action.CANCEL)] == [Rule.SILENT]


async def test_steps_that_trickle_keep_a_build_alive_until_its_build_time(
    supervise: Supervise, play: Play, root: object
) -> None:
    request = play(recording="trickle")
    async with supervise(rules('step_stall = "1s"\nsilent = "1s"\nbuild_time = "4s"')) as watcher:
        build = await watcher.start(request)
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.BUILD_TIME)


async def test_a_phase_over_its_own_limit_ends_the_build_and_is_named(
    supervise: Supervise, play: Play
) -> None:
    text = 'build_time = "1h"\n[rules.phase_time]\n"Determining refit engines" = "1s"\n'
    async with supervise(rules(text)) as watcher:
        build = await watcher.start(play(speed=5))
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.PHASE_TIME)
    (verdict,) = given(ended, Action.CANCEL)
    assert verdict.phase
    assert verdict.phase.endswith("Determining refit engines")


async def test_a_limit_holds_against_a_worker_that_ignores_sigterm(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('build_time = "2s"')) as watcher:
        build = await watcher.start(play({"at": 0, "do": "ignore_sigterm"}, speed=5))
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.BUILD_TIME)
    assert ended.ended_by is Rung.KILL
    assert "build has run for" in ended.summary


async def test_an_observed_rule_says_what_it_would_have_done_and_ends_nothing(
    supervise: Supervise, play: Play
) -> None:
    text = 'build_time = { limit = "1s", mode = "observe" }'
    async with supervise(rules(text)) as watcher:
        build = await watcher.start(play(speed=5))
        ended = await watcher.end(build)
    assert ended.state is State.SUCCEEDED
    (verdict,) = given(ended, Action.WOULD_CANCEL)
    assert verdict.rule is Rule.BUILD_TIME


async def test_a_build_that_waits_too_long_for_its_device_leaves_the_queue(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('queue_time = "1s"')) as watcher:
        first = await watcher.start(play(speed=5))
        second = await watcher.start(play(recording="quick"))
        ended = await watcher.end(second)
        assert (ended.state, ended.reason) == (State.CANCELLED, Reason.QUEUE_TIME)
        assert ended.ended_by is Rung.DEQUEUED
        assert (await watcher.end(first)).state is State.SUCCEEDED


async def test_a_start_that_never_reaches_tensorrt_is_ended(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('startup_time = "1s"')) as watcher:
        build = await watcher.start(play({"at": 0, "do": "hang_idle"}, recording="quick"))
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.STARTUP_TIME)


async def test_a_build_that_nobody_asks_about_is_ended_and_a_watched_one_is_not(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('unattended = "2s"')) as watcher:
        watched = await watcher.start(play(speed=5))
        assert (await watcher.end(watched)).state is State.SUCCEEDED
        forgotten = await watcher.start(play(speed=5))
        await _state_of(watcher, forgotten, State.CANCELLED)
        ended = await watcher.end(forgotten)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.UNATTENDED)


async def test_a_build_that_takes_too_much_memory_is_ended(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('host_memory = "600MiB"')) as watcher:
        build = await watcher.start(play({"at": 0.5, "do": "allocate", "bytes": 640 << 20}))
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.MEMORY)


async def test_a_build_that_asks_for_far_too_much_memory_at_once_does_not_get_it(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('host_memory = "600MiB"')) as watcher:
        build = await watcher.start(play({"at": 0.5, "do": "allocate", "bytes": 2 << 30}))
        ended = await watcher.end(build)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.MEMORY)
    assert ended.error
    assert ended.error.code is ErrorCode.OUT_OF_MEMORY


async def test_sessions_share_a_device_but_not_a_budget(supervise: Supervise, play: Play) -> None:
    async with supervise(GRACES) as watcher:
        small = await watcher.service.open_session(SessionRequest(gpu_time=1.5))
        cut = await watcher.start(play(speed=5).model_copy(update={"session_id": small.session_id}))
        whole = await watcher.start(play(speed=5))
        assert (await watcher.end(cut)).reason is Reason.GPU_BUDGET
        assert (await watcher.end(whole)).state is State.SUCCEEDED
        spent = await watcher.service.session(small.session_id)
        free = await watcher.service.session()
    assert spent.left_s == 0
    assert free.budget_s is None
    assert free.spent_s == pytest.approx(sum(build.gpu_s or 0 for build in free.builds), abs=0.2)


async def test_a_queued_build_whose_budget_is_used_up_by_the_one_before_never_starts(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(GRACES) as watcher:
        session = await watcher.service.open_session(SessionRequest(gpu_time=1.5))
        both = [
            await watcher.start(play(speed=5).model_copy(update={"session_id": session.session_id}))
            for _ in range(2)
        ]
        first, second = [await watcher.end(build) for build in both]
    assert first.reason is Reason.GPU_BUDGET
    assert (second.state, second.reason) == (State.CANCELLED, Reason.GPU_BUDGET)
    assert second.ended_by is Rung.DEQUEUED
    assert second.gpu_s is None


async def test_another_principals_builds_and_sessions_are_not_seen(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(GRACES) as watcher:
        build = await watcher.start(play(recording="quick"))
        session = await watcher.service.open_session(SessionRequest(gpu_time=5))
        with pytest.raises(Refusal) as refused:
            await watcher.service.cancel(build, principal="somebody else")
        assert refused.value.info.code is ErrorCode.UNKNOWN_BUILD
        with pytest.raises(Refusal) as refused:
            await watcher.service.session(session.session_id, principal="somebody else")
        assert refused.value.info.code is ErrorCode.UNKNOWN_SESSION
        assert not (await watcher.service.list_builds(principal="somebody else")).builds
        await watcher.end(build)


async def test_a_supervisor_that_was_stopped_does_not_take_its_own_silence_for_the_builds(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('silent = "2s"\nunattended = "4s"')) as watcher:
        build = await watcher.start(play(speed=4.5))
        await watcher.until(build, ("Building engine",))
        # This process does nothing for a while, as if stopped: the loop stands still.
        time.sleep(3)  # noqa: ASYNC251  (that is the point)
        ended = await watcher.service.progress(build)
        with anyio.move_on_after(1):
            while not ended.ended:
                ended = await watcher.service.progress(build, wait_s=0.2)
        assert ended.state in {State.BUILDING, State.SUCCEEDED}, ended.summary


async def _state_of(watcher: Watcher, build: str, state: State) -> None:
    """Wait for a state by the list alone, which does not count as asking about the build."""
    with anyio.fail_after(20):
        while True:
            listed = await watcher.service.list_builds(state=state)
            if any(found.build_id == build for found in listed.builds):
                return
            await anyio.sleep(0.05)


async def test_a_build_over_its_limit_is_answered_with_what_to_try_next(
    supervise: Supervise, play: Play
) -> None:
    text = 'build_time = { limit = "2s", ceiling = "1m" }\n[session]\nextension_total = "1h"\n'
    async with supervise(rules(text)) as watcher:
        build = await watcher.start(play())
        ended = await watcher.end(build)
        shown = await watcher.service.progress(build)
    async with supervise(rules(text)) as watcher:
        # Another supervisor knows it from the journal alone.
        stored = await watcher.service.progress(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.BUILD_TIME)
    assert ended.proposals
    level, longer = ended.proposals
    # Level 3 was read back in this recording; no build has told yet how long another level takes.
    assert level.change == Change(builder_optimization_level=1)
    assert level.expected_s is None
    assert longer.change == Change(longer=Rule.BUILD_TIME)
    assert "up to 1m00s is allowed" in longer.why
    assert ended.summary.endswith("; try builder_optimization_level 1")
    assert shown.proposals == stored.proposals == ended.proposals


async def test_past_builds_of_the_model_tell_how_much_longer_the_limit_has_to_be(
    supervise: Supervise, play: Play
) -> None:
    request = play(speed=5)
    again = request.model_copy(
        update={"options": BuildOptions(overwrite=True), "limits": {"build_time": "1s"}}
    )
    lower = BuildOptions(overwrite=True, builder_optimization_level=1)
    async with supervise(rules('build_time = "1m"')) as watcher:
        first = await watcher.end(await watcher.start(request))
        await watcher.end(await watcher.start(request.model_copy(update={"options": lower})))
        ended = await watcher.end(await watcher.start(again))
    assert first.state is State.SUCCEEDED
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.BUILD_TIME)
    assert ended.proposals
    [longer] = [proposal for proposal in ended.proposals if proposal.change.limits]
    assert longer.expected_s == pytest.approx(first.gpu_s, abs=0.2)
    assert longer.high_s
    assert longer.change.limits
    assert parse_duration(longer.change.limits[Rule.BUILD_TIME]) >= longer.high_s
    assert "1 past build of this model" in longer.why
    # Of level 1 it is known by now that it takes as long; of level 0 nothing is known.
    [level] = [proposal for proposal in ended.proposals if not proposal.change.limits]
    assert level.change == Change(builder_optimization_level=0)
    assert ended.summary.endswith(f"; try {longer.change.text} (takes about {_whole(longer)})")


async def test_a_build_that_nobody_limits_is_answered_with_no_proposal(
    supervise: Supervise, play: Play
) -> None:
    async with supervise(rules('build_time = "1m"')) as watcher:
        build = await watcher.start(play())
        await watcher.until(build, SILENT)
        ended = await watcher.cancel(build)
    assert ended.state is State.CANCELLED
    assert ended.proposals is None
