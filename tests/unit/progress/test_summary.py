"""The one line: what an agent learns that reads nothing else, and nothing that is not known."""

from functools import reduce

import pytest

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import (
    EngineWritten,
    Failed,
    Origin,
    PhaseFinished,
    PhaseStarted,
    StepCompleted,
)
from trt_agent_tools.model.proposal import Change, Proposal
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, StateChanged
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

ID = "b_1a2b3c4d"
STARTED = (StateChanged(0.0, State.STARTING),)
BUILDING = (
    *STARTED,
    PhaseStarted(0.5, 1, "Building", 1, origin=Origin.WORKER),
    StateChanged(1.0, State.BUILDING),
    PhaseStarted(1.0, 2, "Building engine", 4, parent=1),
    StepCompleted(1.0, 2, 0),
)
SILENT = (*BUILDING, PhaseStarted(1.0, 3, "Determining refit engines", 1, parent=2))
TAIL = (*BUILDING, PhaseFinished(2.0, 2))
WRITTEN = EngineWritten(4.0, "/engines/here/model.engine", 12_300_000, "ab", "/m.json")


def line(facts: BuildFacts, now: float, *events: BuildEvent) -> str:
    return snapshot(facts, reduce(fold, events, BuildView()), now).summary


def sampled(at: float, *, busy: bool, cpu: float, gpu: float | None = None) -> ActivitySampled:
    return ActivitySampled(at, busy=busy, cpu_percent=cpu, rss_bytes=1, gpu_percent=gpu)


def test_a_queued_build_waits_for_its_device(facts: BuildFacts) -> None:
    assert line(facts, 3.2) == f"{ID} queued 3.2s: waits for its device"


def test_a_starting_build_tells_what_its_worker_does(facts: BuildFacts) -> None:
    assert line(facts, 0.3, *STARTED) == f"{ID} starting 0.3s: its worker process starts"
    parsing = PhaseStarted(0.5, 1, "Parsing the model", 1, origin=Origin.WORKER)
    assert line(facts, 0.8, *STARTED, parsing) == f"{ID} starting 0.8s: Parsing the model"
    assert line(facts, 9.0, *STARTED, parsing) == (
        f"{ID} starting 9.0s: Parsing the model, for 8.5s so far"
    )
    over = PhaseFinished(9.0, 1)
    assert line(facts, 9.0, *STARTED, parsing, over) == f"{ID} starting 9.0s: between two phases"


def test_a_lively_build_tells_its_place_and_steps(facts: BuildFacts) -> None:
    deep = (
        PhaseStarted(1.0, 3, "Computing profile costs", 5, parent=2),
        PhaseStarted(1.0, 4, "Timing graph nodes", 3, parent=3),
        StepCompleted(2.0, 4, 0),
    )
    assert line(facts, 2.5, *BUILDING, *deep) == (
        f"{ID} building 2.5s, 27% of steps: Building engine > … > Timing graph nodes 1/3"
    )


def test_quiet_and_busy_is_work_inside_one_step(facts: BuildFacts) -> None:
    busy = sampled(8.9, busy=True, cpu=98.4)
    assert line(facts, 9.2, *SILENT, busy) == (
        f"{ID} building 9.2s, 25% of steps: Building engine > Determining refit engines;"
        " no callback for 8.2s, CPU 98%: working inside one step"
    )
    with_gpu = sampled(8.9, busy=True, cpu=3.0, gpu=71.0)
    assert line(facts, 9.2, *SILENT, with_gpu).endswith(
        "; no callback for 8.2s, CPU 3%, GPU 71%: working inside one step"
    )


def test_quiet_and_busy_after_the_last_step_is_not_called_a_step(facts: BuildFacts) -> None:
    done = StepCompleted(1.0, 2, 3)
    busy = sampled(8.9, busy=True, cpu=98.4)
    assert line(facts, 9.0, *BUILDING, done, busy).endswith("CPU 98%: still working")


