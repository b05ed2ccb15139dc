"""Callbacks become phases: instances told apart, in order, with their last steps, from any thread."""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.worker.wire import TIMEOUT_S, Wire
from trt_agent_tools.model.events import (
    Origin,
    PhaseFinished,
    PhaseStarted,
    StepCompleted,
    WorkerEvent,
)
from trt_agent_tools.worker.recorder import PhaseRecorder, make_monitor

NAMES = ["Building engine", "Timing", "Timing graph nodes", ""]

Call = tuple[Literal["start", "step", "finish"], str, str | None, int]
calls = st.tuples(
    st.sampled_from(["start", "step", "step", "finish"]),
    st.sampled_from(NAMES),
    st.none() | st.sampled_from([*NAMES, "never begun"]),
    st.integers(-1, 5),
)


def make(recorder: PhaseRecorder, call: Call) -> None:
    kind, name, parent, number = call
    if kind == "start":
        recorder.phase_start(name, parent, number)
    elif kind == "step":
        recorder.step_complete(name, number)
    else:
        recorder.phase_finish(name)


class Told:
    """What was read of each instance."""

    def __init__(self, events: list[WorkerEvent]) -> None:
        self.kinds: dict[int, list[str]] = defaultdict(list)
        self.starts: dict[int, PhaseStarted] = {}
        self.last_steps: dict[int, int] = {}
        for event in events:
            if isinstance(event, PhaseStarted | StepCompleted | PhaseFinished):
                self.kinds[event.instance].append(event.type)
            if isinstance(event, PhaseStarted):
                self.starts[event.instance] = event
            elif isinstance(event, StepCompleted):
                self.last_steps[event.instance] = event.step

    def check_order(self) -> None:
        for kinds in self.kinds.values():
            assert kinds[0] == "phase_started"
            assert kinds.count("phase_started") == 1
            assert "phase_finished" not in kinds[:-1]


class Expected:
    """What should have been told: names stand for the newest phase of that name that has not ended."""

    def __init__(self, told: list[Call]) -> None:
        self.names: list[str] = []
        self.last_steps: dict[int, int] = {}
        self.finished: set[int] = set()
        live: dict[str, list[int]] = defaultdict(list)
        for kind, name, _, number in told:
            if kind == "start":
                self.names.append(name)
                live[name].append(len(self.names))
            elif live[name] and kind == "step":
                self.last_steps[live[name][-1]] = number
            elif live[name]:
                self.finished.add(live[name].pop())


