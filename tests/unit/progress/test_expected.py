"""How far a build is by the time that builds like it took, and what is said of it."""

import math
from collections.abc import Iterator
from functools import reduce

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.progress.test_estimate import some_pasts, wanted
from tests.unit.progress.test_properties import streams, whole_lives
from trt_agent_tools.model.events import Origin, PhaseFinished, PhaseStarted, StepCompleted
from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import TERMINAL, Reason, State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, StateChanged
from trt_agent_tools.progress.estimate import estimate
from trt_agent_tools.progress.expected import expected
from trt_agent_tools.progress.past import Estimate, Past, Span
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.timeline import timeline
from trt_agent_tools.progress.view import BuildFacts, BuildView

some = settings(max_examples=100, deadline=None)

ID = "b_1a2b3c4d"
SILENT = "Building > Building engine > Computing profile costs"
PLAIN = Estimate(20.0, 16.0, 25.0, 3, same=True)
"""20 seconds, without phases."""
PHASED = Estimate(
    20.0,
    16.0,
    25.0,
    3,
    same=True,
    spans=(
        Span("Parsing the model", 1.0, 2.0),
        Span("Building", 2.0, 19.0),
        Span("Building > Building engine", 2.0, 18.0),
        Span(SILENT, 4.0, 14.0),
        Span("Writing the engine", 19.0, 19.5),
    ),
)


def build(scale: float = 1.0, *, queued: float = 0.0) -> Iterator[BuildEvent]:
    """A build whose phases run as those of `PHASED`, `scale` times as long."""

    def at(seconds: float) -> float:
        return queued + scale * seconds

    yield StateChanged(at(0.0), State.STARTING, device="cpu")
    yield PhaseStarted(at(1.0), 1, "Parsing the model", 1, origin=Origin.WORKER)
    yield PhaseFinished(at(2.0), 1)
    yield PhaseStarted(at(2.0), 2, "Building", 1, origin=Origin.WORKER)
    yield StateChanged(at(2.0), State.BUILDING)
    yield PhaseStarted(at(2.0), 3, "Building engine", 4, parent=2)
    yield PhaseStarted(at(4.0), 4, "Computing profile costs", 2, parent=3)
    yield PhaseFinished(at(14.0), 4)
    yield StepCompleted(at(14.0), 3, 0)
    yield PhaseFinished(at(18.0), 3)
    yield PhaseFinished(at(19.0), 2)
    yield PhaseStarted(at(19.0), 5, "Writing the engine", 1, origin=Origin.WORKER)
    yield PhaseFinished(at(19.5), 5)
    yield StateChanged(at(20.0), State.SUCCEEDED, Reason.COMPLETED)


def seen(events: Iterator[BuildEvent], until: float) -> BuildView:
    return reduce(fold, (event for event in events if event.at <= until), BuildView())


def left(found: Estimate, view: BuildView, now: float) -> float:
    eta = expected(found, view, now, 0.0).eta_s
    assert eta is not None
    return eta


@pytest.mark.parametrize("found", [PLAIN, PHASED])
@pytest.mark.parametrize("now", [0.0, 0.5, 3.0, 4.0, 10.0, 15.0, 18.5])
def test_a_build_like_those_before_is_foretold_to_the_second(found: Estimate, now: float) -> None:
    told = expected(found, seen(build(), now), now, 0.0)
    assert told.basis is Basis.HISTORY
    assert told.eta_s == pytest.approx(20.0 - now, abs=0.2)
    assert told.fraction == pytest.approx(now / 20.0, abs=0.01)
    assert told.builds == 3


def test_a_phase_that_comes_late_tells_that_all_else_will() -> None:
    slow = seen(build(1.6), 16.0)
    assert left(PLAIN, slow, 16.0) == pytest.approx(4.0)
    assert 10.0 < left(PHASED, slow, 16.0) < 16.0


def test_a_phase_that_comes_early_tells_that_all_else_will() -> None:
    assert left(PHASED, seen(build(0.7), 10.0), 10.0) == pytest.approx(4.0, rel=0.25)


def test_what_comes_after_the_running_phase_is_still_to_come_however_long_it_runs() -> None:
    view = seen(build(), 13.0)
    for now in (15.0, 20.0, 30.0, 100.0):
        told = expected(PHASED, view, now, 0.0)
        assert told.eta_s is not None
        assert told.eta_low_s is not None
        assert told.eta_s > 6.0
        assert told.eta_low_s > 4.0


def test_a_phase_of_a_known_name_at_quite_another_time_is_another_one() -> None:
    events: list[BuildEvent] = [
        StateChanged(0.0, State.STARTING),
        PhaseStarted(0.1, 1, "Writing the engine", 1, origin=Origin.WORKER),
    ]
    assert left(PHASED, reduce(fold, events, BuildView()), 1.0) == pytest.approx(19.0, abs=0.1)


def test_an_estimate_that_is_used_up_leaves_a_little_and_its_bound_widens() -> None:
    view = seen(build(), 3.0)
    shown = [expected(PLAIN, view, now, 0.0) for now in (26.0, 30.0, 40.0, 80.0, 160.0)]
    highs = [each.eta_high_s or 0.0 for each in shown]
    assert all(0.0 < (each.eta_s or 0.0) < 3.0 for each in shown)
    assert highs == sorted(set(highs))
    assert highs[-1] > 100.0


def test_time_counts_from_the_device_and_no_eta_is_told_in_a_queue() -> None:
    queued = expected(PLAIN, BuildView(), 50.0, 0.0)
    assert (queued.fraction, queued.eta_s, queued.builds) == (0.0, None, 3)
    assert left(PLAIN, seen(build(queued=100.0), 103.0), 103.0) == pytest.approx(17.0)


