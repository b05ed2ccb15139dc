"""Recorded builds and policies for the property tests, and what a plain reading of a recording says.

Times are multiples of 1/128 s, and so are limits: sums of them are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st

from trt_agent_tools.model.events import (
    EngineWritten,
    Goodbye,
    Heartbeat,
    LogLine,
    Origin,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Severity,
    StepCompleted,
    WorkerEvent,
)
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.policy import Policy

UNIT_S = 1 / 64
NAMES = ("Building engine", "Timing", "Optimizing graph")
PATTERN = "Timing"
TIMED = (
    Rule.GPU_TIME,
    Rule.BUILD_TIME,
    Rule.STARTUP_TIME,
    Rule.STEP_STALL,
    Rule.SILENT,
    Rule.PHASE_TIME,
)
"""The rules that a recording tells about."""


class Span(NamedTuple):
    """While a measure grows from 0, one second a second; it counts from `known` on."""

    start: float
    end: float
    known: float = -1.0

    def crossed(self, limit: float) -> float | None:
        """Return when the measure reaches `limit`, if it does."""
        at = max(self.start + limit, self.known)
        # What becomes known as the span ends was never seen to grow.
        return at if at <= self.end and self.known < self.end else None


@dataclass(frozen=True)
class Recorded:
    """A build's events, and for each rule the spans in which its measure grows."""

    events: list[WorkerEvent]
    spans: Mapping[Rule, list[Span]]

    def most(self, rule: Rule) -> float:
        """Return the largest value that the rule's measure reaches; 0 where it never applies."""
        return max((span.end - span.start for span in self.spans[rule]), default=0.0)

    def crossed(self, rule: Rule, limit: float) -> float | None:
        """Return when the rule's measure first reaches `limit`, if it ever does."""
        found = [at for span in self.spans[rule] if (at := span.crossed(limit)) is not None]
        return min(found, default=None)


gaps = st.one_of(st.integers(0, 64), st.integers(0, 64), st.integers(0, 1300))
_actions = st.tuples(
    gaps, st.sampled_from(("start", "start", "step", "finish", "log")), st.sampled_from(NAMES)
)


@st.composite
def recorded_builds(draw: st.DrawFn) -> Recorded:
    """Draw a build with phases, silences, and perhaps heartbeats that tell when it was busy."""
    story = _Story()
    story.start("Parsing the model", Origin.WORKER)
    story.wait(draw(gaps))
    story.finish()
    wrapped = draw(st.booleans())
    if wrapped:
        story.start("Building", Origin.WORKER)
    for gap, action, name in draw(st.lists(_actions, max_size=20)):
        story.wait(gap)
        if action == "start":
            story.start(name, Origin.TENSORRT)
        elif action == "log":
            story.events.append(LogLine(story.now, Severity.WARNING, "a line"))
        elif len(story.running) > wrapped:
            (story.step if action == "step" else story.finish)()
    story.wait(draw(gaps))
    if draw(st.booleans()):
        while story.running:
            story.finish()
        story.wait(draw(gaps))
        story.events.append(EngineWritten(story.now, "/m.engine", 1, "ab", "/m.engine.json"))
        story.events.append(Goodbye(story.now, Outcome.SUCCEEDED))
    busy = draw(st.lists(st.booleans(), max_size=8))
    story.events.append(LogLine(story.now, Severity.INFO, "the last line"))
    return story.recorded(busy, wrapped=wrapped)