@given(st.lists(calls, max_size=60))
def test_every_phase_is_told_from_its_start_to_its_last_step_and_its_end(made: list[Call]) -> None:
    with Wire() as wire:
        wire.read()
        recorder = wire.recorder()
        for call in made:
            make(recorder, call)
    expected, told = Expected(made), Told(wire.events)
    told.check_order()
    assert [told.starts[n].name for n in sorted(told.starts)] == expected.names
    # A step of -1 is none.
    steps = {instance: step for instance, step in expected.last_steps.items() if step != -1}
    assert {i: s for i, s in told.last_steps.items() if s != -1} == steps
    ended = {instance for instance, kinds in told.kinds.items() if kinds[-1] == "phase_finished"}
    assert ended == expected.finished
    assert recorder.callbacks == len(made)
    for start in told.starts.values():
        assert start.steps >= 1
        assert start.parent is None or start.parent < start.instance


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_phases_of_several_threads_at_once_are_all_told_whole(impatient: None) -> None:
    phases, steps = 300, 5

    def build(name: str) -> None:
        recorder.phase_start(name, None, phases)
        for number in range(phases):
            inner = f"{name} {number % 3}"
            recorder.phase_start(inner, name, steps)
            for step in range(steps):
                assert recorder.step_complete(inner, step) is True
            recorder.phase_finish(inner)
            recorder.step_complete(name, number)
        recorder.phase_finish(name)

    with Wire() as wire:
        wire.read()
        recorder = wire.recorder()
        threads = [threading.Thread(target=build, args=(f"thread {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
    told = Told(wire.events)
    told.check_order()
    assert len(told.starts) == 4 * (phases + 1)
    for instance, start in told.starts.items():
        assert told.kinds[instance][-1] == "phase_finished"
        assert told.last_steps[instance] == start.steps - 1
        if start.parent is not None:
            assert told.starts[start.parent].name == start.name.rsplit(" ", 1)[0]


def test_a_slow_reader_is_told_the_last_step_of_every_phase() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        for number in range(20_000):
            recorder.phase_start("again", None, 3)
            recorder.step_complete("again", 0)
            recorder.step_complete("again", number % 7)
            recorder.phase_finish("again")
    told = Told(wire.events)
    told.check_order()
    assert told.last_steps == {number + 1: number % 7 for number in range(20_000)}


def test_a_name_that_is_used_again_is_another_phase() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        for _ in range(2):
            recorder.phase_start("Computing reformatting costs", None, 1)
            recorder.step_complete("Computing reformatting costs", 0)
            recorder.phase_finish("Computing reformatting costs")
    assert [event.type for event in wire.of_instance(1)] == [
        event.type for event in wire.of_instance(2)
    ]
    assert len(Told(wire.events).starts) == 2


def test_a_name_that_is_live_twice_ends_twice() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        recorder.phase_start("same", None, 9)
        recorder.phase_start("same", "same", 9)
        recorder.step_complete("same", 4)
        recorder.phase_finish("same")
        recorder.step_complete("same", 7)
        recorder.phase_finish("same")
        recorder.phase_finish("same")
    told = Told(wire.events)
    assert told.starts[2].parent == 1
    assert told.last_steps == {2: 4, 1: 7}
    assert all(kinds[-1] == "phase_finished" for kinds in told.kinds.values())


def test_nested_phases_name_their_parents_instance() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        with recorder.phase("Building"):
            recorder.phase_start("Building engine", None, 6)
            recorder.phase_start("Timing", "Building engine", 3)
            recorder.phase_start("Orphan", "nobody knows", 3)
        recorder.phase_start("Alone", None, 1)
    starts = Told(wire.events).starts
    assert {n: (s.name, s.parent, s.origin) for n, s in starts.items()} == {
        1: ("Building", None, Origin.WORKER),
        2: ("Building engine", 1, Origin.TENSORRT),
        3: ("Timing", 2, Origin.TENSORRT),
        4: ("Orphan", 1, Origin.TENSORRT),
        5: ("Alone", None, Origin.TENSORRT),
    }


def test_what_was_never_begun_is_neither_told_nor_an_error() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        recorder.phase_finish("nobody")
        assert recorder.step_complete("nobody", 3) is True
        assert recorder.callbacks == 2
    assert wire.events == []


def test_only_an_order_to_cancel_ends_the_build_and_the_answer_is_a_true_bool() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        recorder.phase_start("phase", None, 2)
        # TensorRT takes an answer that is no bool for a wish to cancel.
        assert recorder.step_complete("phase", 0) is True
        assert recorder.step_complete("unknown", 0) is True
        wire.stop.ask("enough")
        assert recorder.step_complete("phase", 1) is False
        assert recorder.step_complete("unknown", 1) is False


def test_a_step_of_the_workers_own_is_a_phase_that_is_done_or_not() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        with recorder.phase("Parsing"):
            assert recorder.timings() == []
        with pytest.raises(ValueError, match="no model"), recorder.phase("Parsing again"):
            raise ValueError("no model")
    assert [event.type for event in wire.of_instance(1)] == [
        "phase_started",
        "step_completed",
        "phase_finished",
    ]
    assert [event.type for event in wire.of_instance(2)] == ["phase_started", "phase_finished"]


def test_timings_are_those_of_finished_phases() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        with recorder.phase("outer"):
            recorder.phase_start("inner", None, 4)
            recorder.phase_finish("inner")
            recorder.phase_start("running", None, 4)
    [outer, inner] = recorder.timings()
    assert (outer.name, outer.parent, inner.name, inner.parent) == ("outer", None, "inner", 1)
    assert outer.elapsed_s >= inner.elapsed_s >= 0


def test_the_last_callback_is_tensorrts_and_not_the_workers() -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        with recorder.phase("Parsing"):
            before = recorder.last_callback
            assert before is None
            recorder.phase_start("phase", None, 2)
            called = recorder.last_callback
            assert called is not None
        assert recorder.last_callback == called
        recorder.step_complete("phase", 0)
        stepped = recorder.last_callback
        recorder.phase_finish("phase")
        assert recorder.last_callback is not None
        assert stepped is not None
        assert called <= stepped <= recorder.last_callback <= wire.channel.now()


def test_a_monitor_is_of_tensorrts_class_and_calls_the_recorder() -> None:
    class Interface:
        """Stands for IProgressMonitor: its methods are to be overridden."""

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            raise NotImplementedError

        def step_complete(self, phase_name: str, step: int) -> bool:
            raise NotImplementedError

        def phase_finish(self, phase_name: str) -> None:
            raise NotImplementedError

    with Wire() as wire:
        recorder = wire.recorder()
        monitor = make_monitor(Interface, recorder)
        assert isinstance(monitor, Interface)
        monitor.phase_start("phase", None, 2)
        assert monitor.step_complete("phase", 1) is True
        wire.stop.ask("enough")
        assert monitor.step_complete("phase", 1) is False
        monitor.phase_finish("phase")
    assert Told(wire.events).last_steps == {1: 1}
    assert recorder.callbacks == 4


@given(st.integers(-(2**63), 2**63 - 1), st.text())
@settings(max_examples=30)
def test_whatever_tensorrt_reports_no_callback_raises(number: int, name: str) -> None:
    with Wire() as wire:
        recorder = wire.recorder()
        recorder.phase_start(name, name, number)
        assert recorder.step_complete(name, number) is True
        recorder.phase_finish(name)
    assert Told(wire.events).starts[1].name == name