def test_an_end_that_was_asked_for_is_no_eta() -> None:
    view = fold(seen(build(), 10.0), StateChanged(10.0, State.CANCELLING, Reason.USER_REQUEST))
    told = expected(PLAIN, view, 11.0, 0.3)
    assert told.eta_s is told.eta_low_s is told.eta_high_s is None
    assert told.fraction == pytest.approx(0.55)


def test_success_is_the_whole_and_another_end_keeps_what_was_reached() -> None:
    done = expected(PHASED, seen(build(), 20.0), 20.0, 0.97)
    assert done == Progress(basis=Basis.HISTORY, fraction=1.0, builds=3)
    failed = fold(seen(build(), 10.0), StateChanged(10.0, State.FAILED, Reason.BUILDER_ERROR))
    for now in (10.0, 99.0):
        ended = expected(PHASED, failed, now, 0.4)
        assert ended == Progress(basis=Basis.HISTORY, fraction=0.5, builds=3)


def test_what_ran_when_is_read_off_a_build() -> None:
    spans = timeline(seen(build(queued=7.0), 30.0))
    assert spans == PHASED.spans
    assert timeline(seen(build(), 30.0), longest=2) == PHASED.spans[1:3]
    assert timeline(BuildView()) == ()


@some
@given(streams, some_pasts, st.floats(0, 500))
def test_bounds_hold_and_the_fraction_never_falls(
    events: list[BuildEvent], same: list[Past], now: float
) -> None:
    found = estimate(wanted(), same, []) or PHASED
    floor = 0.0
    view = BuildView()
    for event in events:
        view = fold(view, event)
        told = expected(found, view, max(view.latest, now), floor)
        assert told.fraction is not None
        assert floor <= told.fraction <= (1.0 if view.state is State.SUCCEEDED else 0.99)
        floor = told.fraction
        bounds = (told.eta_low_s, told.eta_s, told.eta_high_s)
        if view.state in {State.STARTING, State.BUILDING}:
            low, eta, high = (-1.0 if each is None else each for each in bounds)
            assert 0 <= low <= eta <= high < math.inf
            assert eta > 0
        else:
            assert bounds == (None, None, None)


def ended(event: StateChanged) -> bool:
    return event.state in TERMINAL


@some
@given(
    whole_lives(),
    st.sampled_from([PLAIN, PHASED]),
    st.lists(st.floats(1.0, 10.0), min_size=2, max_size=10),
)
def test_the_fraction_moves_while_nothing_is_heard(
    events: list[BuildEvent], found: Estimate, pauses: list[float]
) -> None:
    live = [event for event in events if not isinstance(event, StateChanged) or not ended(event)]
    view = reduce(fold, live, BuildView())
    assume(view.started_at is not None)
    now = max(view.latest, view.started_at or 0.0)
    shown = expected(found, view, now, 0.0).fraction
    assert shown is not None
    for pause in pauses:
        now += pause
        later = expected(found, view, now, shown).fraction
        assert later is not None
        assert later > shown or shown == 0.99
        shown = later


@pytest.mark.parametrize("floor", [math.nan, math.inf, -1.0, 2.0])
def test_a_floor_that_cannot_be_does_no_harm(floor: float) -> None:
    told = expected(PLAIN, seen(build(), 10.0), 10.0, floor)
    assert told.fraction is not None
    assert 0.5 <= told.fraction <= 0.99


def line(facts: BuildFacts, now: float, found: Estimate | None, *more: BuildEvent) -> str:
    view = reduce(fold, more, seen(build(), now))
    return snapshot(facts, view, now, estimate=found).summary


def busy(at: float) -> ActivitySampled:
    return ActivitySampled(at, busy=True, cpu_percent=99.0, rss_bytes=1)


def test_the_line_tells_what_is_left_and_on_what_that_rests(facts: BuildFacts) -> None:
    doing = "Computing profile costs 0/2"
    assert line(facts, 8.0, PHASED, busy(7.9)) == (
        f"{ID} building 8.0s, about 12s left (9s to 16s, from 3 builds): {doing}"
    )
    alike = Estimate(200.0, 100.0, 400.0, 1, same=False)
    assert line(facts, 8.0, alike, busy(7.9)) == (
        f"{ID} building 8.0s, about 3m12s left (1m32s to 6m32s, from 1 similar build): {doing}"
    )


def test_the_line_keeps_a_silence_that_nothing_explains(facts: BuildFacts) -> None:
    idle = ActivitySampled(7.9, busy=False, cpu_percent=0.0, rss_bytes=1)
    assert line(facts, 8.0, PHASED, idle).endswith("; no callback for 4.0s and no CPU use")


def test_the_line_says_when_a_build_is_late(facts: BuildFacts) -> None:
    view = fold(seen(build(), 13.0), busy(29.9))
    late = snapshot(facts, view, 30.0, estimate=PHASED).summary
    assert late == (
        f"{ID} building 30.0s, longer than expected (about 20s, from 3 builds):"
        " Computing profile costs 0/2"
    )


def test_the_line_of_a_queued_build_tells_its_own_length(facts: BuildFacts) -> None:
    assert snapshot(facts, BuildView(), 3.2, estimate=PLAIN).summary == (
        f"{ID} queued 3.2s: waits for its device, then takes about 20s (16s to 25s, from 3 builds)"
    )


def test_without_an_estimate_a_snapshot_rests_on_steps(facts: BuildFacts) -> None:
    told = snapshot(facts, seen(build(), 15.0), 15.0).progress
    assert told == Progress(basis=Basis.STEPS, fraction=0.25)
