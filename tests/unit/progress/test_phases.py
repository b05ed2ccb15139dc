"""The phase tree: instances, not names, and whatever order they come in."""

from functools import reduce

import pytest

from trt_agent_tools.model.events import Origin, PhaseFinished, PhaseStarted, StepCompleted
from trt_agent_tools.model.snapshot import Detail, Phase, PhaseStatus, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import BuildEvent, StateChanged
from trt_agent_tools.progress.phases import MAX_DEPTH, MAX_PHASES
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import TREE_PHASES, snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

BUILDING = (StateChanged(0.0, State.STARTING), StateChanged(0.0, State.BUILDING))


def folded(*events: BuildEvent) -> BuildView:
    return reduce(fold, (*BUILDING, *events), BuildView())


def shown(facts: BuildFacts, *events: BuildEvent, now: float = 10.0) -> Snapshot:
    return snapshot(facts, folded(*events), now, Detail.FULL)


def tops(told: Snapshot) -> list[Phase]:
    assert told.phases is not None
    return told.phases


def test_phases_of_the_same_name_stay_apart(facts: BuildFacts) -> None:
    told = shown(
        facts,
        PhaseStarted(1, 1, "Timing", 3),
        PhaseStarted(1, 2, "Costs", 2, parent=1),
        PhaseFinished(2, 2),
        PhaseStarted(2, 3, "Costs", 2, parent=1),
        StepCompleted(3, 3, 0),
    )
    first, second = tops(told)[0].children
    assert (first.name, first.status, first.steps_done) == ("Costs", PhaseStatus.FINISHED, 0)
    assert (second.name, second.status, second.steps_done) == ("Costs", PhaseStatus.RUNNING, 1)


def test_children_are_in_the_order_in_which_they_began(facts: BuildFacts) -> None:
    told = shown(
        facts,
        PhaseStarted(1, 9, "root", 3),
        PhaseStarted(1, 5, "a", 1, parent=9),
        PhaseStarted(1, 7, "b", 1, parent=9),
        PhaseStarted(1, 3, "c", 1, parent=9),
        PhaseFinished(2, 7),
    )
    assert [child.name for child in tops(told)[0].children] == ["a", "b", "c"]


@pytest.mark.parametrize("parent", [None, 99, 2])
def test_a_phase_without_a_known_running_parent_stands_at_the_top(
    facts: BuildFacts, parent: int | None
) -> None:
    told = shown(
        facts,
        PhaseStarted(1, 1, "over", 1),
        PhaseFinished(1, 1),
        PhaseStarted(1, 2, "orphan", 1, parent=parent),
    )
    assert [phase.name for phase in tops(told)] == ["over", "orphan"]


@pytest.mark.parametrize(
    ("step", "done"), [(0, 1), (3, 4), (4, 5), (5, 5), (10**400, 5), (-1, 0), (-(10**400), 0)]
)
def test_steps_stay_within_what_was_announced(facts: BuildFacts, step: int, done: int) -> None:
    told = shown(facts, PhaseStarted(1, 1, "p", 5), StepCompleted(1, 1, step))
    assert tops(told)[0].steps_done == done


def test_steps_done_never_fall(facts: BuildFacts) -> None:
    told = shown(facts, PhaseStarted(1, 1, "p", 5), StepCompleted(1, 1, 3), StepCompleted(1, 1, 1))
    assert tops(told)[0].steps_done == 4


@pytest.mark.parametrize("steps", [0, -5, 10**400])
def test_an_absurd_number_of_steps_gives_a_valid_phase(facts: BuildFacts, steps: int) -> None:
    told = shown(facts, PhaseStarted(1, 1, "p", steps), StepCompleted(1, 1, 0))
    assert tops(told)[0].steps_total >= 1
    assert tops(told)[0].steps_done == 1


def test_a_phase_that_is_known_does_not_start_again() -> None:
    view = folded(PhaseStarted(1, 1, "p", 5), StepCompleted(1, 1, 3))
    assert fold(view, PhaseStarted(2, 1, "q", 9)) is view
    over = fold(view, PhaseFinished(2, 1))
    assert fold(over, PhaseStarted(3, 1, "q", 9)) is over


def test_steps_and_finishes_of_unknown_or_finished_phases_are_ignored() -> None:
    view = folded(PhaseStarted(1, 1, "p", 5), PhaseFinished(2, 1))
    assert fold(view, StepCompleted(3, 1, 2)) is view
    assert fold(view, StepCompleted(3, 7, 2)) is view
    assert fold(view, PhaseFinished(3, 1)) is view
    assert fold(view, PhaseFinished(3, 7)) is view


def test_a_parent_that_finishes_ends_what_runs_inside_it(facts: BuildFacts) -> None:
    told = shown(
        facts,
        PhaseStarted(1, 1, "root", 1),
        PhaseStarted(2, 2, "child", 1, parent=1),
        PhaseStarted(3, 3, "grandchild", 1, parent=2),
        PhaseStarted(3, 4, "beside", 1),
        PhaseFinished(5, 1),
    )
    root, beside = tops(told)
    child = root.children[0]
    assert (child.status, child.elapsed_s) == (PhaseStatus.FINISHED, 3.0)
    assert child.children[0].status is PhaseStatus.FINISHED
    assert beside.status is PhaseStatus.RUNNING
    assert told.current == "beside"