@pytest.mark.parametrize(
    ("cpu", "gpu", "text"),
    [
        (0.0, 0.0, "no callback for 1m00s and no CPU or GPU use"),
        (0.0, None, "no callback for 1m00s and no CPU use"),
        (2.0, 0.0, "no callback for 1m00s and little CPU or GPU use (CPU 2%, GPU 0%)"),
        (2.0, None, "no callback for 1m00s and little CPU use (CPU 2%)"),
    ],
)
def test_quiet_and_idle_is_stated_and_not_judged(
    facts: BuildFacts, cpu: float, gpu: float | None, text: str
) -> None:
    told = line(facts, 61.0, *SILENT, sampled(60.5, busy=False, cpu=cpu, gpu=gpu))
    assert told.endswith(f"; {text}")
    assert "hung" not in told


def test_quiet_alone_is_told_where_the_activity_is_not_known(facts: BuildFacts) -> None:
    assert line(facts, 9.2, *SILENT).endswith("Determining refit engines; no callback for 8.2s")


@pytest.mark.parametrize(("at", "now"), [(0.9, 9.0), (5.0, 20.0)])
def test_a_sample_from_before_the_silence_or_long_ago_proves_nothing(
    facts: BuildFacts, at: float, now: float
) -> None:
    told = line(facts, now, *SILENT, sampled(at, busy=True, cpu=99.0))
    assert told.endswith(f"; no callback for {now - 1.0}s")


def test_a_short_silence_is_not_worth_a_word(facts: BuildFacts) -> None:
    assert line(facts, 2.9, *SILENT).endswith("Determining refit engines")


def test_the_silent_tail_is_not_called_finished(facts: BuildFacts) -> None:
    assert line(facts, 3.0, *TAIL) == (
        f"{ID} building 3.0s: TensorRT's phases have finished, its builder has not returned yet"
    )
    assert line(facts, 5.0, *TAIL, sampled(4.9, busy=True, cpu=97.0)).endswith(
        "has not returned yet; no callback for 3.0s, CPU 97%: still working"
    )


def test_after_the_builder_returned_the_worker_is_named(facts: BuildFacts) -> None:
    returned = (*TAIL, PhaseFinished(3.0, 1))
    assert line(facts, 3.0, *returned) == f"{ID} building 3.0s: TensorRT's phases have finished"
    writing = PhaseStarted(3.0, 9, "Writing the engine", 1, origin=Origin.WORKER)
    assert line(facts, 3.5, *returned, writing) == f"{ID} building 3.5s: Writing the engine"
    assert line(facts, 4.0, *returned, writing, PhaseFinished(4.0, 9), WRITTEN) == (
        f"{ID} building 4.0s: the engine is written, its worker process has not ended yet"
    )


def test_a_cancelling_build_tells_what_is_waited_for(facts: BuildFacts) -> None:
    asked = StateChanged(5.0, State.CANCELLING, Reason.USER_REQUEST)
    assert line(facts, 6.2, *SILENT, asked) == (
        f"{ID} cancelling for 1.2s (user_request): waits until all of its processes are gone;"
        " in Building engine > Determining refit engines"
    )
    assert line(facts, 6.2, asked) == (
        f"{ID} cancelling for 1.2s (user_request): waits to leave the queue"
    )


def test_a_cancelled_build_tells_why_where_and_by_which_rung(facts: BuildFacts) -> None:
    asked = StateChanged(5.0, State.CANCELLING, Reason.USER_REQUEST)
    gone = StateChanged(7.3, State.CANCELLED, ended_by=Rung.KILL)
    assert line(facts, 99.0, *SILENT, asked, gone) == (
        f"{ID} cancelled after 7.3s (user_request) in Determining refit engines, ended by kill"
    )


def test_a_build_over_its_limit_tells_what_to_try_next_if_that_is_short(facts: BuildFacts) -> None:
    def ended(change: Change) -> str:
        best = Proposal(change=change, why="", expected_s=484.0)
        proposals = (best, Proposal(change=Change(profiles=1), why=""))
        asked = StateChanged(5.0, State.CANCELLING, Reason.BUILD_TIME)
        return line(
            facts, 99.0, asked, StateChanged(7.3, State.CANCELLED, proposals=proposals)
        ).removeprefix(f"{ID} cancelled after 7.3s (build_time)")

    assert ended(Change(builder_optimization_level=1)) == (
        "; try builder_optimization_level 1 (takes about 8m04s)"
    )
    long = dict.fromkeys((Rule.BUILD_TIME, Rule.GPU_TIME), "23h59m59s")
    assert ended(Change(limits=long, extend=long)) == ""