class _Story:
    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[WorkerEvent] = []
        self.running: list[PhaseStarted] = []
        self._steps = 0
        self._instances = 0

    def wait(self, units: int) -> None:
        self.now += units * UNIT_S

    def start(self, name: str, origin: Origin) -> None:
        self._instances += 1
        above = self.running[-1].instance if self.running else None
        phase = PhaseStarted(self.now, self._instances, name, 1000, above, origin)
        self.running.append(phase)
        self.events.append(phase)

    def step(self) -> None:
        self._steps += 1
        self.events.append(StepCompleted(self.now, self.running[-1].instance, self._steps))

    def finish(self) -> None:
        self.events.append(PhaseFinished(self.now, self.running.pop().instance))

    def recorded(self, busy: list[bool], *, wrapped: bool) -> Recorded:
        events: list[WorkerEvent] = []
        beats = int(self.now) if busy else 0
        cpu_s = 0.0
        for number in range(1, beats + 1):
            cpu_s += 1.0 if busy[number % len(busy)] else 0.0
            at = number - UNIT_S / 2
            events.append(Heartbeat(at, 0, self._last_callback(at), cpu_s=cpu_s))
        events.extend(self.events)
        # What was said at one time keeps its order; heartbeats have times of their own.
        events.sort(key=lambda event: event.at)
        return Recorded(events, self._spans(events, busy, wrapped=wrapped))

    def _callbacks(self) -> list[float]:
        own = {
            event.instance
            for event in self.events
            if isinstance(event, PhaseStarted) and event.origin is Origin.TENSORRT
        }
        return [
            event.at
            for event in self.events
            if isinstance(event, PhaseStarted | StepCompleted | PhaseFinished)
            and event.instance in own
        ]

    def _last_callback(self, at: float) -> float | None:
        return max((each for each in self._callbacks() if each <= at), default=None)

    def _spans(
        self, events: list[WorkerEvent], busy: list[bool], *, wrapped: bool
    ) -> dict[Rule, list[Span]]:
        callbacks = self._callbacks()
        finished = {
            event.instance: event.at for event in self.events if isinstance(event, PhaseFinished)
        }
        # The worker's own phase around TensorRT's is the second that begins.
        returned = finished.get(2, self.now) if wrapped and callbacks else self.now
        phases = [event for event in self.events if isinstance(event, PhaseStarted)]
        beats = [event.at for event in events if isinstance(event, Heartbeat)]
        signs = [
            event.at
            for event in self.events
            if isinstance(event, PhaseStarted | StepCompleted | PhaseFinished)
        ]
        signs += [
            at for number, at in enumerate(beats, 1) if number > 1 and busy[number % len(busy)]
        ]
        signs = sorted(at for at in [0.0, *signs] if at <= returned)
        # Between the first two heartbeats the use of the processor becomes known.
        known = beats[1] if len(beats) > 1 else float("inf")
        return {
            Rule.GPU_TIME: [Span(0.0, self.now)],
            Rule.BUILD_TIME: [Span(0.0, self.now)],
            Rule.STARTUP_TIME: [Span(0.0, callbacks[0] if callbacks else self.now)],
            Rule.SILENT: [Span(*pair) for pair in _pairs(callbacks, returned)],
            Rule.STEP_STALL: [Span(*pair, known) for pair in _pairs(signs, returned)],
            Rule.PHASE_TIME: [
                Span(phase.at, finished.get(phase.instance, self.now))
                for phase in phases
                if phase.name == PATTERN
            ],
        }


def tensorrt_build(*, silent_s: float, busy: bool) -> list[WorkerEvent]:
    """Return a build that is silent inside one step from second 1 on, and then ends well."""
    end = 1.0 + silent_s
    beats = [
        Heartbeat(float(second), 4, 1.0, cpu_s=min(second, 1) + (second - 1.0 if busy else 0.0))
        for second in range(1, int(end) + 1)
    ]
    return [
        PhaseStarted(0.1, 1, "Parsing the model", 1, origin=Origin.WORKER),
        PhaseFinished(0.5, 1),
        PhaseStarted(0.5, 2, "Building", 1, origin=Origin.WORKER),
        PhaseStarted(0.6, 3, "Building engine", 6, 2),
        PhaseStarted(1.0, 4, "Determining refit engines", 1, 3),
        *beats,
        StepCompleted(end, 4, 0),
        PhaseFinished(end, 4),
        PhaseFinished(end, 3),
        PhaseFinished(end, 2),
        EngineWritten(end + 0.1, "/m.engine", 1, "ab", "/m.engine.json"),
        Goodbye(end + 0.1, Outcome.SUCCEEDED),
    ]


def _pairs(times: list[float], end: float) -> list[tuple[float, float]]:
    return list(zip(times, [*times[1:], end], strict=True)) if times else []


def policy_with(limits: Mapping[Rule, object], *, warn_at: float = 0.5) -> Policy:
    """Return a policy with these limits."""
    rules: dict[str, object] = {rule.value: limit for rule, limit in limits.items()}
    if Rule.PHASE_TIME in limits:
        rules[Rule.PHASE_TIME.value] = {PATTERN: limits[Rule.PHASE_TIME]}
    return Policy.model_validate({"rules": rules, "escalation": {"warn_at": warn_at}})


limits_s = st.integers(1, 1500).map(lambda units: units * UNIT_S)
modes = st.sampled_from(("enforce", "observe"))
rule_tables = st.dictionaries(
    st.sampled_from(TIMED),
    st.fixed_dictionaries(
        {"limit": limits_s, "mode": modes},
        optional={"warn_at": st.sampled_from((0.25, 0.5, 0.75))},
    ),
)
