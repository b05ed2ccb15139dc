"""States, seq, and what is kept of everything that is told."""

import math
from dataclasses import replace
from functools import reduce

import pytest

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import (
    Capabilities,
    EngineWritten,
    Failed,
    Heartbeat,
    Hello,
    InputFile,
    InputsDigested,
    JsonValue,
    LogLine,
    ModelRead,
    OptionApplied,
    PhaseFinished,
    PhaseStarted,
    Ready,
    Severity,
    StepCompleted,
)
from trt_agent_tools.model.findings import MAX_KINDS
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.model.states import Reason, Rung, State, is_legal
from trt_agent_tools.model.supervisor_events import (
    ActivitySampled,
    BuildEvent,
    Noted,
    StateChanged,
)
from trt_agent_tools.progress.past import Shape
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView, Inputs

WORKER_ERROR = ErrorInfo(ErrorCode.BUILDER_ERROR, "the worker's word")
OWN_ERROR = ErrorInfo(ErrorCode.OUT_OF_MEMORY, "the supervisor's word")
WRITTEN = EngineWritten(2, "/e/m.engine", 5, "ab", "/e/m.engine.json")
ROADS: dict[State, tuple[State, ...]] = {
    State.QUEUED: (),
    State.STARTING: (State.STARTING,),
    State.BUILDING: (State.STARTING, State.BUILDING),
    State.CANCELLING: (State.CANCELLING,),
    State.SUCCEEDED: (State.STARTING, State.SUCCEEDED),
    State.FAILED: (State.FAILED,),
    State.CANCELLED: (State.CANCELLING, State.CANCELLED),
    State.LOST: (State.LOST,),
}


def folded(*events: BuildEvent) -> BuildView:
    return reduce(fold, events, BuildView())


def in_state(state: State) -> BuildView:
    return folded(*(StateChanged(1.0, each) for each in ROADS[state]))


READ = ModelRead(1.0, 12, {"MatMul": 8, "Add": 4}, 3456, 64, 3)
DIGESTED = InputsDigested(2.0, "ab" * 32, 5, [InputFile("/m/m.onnx", 5, "ab" * 32)])


def test_what_a_model_asks_of_the_builder_is_kept() -> None:
    told = folded(READ, DIGESTED).told
    assert told.shape == Shape(12, 3456, {"MatMul": 8, "Add": 4}, 64, 3)
    assert told.inputs == Inputs("ab" * 32, (InputFile("/m/m.onnx", 5, "ab" * 32),), 0)


def test_what_a_worker_tells_of_its_model_is_cleaned_and_bounded() -> None:
    operators = {f"Kind\x1b[2J\u202e{number}{'x' * 1000}": 2**80 for number in range(2000)}
    files = [InputFile("/m\n" * 9000, -1, "c" * 9000)] * 2000
    told = folded(
        replace(READ, nodes=-1, operators=operators, weight_bytes=2**80, optimization_level=-7),
        replace(DIGESTED, files=files, files_left_out=-3),
    ).told
    assert told.shape is not None
    assert told.shape.nodes == 0
    assert told.shape.optimization_level is None
    assert len(told.shape.operators) <= MAX_KINDS
    assert all(name.isprintable() and len(name) <= 200 for name in told.shape.operators)
    assert max(told.shape.operators.values()) < 2**63 > told.shape.weight_bytes
    assert told.inputs is not None
    assert len(told.inputs.files) + told.inputs.files_left_out == 2000
    assert told.inputs.files[0].bytes == 0
    assert told.inputs.files[0].path.isprintable()
    assert sum(len(file.path) for file in told.inputs.files) < 1e6


@pytest.mark.parametrize("sha256", ["", "ab", "AB" * 32, "zz" * 32, "ab" * 33])
def test_a_digest_that_is_none_is_not_taken(sha256: str) -> None:
    assert folded(replace(DIGESTED, sha256=sha256)).told.inputs is None


def test_an_empty_view_is_a_queued_build_at_time_0(facts: BuildFacts) -> None:
    told = snapshot(facts, BuildView(), 0.0, Detail.FULL)
    assert (told.state, told.seq, told.elapsed_s, told.queue_s) == (State.QUEUED, 0, 0.0, 0.0)
    assert (told.gpu_s, told.quiet_s, told.current, told.activity) == (None, None, None, None)


@pytest.mark.parametrize("current", list(State))
@pytest.mark.parametrize("to", list(State))
def test_only_legal_moves_are_folded(current: State, to: State) -> None:
    view = in_state(current)
    assert view.state is current
    after = fold(view, StateChanged(2.0, to))
    if is_legal(current, to):
        assert after.state is to
    else:
        assert after is view


def test_every_folded_event_but_a_heartbeat_raises_seq_by_one(
    usual_build: list[BuildEvent],
) -> None:
    view = BuildView()
    for event in usual_build:
        after = fold(view, event)
        assert after.seq == view.seq + (0 if isinstance(event, Heartbeat) else 1)
        view = after


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (StateChanged(1, State.STARTING), True),
        (PhaseStarted(1, 2, "q", 1), True),
        (PhaseFinished(1, 1), True),
        (Noted(1, "note"), True),
        (StepCompleted(1, 1, 0), False),
        (LogLine(1, Severity.ERROR, "libraries log a lot"), False),
        (ActivitySampled(1, busy=True, cpu_percent=1.0, rss_bytes=1), False),
        (OptionApplied(1, "o", 1, 1), False),
        (Hello(1, "replay", 1), False),
        (Heartbeat(1, 1, 1.0), False),
        (StateChanged(1, State.BUILDING), False),
        (WRITTEN, False),
    ],
)
def test_a_reader_is_woken_for_states_phases_and_notes_alone(
    event: BuildEvent, *, wakes: bool
) -> None:
    view = folded(Hello(0, "replay", 1), PhaseStarted(0, 1, "p", 9), Hello(0, "replay", 1))
    after = fold(view, event)
    assert after.changed_seq == (after.seq if wakes else view.changed_seq)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED, State.LOST])