def test_a_success_tells_the_engine_and_its_size(facts: BuildFacts) -> None:
    done = StateChanged(14.2, State.SUCCEEDED)
    assert line(facts, 99.0, *STARTED, WRITTEN, done) == (
        f"{ID} succeeded in 14.2s: model.engine (12.3 MB)"
    )


def test_a_success_tells_how_long_it_was_queued(facts: BuildFacts) -> None:
    events = (StateChanged(10.0, State.STARTING), WRITTEN, StateChanged(14.2, State.SUCCEEDED))
    assert line(facts, 99.0, *events) == (
        f"{ID} succeeded in 14.2s, 10.0s of it queued: model.engine (12.3 MB)"
    )


def test_a_success_that_a_cancel_came_too_late_for_says_so(facts: BuildFacts) -> None:
    asked = StateChanged(5.0, State.CANCELLING)
    done = StateChanged(14.2, State.SUCCEEDED)
    assert line(facts, 99.0, *STARTED, WRITTEN, asked, done).endswith(
        "model.engine (12.3 MB); complete before the cancel reached it"
    )


def test_a_failure_tells_code_message_and_hint(facts: BuildFacts) -> None:
    error = ErrorInfo(
        ErrorCode.UNSUPPORTED_OPERATORS,
        "The parser knows no FooOp, BarOp.",
        "Remove them or load a plugin.",
    )
    parsing = PhaseStarted(0.2, 1, "Parsing the model", 1, origin=Origin.WORKER)
    events = (*STARTED, parsing, Failed(0.3, error), StateChanged(0.4, State.FAILED))
    assert line(facts, 99.0, *events) == (
        f"{ID} failed after 0.4s (unsupported_operators) in Parsing the model:"
        " The parser knows no FooOp, BarOp. Remove them or load a plugin."
    )


def test_a_failure_with_endless_text_stays_one_short_line(facts: BuildFacts) -> None:
    error = ErrorInfo(ErrorCode.BUILDER_ERROR, "word\n" * 5000, "hint\t" * 5000)
    failed = StateChanged(0.4, State.FAILED, Reason.BUILDER_ERROR, error=error)
    told = line(facts, 99.0, *STARTED, failed)
    assert told.startswith(f"{ID} failed after 0.4s (builder_error): word word")
    assert len(told) < 260


def test_a_failure_without_an_error_tells_its_reason_and_place(facts: BuildFacts) -> None:
    crash = StateChanged(4.0, State.FAILED, Reason.WORKER_CRASH)
    assert line(facts, 99.0, *SILENT, crash) == (
        f"{ID} failed after 4.0s (worker_crash) in Determining refit engines"
    )


def test_a_lost_build_claims_nothing(facts: BuildFacts) -> None:
    assert line(facts, 99.0, *SILENT, StateChanged(4.0, State.LOST)) == (
        f"{ID} lost after 4.0s in Determining refit engines: its supervisor ended under it;"
        " what it did afterwards is not known"
    )


def test_every_line_of_a_usual_build_is_short_and_begins_with_id_and_state(
    facts: BuildFacts, usual_build: list[BuildEvent]
) -> None:
    view = BuildView()
    for event in usual_build:
        view = fold(view, event)
        told = snapshot(facts, view, event.at).summary
        assert told.startswith(f"{ID} {view.state.value} ")
        assert len(told) <= 180


def test_endless_phase_names_stay_one_short_line(facts: BuildFacts) -> None:
    long = [PhaseStarted(1.0, 10 + depth, "n" * 900, 5, parent=9 + depth) for depth in range(5)]
    assert len(line(facts, 1.5, *BUILDING, *long)) <= 200
