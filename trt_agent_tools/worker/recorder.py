"""Turns callbacks and the worker's own steps into phase events.

`PhaseRecorder` has the three methods of TensorRT's `IProgressMonitor` and is mixed into a subclass of
it (`make_monitor`). It needs no TensorRT itself. Each callback does a few dictionary operations:
a slow monitor slows the build and disturbs the timing of tactics.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import TypeVar

from trt_agent_tools.model.events import Origin, PhaseFinished, PhaseStarted, StepCompleted
from trt_agent_tools.model.manifest import PhaseTiming
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.stop import Stop


class _LivePhase:
    __slots__ = (
        "at",
        "finished",
        "hides",
        "instance",
        "name",
        "origin",
        "parent",
        "sent",
        "started",
        "step",
        "steps",
    )

    def __init__(
        self,
        instance: int,
        name: str,
        parent: int | None,
        steps: int,
        started: float,
        origin: Origin,
    ) -> None:
        self.origin = origin
        self.hides: _LivePhase | None = None
        self.instance = instance
        self.name = name
        self.parent = parent
        self.steps = steps
        self.started = started
        self.finished: float | None = None
        self.step = self.sent = -1
        self.at = started


class _Mark:
    """A phase's start, last step or finish, on its way to the writer, which makes the event of it."""

    __slots__ = ("at", "phase")
    is_end = False

    def __init__(self, at: float, phase: _LivePhase) -> None:
        self.at = at
        self.phase = phase


class _Began(_Mark):
    __slots__ = ()

    def event(self) -> PhaseStarted:
        phase = self.phase
        return PhaseStarted(
            self.at, phase.instance, phase.name, phase.steps, phase.parent, phase.origin
        )


class _LastStep(_Mark):
    __slots__ = ()

    def event(self) -> StepCompleted:
        return StepCompleted(self.at, self.phase.instance, self.phase.step)


class _Ended(_Mark):
    __slots__ = ()
    is_end = True

    def event(self) -> PhaseFinished:
        return PhaseFinished(self.at, self.phase.instance)


class PhaseRecorder:
    """Reports phases to a channel; `step_complete` also answers whether the build may go on."""

    def __init__(self, channel: Channel, stop: Stop) -> None:
        self._channel = channel
        self._nudge: Callable[[], None] = channel.nudge
        self._emit_later = channel.emit_later
        self._origin = monotonic() - channel.now()
        self._stop = stop
        self._numbers = count(1)
        self._live: dict[str, _LivePhase] = {}
        self._own: list[_LivePhase] = []
        self._all: list[_LivePhase] = []
        self._fresh: dict[int, _LivePhase] = {}
        self._last: float | None = None
        self.callbacks = 0
        channel.attach(self)

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """TensorRT began a phase. Names are unique only among the phases that are live."""
        self.callbacks += 1
        above = self._live.get(parent_phase) if parent_phase else None
        if above is None and self._own:
            above = self._own[-1]
        phase = self._begin(phase_name, above, num_steps, Origin.TENSORRT)
        # A live name that is used again stands for the newer phase until that one ends.
        phase.hides = self._live.get(phase_name)
        self._live[phase_name] = phase

    def step_complete(self, phase_name: str, step: int) -> bool:
        """TensorRT completed a step. Return False to end the build, which only this call can."""
        phase = self._live.get(phase_name)
        if phase is not None:
            phase.step = step
            phase.at = self._last = monotonic()
            self._fresh[phase.instance] = phase
        self.callbacks += 1
        self._nudge()
        return not self._stop.asked

    def phase_finish(self, phase_name: str) -> None:
        """TensorRT ended a phase, perhaps before all of its steps."""
        self.callbacks += 1
        phase = self._live.pop(phase_name, None)
        if phase is not None:
            if phase.hides is not None:
                self._live[phase_name] = phase.hides
            self._end(phase)
            self._last = phase.finished

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report what the worker itself does meanwhile as a phase of one step."""
        phase = self._begin(name, self._own[-1] if self._own else None, 1, Origin.WORKER)
        self._own.append(phase)
        completed = False
        try:
            yield
            completed = True
        finally:
            self._own.remove(phase)
            if completed:
                phase.step, phase.at = 0, monotonic()
                self._fresh[phase.instance] = phase
            self._end(phase)

    def take_steps(self) -> list[StepCompleted]:
        """Return the latest step of each phase that has a new one, and forget them."""
        steps = []
        # Each is taken out in one operation, so that a callback in another thread finds it in or out.
        for instance in list(self._fresh):
            phase = self._fresh.pop(instance, None)
            if phase is None:
                continue
            phase.sent = phase.step
            steps.append(StepCompleted(phase.at - self._origin, phase.instance, phase.sent))
        return steps

    @property
    def last_callback(self) -> float | None:
        """When TensorRT's latest callback was, in seconds since the worker's start."""
        return None if self._last is None else self._last - self._origin

    def timings(self) -> list[PhaseTiming]:
        """Return every phase so far with its duration; a phase that still runs is left out."""
        return [
            PhaseTiming(
                instance=p.instance,
                parent=p.parent,
                name=p.name,
                steps=p.steps,
                elapsed_s=round(p.finished - p.started, 6),
            )
            for p in self._all
            if p.finished is not None
        ]

    def _begin(self, name: str, above: _LivePhase | None, steps: int, origin: Origin) -> _LivePhase:
        now = monotonic()
        parent = above.instance if above else None
        phase = _LivePhase(next(self._numbers), name, parent, max(1, steps), now, origin)
        if origin is Origin.TENSORRT:
            self._last = now
        self._all.append(phase)
        self._emit_later(_Began(now - self._origin, phase))
        return phase

    def _end(self, phase: _LivePhase) -> None:
        phase.finished = monotonic()
        self._fresh.pop(phase.instance, None)
        if phase.step != phase.sent:
            self._emit_later(_LastStep(phase.at - self._origin, phase))
        self._emit_later(_Ended(phase.finished - self._origin, phase))


_Monitor = TypeVar("_Monitor")


def make_monitor(interface: type[_Monitor], recorder: PhaseRecorder) -> _Monitor:
    """Return an instance of TensorRT's `IProgressMonitor` whose callbacks are the recorder's own.

    The methods are bound once as attributes of the new class, so that a callback costs one call.
    """
    members = {
        name: staticmethod(getattr(recorder, name))
        for name in ("phase_start", "step_complete", "phase_finish")
    }
    monitor: _Monitor = type("RecordingMonitor", (interface,), members)()
    return monitor
