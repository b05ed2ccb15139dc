"""What folding an event and rendering a snapshot cost: python tests/benchmarks/fold_cost.py.

A supervisor of 200 builds with 300 events/s each has 8.3 us a fold to stay under half a core.
"""

import time
from collections.abc import Callable, Iterator
from functools import reduce
from statistics import median

from trt_agent_tools.model.events import Heartbeat, PhaseFinished, PhaseStarted, StepCompleted
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, StateChanged
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

FACTS = BuildFacts(
    "b_1a2b3c4d", None, "default", "tensorrt_rtx", "/m.onnx", "/m.engine", "2026-01-31T12:34:56Z"
)
DEPTH = 6
USUAL = 25
MANY = 2000
EVENTS = 2000
ROUNDS = 9


def begun(count: int) -> BuildView:
    """Return a building view with `count` phases, all finished but a path of `DEPTH`."""
    events: list[BuildEvent] = [
        StateChanged(0.0, State.STARTING),
        StateChanged(0.1, State.BUILDING),
    ]
    for level in range(DEPTH):
        parent = level - 1 if level else None
        events.append(PhaseStarted(0.2, level, f"Building engine, part {level}", 1 << 30, parent))
    for instance in range(DEPTH, count):
        events.append(PhaseStarted(0.3, instance, "Computing reformatting costs", 3, DEPTH - 1))
        events.append(StepCompleted(0.3, instance, 2))
        events.append(PhaseFinished(0.3, instance))
    events.append(ActivitySampled(0.3, busy=True, cpu_percent=98.0, rss_bytes=1 << 30))
    return reduce(fold, events, BuildView())


def steps() -> Iterator[BuildEvent]:
    """Yield steps of the innermost running phase."""
    for number in range(EVENTS):
        yield StepCompleted(1.0 + number / 300, DEPTH - 1, number)


def new_phases(first: int) -> Iterator[BuildEvent]:
    """Yield phases that start and finish."""
    for instance in range(first, first + EVENTS // 2):
        yield PhaseStarted(1.0, instance, "Timing graph nodes", 3, DEPTH - 1)
        yield PhaseFinished(1.0, instance)


def beats() -> Iterator[BuildEvent]:
    """Yield heartbeats."""
    for number in range(EVENTS):
        yield Heartbeat(1.0 + number, number, 1.0 + number)


def fold_us(view: BuildView, events: list[BuildEvent]) -> float:
    """Return the microseconds of one fold, the median of rounds."""
    return median(seconds(lambda: reduce(fold, events, view)) for _ in range(ROUNDS)) / (
        len(events) / 1e6
    )


def render_us(view: BuildView, detail: Detail) -> float:
    """Return the microseconds of one snapshot, its JSON text included."""
    return 1e6 * median(
        seconds(lambda: snapshot(FACTS, view, 2.0, detail).model_dump_json(exclude_none=True))
        for _ in range(100)
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of processor time that `work` took."""
    before = time.process_time_ns()
    work()
    return (time.process_time_ns() - before) / 1e9


def main() -> None:
    """Print the table."""
    print(f"{'microseconds, median':32}{f'{USUAL} phases':>14}{f'{MANY} phases':>14}")
    usual, many = begun(USUAL), begun(MANY)
    rows: list[tuple[str, float, float]] = [
        ("fold a step", fold_us(usual, list(steps())), fold_us(many, list(steps()))),
        (
            "fold a phase's start or finish",
            fold_us(usual, [*new_phases(USUAL)][:40]),
            fold_us(many, [*new_phases(MANY)][:40]),
        ),
        ("fold a heartbeat", fold_us(usual, list(beats())), fold_us(many, list(beats()))),
        *(
            (f"snapshot as JSON, {detail.value}", render_us(usual, detail), render_us(many, detail))
            for detail in Detail
        ),
    ]
    for name, few_us, many_us in rows:
        print(f"{name:32}{few_us:14.1f}{many_us:14.1f}")
    cores = rows[0][1] * 200 * 300 / 1e6
    print(f"200 builds with 300 steps/s each: {cores:.2f} cores")


if __name__ == "__main__":
    main()
