"""How a build ended, from what was said, seen and left: one answer, never better than the facts."""

import re
import signal
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trt_agent_tools
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import Failed, Goodbye, Outcome, WorkerEvent
from trt_agent_tools.model.states import TERMINAL, Reason, Rung, State, is_legal
from trt_agent_tools.policy.policy import Escalation
from trt_agent_tools.supervisor.artefact import Artefact
from trt_agent_tools.supervisor.build import CancelRequest
from trt_agent_tools.supervisor.outcome import Ending, Heard, judge, reason_for
from trt_agent_tools.supervisor.process.ladder import Climb

ENGINE = Artefact("/m.engine", 5, "ab", "/m.engine.json")
ASKED = CancelRequest(Reason.USER_REQUEST, Escalation())
ERROR = ErrorInfo(ErrorCode.MISSING_PROFILE, "no profile", "give one")


def ending(
    *said: WorkerEvent,
    exit_status: int | None = 0,
    artefact: Artefact | None = None,
    request: CancelRequest | None = None,
    climb: Climb | None = None,
    broken: str | None = None,
    where: str | None = None,
) -> Ending:
    heard = Heard()
    for event in said:
        heard.take(event)
    return judge(
        heard,
        exit_status=exit_status,
        artefact=artefact,
        request=request,
        climb=climb,
        broken=broken,
        where=where,
        peak_rss_bytes=1_000_000,
        elapsed_s=75.0,
    )


goodbyes = {outcome: Goodbye(1.0, outcome) for outcome in Outcome}
saids = st.lists(st.sampled_from([*goodbyes.values(), Failed(1.0, ERROR)]), max_size=3)


@given(
    saids,
    st.none() | st.integers(-100, 255),
    st.none() | st.just(ENGINE),
    st.none() | st.just(ASKED),
    st.none() | st.builds(Climb, st.sampled_from(Rung), st.booleans()),
    st.none() | st.text(),
    st.none() | st.text(),
)
def test_every_ending_is_one_terminal_state_that_can_be_explained(
    said: list[WorkerEvent],
    exit_status: int | None,
    artefact: Artefact | None,
    request: CancelRequest | None,
    climb: Climb | None,
    broken: str | None,
    where: str | None,
) -> None:
    end = ending(
        *said,
        exit_status=exit_status,
        artefact=artefact,
        request=request,
        climb=climb,
        broken=broken,
        where=where,
    )
    assert end.state in TERMINAL
    # It can be reached from where the build stands, and success is said of an engine alone.
    assert is_legal(State.CANCELLING if request else State.STARTING, end.state)
    assert (end.state is State.SUCCEEDED) == (artefact is not None)
    assert (end.state is State.FAILED) == (end.error is not None)
    assert (end.state is State.CANCELLED) == (end.ended_by is not None)
    if end.error:
        assert end.error.message
        assert end.error.hint


def test_a_complete_engine_counts_whatever_came_after_it() -> None:
    for end in (
        ending(goodbyes[Outcome.SUCCEEDED], artefact=ENGINE),
        ending(artefact=ENGINE, exit_status=-signal.SIGSEGV),
        ending(Failed(1.0, ERROR), artefact=ENGINE, exit_status=1),
        ending(artefact=ENGINE, broken="half a line"),
    ):
        assert end == Ending(State.SUCCEEDED, Reason.COMPLETED)


def test_a_late_success_beats_a_late_cancel_and_says_so() -> None:
    end = ending(artefact=ENGINE, request=ASKED, climb=Climb(Rung.KILL, proven=True))
    assert end.state is State.SUCCEEDED
    assert end.note
    assert "engine was kept" in end.note


@pytest.mark.parametrize("rung", [Rung.ASK, Rung.TERMINATE, Rung.KILL])
def test_a_cancelled_build_names_who_asked_and_the_rung_that_ended_it(rung: Rung) -> None:
    request = CancelRequest(Reason.BUILD_TIME, Escalation())
    end = ending(exit_status=-9, request=request, climb=Climb(rung, proven=True))
    assert end == Ending(State.CANCELLED, Reason.BUILD_TIME, ended_by=rung)


