"""What the rules look at: clocks that count what they say, and nothing that is not known."""

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.builds import Recorded, recorded_builds
from trt_agent_tools.model.events import (
    Heartbeat,
    LogLine,
    Origin,
    PhaseFinished,
    PhaseStarted,
    Severity,
    StepCompleted,
)
from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, StateChanged
from trt_agent_tools.policy.observation import SAMPLE_FRESH_S, Observation, RunningPhase, observe
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildView

STARTED = StateChanged(10.0, State.STARTING)
WRAPPER = PhaseStarted(12.0, 1, "Building", 1, origin=Origin.WORKER)
ROOT = PhaseStarted(13.0, 2, "Building engine", 6, parent=1)
BUILDING = StateChanged(13.0, State.BUILDING)
USUAL: tuple[BuildEvent, ...] = (STARTED, WRAPPER, ROOT, BUILDING)


def seen(
    *events: BuildEvent, now: float = 20.0, attended_at: float = 0.0, watched_since: float = 0.0
) -> Observation:
    view = reduce(fold, events, BuildView())
    return observe(view, now, attended_at=attended_at, watched_since=watched_since)


def sample(at: float, *, busy: bool) -> ActivitySampled:
    return ActivitySampled(at, busy, 99.0 if busy else 0.1, 1000, gpu_memory_bytes=500)


def test_a_queued_build_only_waits() -> None:
    assert seen(now=7.0) == Observation(7.0, 0, State.QUEUED, queue_s=7.0, unattended_s=7.0)


def test_a_starting_build_holds_its_device_and_has_not_begun() -> None:
    found = seen(STARTED, WRAPPER)
    assert (found.held_s, found.startup_s) == (10.0, 10.0)
    assert (found.queue_s, found.quiet_s) == (None, None)
    assert found.phases == (RunningPhase(("Building",), 8.0),)


def test_a_builder_at_work_is_quiet_since_its_last_callback() -> None:
    found = seen(*USUAL, StepCompleted(15.0, 2, 0))
    assert (found.held_s, found.startup_s, found.quiet_s) == (10.0, None, 5.0)


def test_a_heartbeat_tells_of_a_callback_that_no_event_told_of() -> None:
    found = seen(*USUAL, sample(16.5, busy=False), Heartbeat(17.0, 40, 16.0))
    assert (found.quiet_s, found.inactive_s) == (4.0, 4.0)


@pytest.mark.parametrize(
    ("events", "inactive_s"),
    [
        ((sample(19.0, busy=False),), 7.0),
        ((sample(18.0, busy=True), sample(19.0, busy=False)), 2.0),
        ((sample(19.0, busy=True),), 1.0),
        ((sample(19.0, busy=False), StepCompleted(19.5, 2, 0)), 0.5),
        ((sample(19.0, busy=False), LogLine(19.5, Severity.WARNING, "x")), 7.0),
        ((sample(20.0 - SAMPLE_FRESH_S, busy=False),), 7.0),
    ],
)
def test_inactive_is_no_callback_and_no_use_of_cpu_or_gpu(
    events: tuple[BuildEvent, ...], inactive_s: float
) -> None:
    assert seen(*USUAL, *events).inactive_s == inactive_s


def test_a_step_of_the_workers_own_is_a_sign() -> None:
    parsing = PhaseStarted(11.0, 7, "Parsing the model", 2, origin=Origin.WORKER)
    idle = sample(19.0, busy=False)
    assert seen(STARTED, parsing, idle).inactive_s == 9.0
    assert seen(STARTED, parsing, StepCompleted(17.0, 7, 0), idle).inactive_s == 3.0


def test_signs_out_of_order_do_not_make_a_build_look_longer_inactive() -> None:
    idle = sample(19.5, busy=False)
    assert seen(*USUAL, StepCompleted(19.0, 1, 0), StepCompleted(12.5, 2, 0), idle).inactive_s == 1
    assert seen(*USUAL, sample(19.0, busy=True), sample(12.0, busy=True), idle).inactive_s == 1


def test_without_a_fresh_sample_nobody_knows_whether_it_is_inactive() -> None:
    assert seen(*USUAL).inactive_s is None
    stale = seen(*USUAL, sample(20.0 - SAMPLE_FRESH_S - 0.1, busy=False))
    assert (stale.inactive_s, stale.rss_bytes, stale.gpu_memory_bytes) == (None, None, None)
    fresh = seen(*USUAL, sample(19.0, busy=False))
    assert (fresh.rss_bytes, fresh.gpu_memory_bytes) == (1000, 500)