def test_nothing_is_folded_after_the_end(state: State, usual_build: list[BuildEvent]) -> None:
    view = in_state(state)
    for event in (*usual_build, Noted(9, "late"), Failed(9, WORKER_ERROR)):
        assert fold(view, event) is view


def test_the_workers_error_holds_until_the_supervisor_has_one() -> None:
    view = folded(StateChanged(1, State.STARTING), Failed(2, WORKER_ERROR))
    assert view.error == WORKER_ERROR
    assert fold(view, StateChanged(3, State.FAILED)).error == WORKER_ERROR
    assert fold(view, StateChanged(3, State.FAILED, error=OWN_ERROR)).error == OWN_ERROR


def test_the_supervisors_error_is_not_displaced_by_the_workers() -> None:
    view = folded(StateChanged(1, State.CANCELLING, error=OWN_ERROR), Failed(2, WORKER_ERROR))
    assert view.error == OWN_ERROR


def test_a_success_shows_no_error_of_the_worker() -> None:
    view = folded(StateChanged(1, State.STARTING), Failed(2, WORKER_ERROR), WRITTEN)
    assert fold(view, StateChanged(3, State.SUCCEEDED)).error is None


def test_an_engine_is_told_of_only_after_success() -> None:
    view = folded(StateChanged(1, State.STARTING), WRITTEN)
    assert view.result is None
    assert fold(view, StateChanged(3, State.FAILED)).result is None
    result = fold(view, StateChanged(3, State.SUCCEEDED)).result
    assert result is not None
    assert (result.engine, result.bytes) == ("/e/m.engine", 5)


def test_a_cancelled_build_keeps_the_reason_it_was_cancelled_for() -> None:
    view = folded(
        StateChanged(1, State.CANCELLING, Reason.BUILD_TIME),
        StateChanged(2, State.CANCELLED, ended_by=Rung.KILL),
    )
    assert view.reason is Reason.BUILD_TIME
    assert view.life.ended_by is Rung.KILL


def test_a_success_after_a_cancel_is_completed() -> None:
    view = folded(
        StateChanged(1, State.STARTING),
        StateChanged(1, State.CANCELLING, Reason.USER_REQUEST),
        StateChanged(2, State.SUCCEEDED),
    )
    assert view.reason is Reason.COMPLETED


def test_the_last_notes_and_warnings_are_kept(facts: BuildFacts) -> None:
    view = folded(
        *(Noted(1, f"note {number}\n") for number in range(30)),
        *(LogLine(1, Severity.WARNING, f"line {number}\x07") for number in range(30)),
        LogLine(1, Severity.INFO, "no warning"),
        LogLine(1, Severity.INTERNAL_ERROR, "last"),
    )
    told = snapshot(facts, view, 2.0, Detail.FULL)
    assert told.notes == [f"note {number}" for number in range(20, 30)]
    assert told.warnings is not None
    assert len(told.warnings) == 20
    assert told.warnings[-2:] == ["warning: line 29", "internal_error: last"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "none"),
        ("x\ny", "x y"),
        (["TF32", "REFIT"], "TF32, REFIT"),
        ({"WORKSPACE": 1024, "TACTIC_DRAM": 5}, "WORKSPACE=1024, TACTIC_DRAM=5"),
        ([], ""),
    ],
)
def test_option_values_are_compact_text(facts: BuildFacts, value: JsonValue, text: str) -> None:
    told = snapshot(facts, folded(OptionApplied(1, "o", value, 0)), 2.0, Detail.FULL)
    assert told.options is not None
    assert (told.options[0].requested, told.options[0].effective) == (text, "0")


def test_an_option_applied_again_is_told_of_once(facts: BuildFacts) -> None:
    view = folded(OptionApplied(1, "level", 9, 5), OptionApplied(1, "level", 4, 4))
    told = snapshot(facts, view, 2.0, Detail.FULL)
    assert told.options is not None
    assert [(option.requested, option.effective) for option in told.options] == [("4", "4")]


def test_versions_come_from_the_loaded_library(facts: BuildFacts) -> None:
    view = folded(Ready(1, {"tensorrt_rtx": "1.7\n"}, "/l", "cpu", Capabilities()))
    assert snapshot(facts, view, 2.0, Detail.FULL).versions == {"tensorrt_rtx": "1.7"}


def test_details_of_an_error_are_cleaned_and_bounded() -> None:
    error = ErrorInfo(
        ErrorCode.UNSUPPORTED_OPERATORS,
        "two\nlines",
        "a\x1b[2Jhint",
        {"operators": [f"Op{number}\r" for number in range(500)], "no\nnumber": math.nan, "n": 3},
    )
    cleaned = folded(Failed(1, error)).error
    assert cleaned is not None
    assert (cleaned.message, cleaned.hint) == ("two lines", "ahint")
    operators = cleaned.details["operators"]
    assert isinstance(operators, list)
    assert (operators[0], operators[-1]) == ("Op0", "… and 300 more")
    assert cleaned.details["no number"] is None
    assert cleaned.details["n"] == 3
