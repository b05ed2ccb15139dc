"""Spans of time: what they count, when they stand still, and that none is ever negative."""

import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.events import (
    Heartbeat,
    Origin,
    PhaseFinished,
    PhaseStarted,
    StepCompleted,
)
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, StateChanged
from trt_agent_tools.progress.clock import Spans
from trt_agent_tools.progress.polling import poll_after_ms
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import SAMPLE_FRESH_S, snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

WILD = [math.nan, math.inf, -math.inf, -5.0, 1e300]


def folded(*events: BuildEvent) -> BuildView:
    return reduce(fold, events, BuildView())


def test_the_queue_ends_and_the_device_is_held_from_the_start(facts: BuildFacts) -> None:
    waiting = snapshot(facts, BuildView(), 3.0, Detail.TREE)
    assert (waiting.queue_s, waiting.gpu_s) == (3.0, None)
    view = folded(StateChanged(4.0, State.STARTING))
    running = snapshot(facts, view, 9.0, Detail.TREE)
    assert (running.elapsed_s, running.queue_s, running.gpu_s) == (9.0, 4.0, 5.0)


def test_time_stands_still_after_the_end(facts: BuildFacts, usual_build: list[BuildEvent]) -> None:
    view = folded(*usual_build)
    for detail in Detail:
        at_the_end = snapshot(facts, view, 14.2, detail)
        assert (at_the_end.elapsed_s, at_the_end.gpu_s, at_the_end.quiet_s) == (14.2, 14.1, None)
        for later in (15.0, 1e6, 0.0, *WILD):
            assert snapshot(facts, view, later, detail) == at_the_end


def test_a_build_that_never_left_the_queue_held_no_device(facts: BuildFacts) -> None:
    view = folded(StateChanged(2.0, State.CANCELLING), StateChanged(2.5, State.CANCELLED))
    told = snapshot(facts, view, 100.0, Detail.TREE)
    assert (told.elapsed_s, told.queue_s, told.gpu_s) == (2.5, 2.5, None)


def test_quiet_counts_from_the_builders_last_callback_alone(facts: BuildFacts) -> None:
    view = folded(
        StateChanged(0.0, State.STARTING),
        PhaseStarted(1.0, 1, "Building", 1, origin=Origin.WORKER),
    )
    assert snapshot(facts, view, 5.0).quiet_s is None
    view = fold(view, PhaseStarted(5.0, 2, "Building engine", 6, parent=1))
    assert snapshot(facts, view, 6.0).quiet_s == 1.0
    view = fold(view, StepCompleted(7.0, 2, 0))
    view = fold(view, ActivitySampled(8.0, busy=True, cpu_percent=1, rss_bytes=1))
    assert snapshot(facts, view, 9.0).quiet_s == 2.0
    view = fold(view, StepCompleted(9.0, 1, 0))
    assert snapshot(facts, view, 9.0).quiet_s == 2.0
    view = fold(view, StepCompleted(6.0, 2, 1))
    assert snapshot(facts, view, 9.0).quiet_s == 2.0
    view = fold(view, Heartbeat(10.0, 50, 9.5))
    assert snapshot(facts, view, 10.0).quiet_s == 0.5
    view = fold(view, Heartbeat(11.0, 50, 3.0))
    assert snapshot(facts, view, 11.0).quiet_s == 1.5
    view = fold(view, PhaseFinished(12.0, 2))
    assert snapshot(facts, view, 15.0).quiet_s == 3.0


def test_a_builder_that_has_returned_is_not_called_quiet(facts: BuildFacts) -> None:
    view = folded(
        StateChanged(0.0, State.STARTING),
        PhaseStarted(1.0, 1, "Building", 1, origin=Origin.WORKER),
        PhaseStarted(1.0, 2, "Building engine", 6, parent=1),
        PhaseFinished(2.0, 2),
        PhaseFinished(3.0, 1),
        PhaseStarted(3.0, 3, "Writing the engine", 1, origin=Origin.WORKER),
    )
    assert snapshot(facts, view, 90.0).quiet_s is None


