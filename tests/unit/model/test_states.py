"""A build's states: what may follow what, and that an end is an end."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.states import LIVE, TERMINAL, Reason, Rung, State, is_legal
from trt_agent_tools.model.supervisor_events import IllegalMoveError, StateChanged, transition

states = st.sampled_from(State)
PAIRS = list(itertools.product(State, State))


def test_every_state_is_either_live_or_terminal() -> None:
    assert set(State) == LIVE | TERMINAL
    assert not LIVE & TERMINAL


@pytest.mark.parametrize(("current", "to"), PAIRS, ids=lambda state: state.value)
def test_a_move_is_made_exactly_where_it_is_legal(current: State, to: State) -> None:
    if is_legal(current, to):
        moved = transition(current, to, at=1.5, reason=Reason.COMPLETED, ended_by=Rung.ASK)
        assert moved == StateChanged(1.5, to, Reason.COMPLETED, ended_by=Rung.ASK)
    else:
        with pytest.raises(IllegalMoveError, match=f"{current.value} -> {to.value}"):
            transition(current, to, at=1.5)


@given(st.lists(states, max_size=30))
def test_whatever_is_tried_an_ended_build_never_changes_again(tried: list[State]) -> None:
    current = State.QUEUED
    ended: State | None = None
    for to in tried:
        if is_legal(current, to):
            assert ended is None
            current = to
            ended = to if to in TERMINAL else None


def test_a_build_is_cancelled_only_after_it_was_said_to_be_cancelling() -> None:
    assert {state for state in State if is_legal(state, State.CANCELLED)} == {State.CANCELLING}


def test_every_live_build_can_be_cancelled_and_can_be_lost() -> None:
    assert {state for state in State if is_legal(state, State.CANCELLING)} == LIVE - {
        State.CANCELLING
    }
    assert {state for state in State if is_legal(state, State.LOST)} == LIVE


def test_a_build_without_a_process_cannot_be_building() -> None:
    assert not is_legal(State.QUEUED, State.BUILDING)


def test_a_build_that_reuses_an_engine_succeeds_from_the_queue() -> None:
    assert is_legal(State.QUEUED, State.SUCCEEDED)


def test_a_late_success_beats_a_late_cancel() -> None:
    assert is_legal(State.CANCELLING, State.SUCCEEDED)


def test_no_state_is_its_own_successor_and_every_state_can_be_reached() -> None:
    reached = {State.QUEUED}
    for _ in State:
        reached |= {to for current, to in PAIRS if current in reached and is_legal(current, to)}
    assert reached == set(State)
    assert not any(is_legal(state, state) for state in State)
