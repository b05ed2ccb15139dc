"""The fraction counts TensorRT's steps, never falls, and is whole only at success."""

from functools import reduce

import pytest

from trt_agent_tools.model.events import Origin, PhaseFinished, PhaseStarted, StepCompleted
from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import BuildEvent, StateChanged
from trt_agent_tools.progress.fraction import progress
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildView

WRAPPER = PhaseStarted(0, 1, "Building", 1, origin=Origin.WORKER)
ROOT = PhaseStarted(1, 2, "Building engine", 4, parent=1)
NOTHING = Progress(basis=Basis.NONE, fraction=None, eta_s=None)


def folded(*events: BuildEvent) -> BuildView:
    return reduce(fold, (StateChanged(0, State.STARTING), *events), BuildView())


def fraction(*events: BuildEvent) -> float | None:
    return progress(folded(*events)).fraction


def test_without_phases_of_tensorrt_there_is_no_fraction() -> None:
    assert progress(folded(WRAPPER, StepCompleted(1, 1, 0))) == NOTHING
    assert progress(folded(WRAPPER, StateChanged(1, State.SUCCEEDED))) == NOTHING


def test_a_child_counts_as_a_part_of_one_step_of_its_parent() -> None:
    child = PhaseStarted(2, 3, "Optimizing graph", 2, parent=2)
    grandchild = PhaseStarted(2, 4, "Timing", 5, parent=3)
    assert fraction(WRAPPER, ROOT) == 0.0
    assert fraction(WRAPPER, ROOT, StepCompleted(2, 2, 0)) == 0.25
    assert fraction(WRAPPER, ROOT, StepCompleted(2, 2, 0), child, StepCompleted(2, 3, 0)) == 0.375
    assert fraction(WRAPPER, ROOT, child, grandchild, StepCompleted(2, 4, 1)) == 0.05


def test_a_child_beyond_the_last_step_of_its_parent_counts_no_more() -> None:
    child = (PhaseStarted(2, 3, "Optimizing graph", 1, parent=2), StepCompleted(2, 3, 0))
    grandchild = (PhaseStarted(2, 4, "Timing", 2, parent=3), StepCompleted(2, 4, 0))
    assert fraction(WRAPPER, ROOT, *child, *grandchild) == 0.25


def test_absurd_numbers_of_steps_give_a_fraction() -> None:
    root = (PhaseStarted(1, 2, "root", 10**400), StepCompleted(1, 2, 10**399))
    child = (PhaseStarted(2, 3, "child", 3, parent=2), StepCompleted(2, 3, 0))
    assert fraction(*root, *child) == 0.99


def test_the_fraction_does_not_fall_when_a_child_ends_before_its_parents_step() -> None:
    child = PhaseStarted(2, 3, "Optimizing graph", 2, parent=2)
    assert fraction(WRAPPER, ROOT, child, StepCompleted(2, 3, 0), PhaseFinished(3, 3)) == 0.125


def test_an_estimate_of_time_is_never_made_from_steps(usual_build: list[BuildEvent]) -> None:
    view = BuildView()
    for event in usual_build:
        view = fold(view, event)
        assert progress(view).eta_s is None


def test_a_usual_build_rises_to_the_whole_only_at_success(usual_build: list[BuildEvent]) -> None:
    view, last = BuildView(), 0.0
    for event in usual_build:
        view = fold(view, event)
        now = progress(view).fraction
        if now is not None:
            assert now >= last
            assert now <= (1.0 if view.state is State.SUCCEEDED else 0.99)
            last = now
    assert last == 1.0


def test_all_phases_finished_is_not_success() -> None:
    events: tuple[BuildEvent, ...] = (WRAPPER, ROOT, StepCompleted(2, 2, 2), PhaseFinished(3, 2))
    assert fraction(*events) == 0.99
    assert fraction(*events, StateChanged(4, State.FAILED)) == 0.99
    assert fraction(*events, StateChanged(4, State.SUCCEEDED)) == 1.0


@pytest.mark.parametrize("end", [(State.FAILED,), (State.CANCELLING, State.CANCELLED)])
def test_a_build_that_ends_early_keeps_what_it_reached(end: tuple[State, ...]) -> None:
    moves = [StateChanged(3, state) for state in end]
    assert fraction(WRAPPER, ROOT, StepCompleted(2, 2, 1), *moves) == 0.5


def test_a_phase_whose_parent_was_not_told_does_not_count() -> None:
    orphan = PhaseStarted(2, 9, "Timing", 2, parent=77)
    assert fraction(WRAPPER, ROOT, StepCompleted(2, 2, 0), orphan, StepCompleted(2, 9, 1)) == 0.25


def test_a_second_root_after_the_first_shows_that_its_steps_were_not_the_whole() -> None:
    again = PhaseStarted(4, 9, "Building engine", 4, parent=1)
    events: tuple[BuildEvent, ...] = (WRAPPER, ROOT, PhaseFinished(3, 2), again)
    assert progress(folded(*events)) == NOTHING
    assert fraction(*events, StateChanged(5, State.SUCCEEDED)) == 1.0