def test_a_worker_that_saw_the_request_by_itself_was_ended_by_asking() -> None:
    end = ending(goodbyes[Outcome.CANCELLED], request=ASKED)
    assert end == Ending(State.CANCELLED, Reason.USER_REQUEST, ended_by=Rung.ASK)


def test_a_build_that_nobody_asked_to_end_was_not_cancelled() -> None:
    assert ending(goodbyes[Outcome.CANCELLED]).state is State.FAILED


def test_a_crash_before_the_cancel_was_carried_out_is_a_crash() -> None:
    end = ending(request=ASKED, exit_status=-signal.SIGSEGV)
    assert (end.state, end.reason) == (State.FAILED, Reason.WORKER_CRASH)


def test_what_the_worker_said_of_its_failure_is_told_as_it_was() -> None:
    end = ending(Failed(1.0, ERROR), goodbyes[Outcome.FAILED], exit_status=1)
    assert end == Ending(State.FAILED, Reason.UNSUPPORTED_OPTION, error=ERROR)


def test_a_success_without_an_engine_is_not_believed() -> None:
    end = ending(goodbyes[Outcome.SUCCEEDED])
    assert end.state is State.FAILED
    assert end.error
    assert "not at the output" in end.error.message


def test_a_kill_by_somebody_else_is_told_apart_with_the_peak_memory() -> None:
    end = ending(exit_status=-signal.SIGKILL, where="Building > Timing")
    assert (end.state, end.reason) == (State.FAILED, Reason.KILLED_EXTERNALLY)
    assert end.error
    assert end.error.code is ErrorCode.KILLED_EXTERNALLY
    assert "memory" in end.error.message
    assert "'Building > Timing'" in end.error.message
    assert "1m15s" in end.error.message
    assert end.error.details["peak_rss_bytes"] == 1_000_000


@pytest.mark.parametrize(
    ("exit_status", "told"),
    [
        (-signal.SIGSEGV, "SIGSEGV"),
        (-signal.SIGABRT, "SIGABRT"),
        (-90, "signal 90"),
        (0, "without saying how"),
        (7, "exit status 7"),
        (None, "exit status None"),
    ],
)
def test_a_crash_names_the_signal_or_the_status(exit_status: int | None, told: str) -> None:
    end = ending(exit_status=exit_status)
    assert (end.state, end.reason) == (State.FAILED, Reason.WORKER_CRASH)
    assert end.error
    assert told in end.error.message


def test_a_worker_that_broke_the_protocol_is_told_what_it_broke() -> None:
    end = ending(Failed(1.0, ERROR), broken="a line is too long", exit_status=-9)
    assert end.reason is Reason.WORKER_CRASH
    assert end.error
    assert end.error.code is ErrorCode.PROTOCOL_ERROR
    assert "a line is too long" in end.error.message


def test_only_failures_and_goodbyes_tell_of_the_end() -> None:
    heard = Heard()
    others = [kind for kind in get_args(WorkerEvent) if kind not in {Failed, Goodbye}]
    assert others
    heard.take(goodbyes[Outcome.SUCCEEDED])
    heard.take(Failed(1.0, ERROR))
    assert (heard.goodbye, heard.error) == (Outcome.SUCCEEDED, ERROR)


def test_whatever_a_worker_fails_with_has_a_reason_of_its_kind() -> None:
    builders = {"BUILDER_ERROR", "BACKEND_UNAVAILABLE", "INTERNAL_ERROR"}
    sources = Path(trt_agent_tools.__file__).with_name("worker").glob("*.py")
    used = {
        name for path in sources for name in re.findall(r"ErrorCode\.([A-Z_]+)", path.read_text())
    }
    assert len(used) > 10
    unmapped = {name for name in used if reason_for(ErrorCode[name]) is Reason.BUILDER_ERROR}
    assert unmapped == builders