@pytest.mark.parametrize("at", WILD)
def test_wild_times_give_no_negative_or_endless_span(facts: BuildFacts, at: float) -> None:
    view = folded(
        StateChanged(3.0, State.STARTING),
        PhaseStarted(at, 1, "p", 3),
        Heartbeat(at, 1, at),
        StepCompleted(at, 1, 1),
        ActivitySampled(at, busy=False, cpu_percent=at, rss_bytes=-1, gpu_percent=at),
    )
    finished = fold(view, PhaseFinished(1.0, 1))
    for each in (view, finished, fold(finished, StateChanged(at, State.FAILED))):
        told = snapshot(facts, each, 4.0, Detail.FULL)
        assert told.phases is not None
        for seconds in (told.elapsed_s, told.gpu_s, told.quiet_s or 0, told.phases[0].elapsed_s):
            assert seconds is not None
            assert 0 <= seconds <= 4.0


@pytest.mark.parametrize("last_callback", [None, *WILD])
def test_a_heartbeat_without_a_usable_callback_changes_nothing(last_callback: float | None) -> None:
    view = folded(StateChanged(3.0, State.STARTING))
    assert fold(view, Heartbeat(4.0, 0, last_callback)) is view


def test_what_is_no_number_is_not_taken_for_an_idle_gpu(facts: BuildFacts) -> None:
    view = folded(ActivitySampled(1.0, busy=True, cpu_percent=5, rss_bytes=7, gpu_percent=math.nan))
    activity = snapshot(facts, view, 2.0).activity
    assert activity is not None
    assert activity.gpu_percent is None


def test_states_never_go_back_in_time(facts: BuildFacts) -> None:
    view = folded(StateChanged(5.0, State.STARTING), StateChanged(4.0, State.FAILED))
    told = snapshot(facts, view, 9.0, Detail.TREE)
    assert (told.elapsed_s, told.queue_s, told.gpu_s) == (5.0, 5.0, 0.0)


def test_an_old_sample_says_nothing_about_now(facts: BuildFacts) -> None:
    view = folded(ActivitySampled(1.0, busy=True, cpu_percent=50.0, rss_bytes=7))
    assert snapshot(facts, view, 2.0).activity is not None
    assert snapshot(facts, view, 1.1 + SAMPLE_FRESH_S).activity is None


@pytest.mark.parametrize(
    ("state", "gpu_s", "quiet_s", "expected"),
    [
        (State.QUEUED, None, None, 120_000),
        (State.STARTING, 0.1, None, 2000),
        (State.BUILDING, 3.2, 0.1, 3000),
        (State.BUILDING, 3.2, 3.0, 5000),
        (State.BUILDING, 30.0, 0.0, 30_000),
        (State.BUILDING, 30.0, 29.0, 45_000),
        (State.BUILDING, 1e7, 0.0, 120_000),
        (State.BUILDING, 1e7, 1e6, 180_000),
        (State.CANCELLING, 1e7, 1e6, 1000),
        (State.SUCCEEDED, 5.0, None, None),
        (State.FAILED, 5.0, None, None),
        (State.CANCELLED, 5.0, None, None),
        (State.LOST, 5.0, None, None),
    ],
)
def test_looks_grow_rarer_as_a_build_runs_rarest_in_a_silent_step_and_stop_at_its_end(
    state: State, gpu_s: float | None, quiet_s: float | None, expected: int | None
) -> None:
    spans = Spans(until=1e7, elapsed_s=1e7, queue_s=0.0, gpu_s=gpu_s, quiet_s=quiet_s)
    assert poll_after_ms(state, spans) == expected


@given(
    quiet=st.lists(st.floats(0.0, 600.0), min_size=1, max_size=20),
    queue_s=st.floats(0.0, 60.0),
    call_s=st.floats(0.0, 1.0),
)
def test_who_follows_it_needs_twelve_calls_for_a_build_of_ten_minutes(
    quiet: list[float], queue_s: float, call_s: float
) -> None:
    ends_at, at, calls = 600.0, 0.0, 1
    while at < ends_at:
        quiet_s = min(quiet[calls % len(quiet)], at)
        spans = Spans(
            until=at + queue_s, elapsed_s=at + queue_s, queue_s=queue_s, gpu_s=at, quiet_s=quiet_s
        )
        wait_ms = poll_after_ms(State.BUILDING, spans)
        assert wait_ms is not None
        at += wait_ms / 1000 + call_s
        calls += 1
    assert calls <= 12