def test_the_current_path_leads_to_the_newest_running_phase() -> None:
    events: tuple[BuildEvent, ...] = (
        PhaseStarted(0, 0, "Building", 1, origin=Origin.WORKER),
        PhaseStarted(1, 1, "Building engine", 6, parent=0),
        PhaseStarted(1, 2, "left", 1, parent=1),
        PhaseStarted(1, 3, "right", 1, parent=1),
        StepCompleted(2, 2, 0),
    )
    names = [node.name for node in folded(*events).phases.path()]
    assert names == ["Building", "Building engine", "right"]
    names = [node.name for node in folded(*events, PhaseFinished(3, 3)).phases.path()]
    assert names == ["Building", "Building engine", "left"]


def test_phases_that_run_at_the_end_are_stopped_there(facts: BuildFacts) -> None:
    told = shown(
        facts, PhaseStarted(1, 1, "p", 5), StateChanged(4, State.FAILED), PhaseFinished(9, 1)
    )
    assert (tops(told)[0].status, tops(told)[0].elapsed_s) == (PhaseStatus.STOPPED, 3.0)
    assert told.current is None


def test_names_are_shown_without_control_characters(facts: BuildFacts) -> None:
    told = shown(
        facts, PhaseStarted(1, 1, "\x1b[31mred\x1b[0m\nline", 1), PhaseStarted(1, 2, "", 1)
    )
    assert [phase.name for phase in tops(told)] == ["red line", "(unnamed)"]


def _siblings(count: int) -> list[BuildEvent]:
    events: list[BuildEvent] = [PhaseStarted(1, 0, "root", count)]
    for instance in range(1, count):
        events += [PhaseStarted(1, instance, f"p{instance}", 1, 0), PhaseFinished(1, instance)]
    return events


def test_beyond_the_limit_the_oldest_finished_phases_are_counted_not_kept(
    facts: BuildFacts,
) -> None:
    view = folded(*_siblings(MAX_PHASES + 50))
    assert len(view.phases.running) + len(view.phases.finished) == MAX_PHASES
    told = snapshot(facts, view, 2.0, Detail.FULL)
    assert told.phases_left_out == 50
    root = tops(told)[0]
    assert root.status is PhaseStatus.RUNNING
    assert root.children[0].name == "p51"


def test_a_phase_is_dropped_only_after_those_inside_it(facts: BuildFacts) -> None:
    events: list[BuildEvent] = []
    for number in range(MAX_PHASES):
        outer, inner = 2 * number, 2 * number + 1
        events += [PhaseStarted(1, outer, "outer", 1), PhaseStarted(1, inner, "inner", 1, outer)]
        events += [PhaseFinished(1, inner), PhaseFinished(1, outer)]
    assert {phase.name for phase in tops(shown(facts, *events))} == {"outer"}


def test_a_phase_that_ended_with_its_parent_is_dropped_before_it(facts: BuildFacts) -> None:
    nested = (PhaseStarted(1, -1, "outer", 1), PhaseStarted(1, -2, "inner", 1, parent=-1))
    view = folded(*nested, PhaseFinished(1, -1), *_siblings(MAX_PHASES - 1))
    told = snapshot(facts, view, 2.0, Detail.FULL)
    assert told.phases_left_out == 1
    assert [(phase.name, phase.children) for phase in tops(told)[:1]] == [("outer", [])]


def test_running_phases_beyond_the_limit_are_counted_not_kept(facts: BuildFacts) -> None:
    view = folded(*(PhaseStarted(1, instance, "p", 1) for instance in range(MAX_PHASES + 3)))
    assert len(view.phases.running) == MAX_PHASES
    told = snapshot(facts, view, 2.0, Detail.FULL)
    assert told.phases_left_out == 3


def test_a_tree_shows_the_newest_phases_and_counts_the_others(facts: BuildFacts) -> None:
    told = snapshot(facts, folded(*_siblings(500)), 2.0, Detail.TREE)
    assert told.phases_left_out == 500 - TREE_PHASES
    children = tops(told)[0].children
    assert len(children) == TREE_PHASES - 1
    assert children[-1].name == "p499"


def test_a_tree_full_of_running_phases_shows_no_finished_one(facts: BuildFacts) -> None:
    over = (PhaseStarted(1, -1, "over", 1), PhaseFinished(1, -1))
    running = (PhaseStarted(1, instance, "p", 1) for instance in range(TREE_PHASES))
    told = snapshot(facts, folded(*over, *running), 2.0, Detail.TREE)
    assert told.phases_left_out == 1
    assert [phase.name for phase in tops(told)] == ["p"] * TREE_PHASES


def test_nesting_without_bound_is_shown_flat_from_a_depth_on(facts: BuildFacts) -> None:
    deep = [PhaseStarted(1, number, "p", 1, number - 1) for number in range(1000)]
    told = shown(facts, *deep)
    assert Snapshot.model_validate_json(told.model_dump_json()) == told
    level, depth = tops(told), 0
    while level:
        level, depth = level[0].children, depth + 1
    assert depth == MAX_DEPTH
    assert told.current is not None
    assert len(told.current) <= 1000


def test_a_view_is_not_changed_by_folding_more_into_it() -> None:
    before = folded(PhaseStarted(1, 1, "p", 5), PhaseStarted(1, 2, "q", 5, parent=1))
    copy = folded(PhaseStarted(1, 1, "p", 5), PhaseStarted(1, 2, "q", 5, parent=1))
    fold(before, StepCompleted(2, 2, 1))
    fold(before, PhaseStarted(2, 3, "r", 1))
    fold(before, PhaseFinished(2, 1))
    assert before == copy