def test_a_build_is_not_inactive_for_longer_than_it_has_its_device() -> None:
    found = seen(StateChanged(19.0, State.STARTING), sample(19.5, busy=False))
    assert found.inactive_s == 1.0


def test_writing_the_engine_to_a_slow_disk_is_neither_silence_nor_a_stall() -> None:
    returned = (PhaseFinished(14.0, 2), PhaseFinished(14.5, 1))
    writing = PhaseStarted(14.5, 3, "Writing the engine", 1, origin=Origin.WORKER)
    found = seen(*USUAL, *returned, writing, sample(900.0, busy=False), now=900.0)
    assert (found.quiet_s, found.inactive_s) == (None, None)
    assert found.held_s == 890.0


def test_what_was_not_watched_is_no_silence() -> None:
    idle = (*USUAL, sample(1000.0, busy=False))
    asleep = seen(*idle, now=1000.0, watched_since=995.0)
    assert (asleep.quiet_s, asleep.inactive_s, asleep.unattended_s) == (5.0, 5.0, 5.0)
    assert asleep.held_s == 990.0
    awake = seen(*idle, now=1000.0)
    assert (awake.quiet_s, awake.inactive_s, awake.unattended_s) == (987.0, 987.0, 1000.0)
    assert seen(now=1000.0, watched_since=995.0).unattended_s == 5.0


def test_asking_about_a_build_attends_to_it() -> None:
    assert seen(*USUAL, attended_at=18.0).unattended_s == 2.0


def test_a_clock_that_goes_back_counts_nothing_twice_and_nothing_negative() -> None:
    found = seen(*USUAL, sample(19.0, busy=True), now=5.0, attended_at=18.0)
    for measure in (found.held_s, found.quiet_s, found.inactive_s, found.unattended_s):
        assert measure == 0.0
    assert all(phase.elapsed_s == 0.0 for phase in found.phases)


def test_phases_beside_the_newest_one_are_seen_too() -> None:
    one = PhaseStarted(14.0, 3, "Timing", 5, parent=2)
    other = PhaseStarted(18.0, 4, "Cloning", 5, parent=2)
    above = ("Building", "Building engine")
    assert seen(*USUAL, one, other).phases == (
        RunningPhase(above[:1], 8.0),
        RunningPhase(above, 7.0),
        RunningPhase((*above, "Timing"), 6.0),
        RunningPhase((*above, "Cloning"), 2.0),
    )
    assert seen(*USUAL, one, other).current == "Cloning"


def test_only_past_builds_let_expect_an_end() -> None:
    view = reduce(fold, USUAL, BuildView())
    history = Progress(basis=Basis.HISTORY, fraction=0.5, eta_s=90.0)
    assert observe(view, 20.0, estimate=history).projected_s == 100.0
    steps = Progress(basis=Basis.STEPS, fraction=0.5, eta_s=90.0)
    assert observe(view, 20.0, estimate=steps).projected_s is None
    assert observe(view, 20.0).projected_s is None


@pytest.mark.parametrize("state", [State.CANCELLING, State.SUCCEEDED, State.FAILED])
def test_a_build_that_ends_or_has_ended_is_not_judged(state: State) -> None:
    found = seen(*USUAL, sample(19.0, busy=False), StateChanged(19.5, state))
    assert found == Observation(found.at, found.seq, state)


@given(recorded_builds(), st.floats(), st.floats(), st.floats())
def test_whatever_the_clocks_say_no_measure_is_negative_or_infinite(
    build: Recorded, now: float, attended_at: float, watched_since: float
) -> None:
    view = fold(BuildView(), StateChanged(0.0, State.STARTING))
    for event in build.events:
        view = fold(view, event)
    for state in (view, replace(view, life=replace(view.life, state=State.BUILDING))):
        found = observe(state, now, attended_at=attended_at, watched_since=watched_since)
        measures = (found.held_s, found.quiet_s, found.inactive_s, found.unattended_s)
        for measure in (*measures, *(phase.elapsed_s for phase in found.phases)):
            assert measure is None or 0.0 <= measure < float("inf")
