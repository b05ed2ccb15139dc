"""A build as TensorRT-RTX really reports it, inside the worker's own phases."""

from collections.abc import Iterator

import pytest

from trt_agent_tools.model.events import (
    Capabilities,
    EngineWritten,
    Goodbye,
    Heartbeat,
    Hello,
    OptionApplied,
    Origin,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Ready,
    StepCompleted,
)
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, StateChanged
from trt_agent_tools.progress.view import BuildFacts

SILENT_FROM = 1.0
SILENT_UNTIL = 12.0

# (time, what, instance, name, parent, steps): recorded from tensorrt-rtx 1.7, times drawn apart.
_TENSORRT: tuple[tuple[float, str, int, str, int | None, int], ...] = (
    (0.80, "start", 10, "Building engine", 3, 6),
    (0.80, "start", 11, "Cloning network graph", 10, 1299),
    (0.84, "step", 11, "", None, 1298),
    (0.84, "finish", 11, "", None, 0),
    (0.84, "step", 10, "", None, 0),
    (0.84, "step", 10, "", None, 1),
    (0.85, "start", 12, "Preparing graph for optimization", 10, 4),
    (0.90, "step", 12, "", None, 3),
    (0.90, "finish", 12, "", None, 0),
    (0.90, "step", 10, "", None, 2),
    (0.90, "start", 13, "Building engine from subgraph", 10, 1),
    (0.90, "start", 14, "Optimizing graph", 13, 30),
    (0.93, "step", 14, "", None, 17),
    (0.97, "step", 14, "", None, 29),
    (0.97, "finish", 14, "", None, 0),
    (0.97, "start", 15, "Computing profile costs", 13, 5),
    (0.98, "step", 15, "", None, 1),
    (0.98, "start", 16, "Timing tactics", 15, 3),
    (0.98, "start", 17, "Timing graph nodes", 16, 3),
    (0.99, "step", 17, "", None, 2),
    (0.99, "finish", 17, "", None, 0),
    (0.99, "step", 16, "", None, 0),
    (0.99, "start", 18, "Timing tensor reformats", 16, 3),
    (0.99, "start", 19, "Computing reformatting costs", 18, 1),
    (0.99, "finish", 19, "", None, 0),
    (0.99, "start", 20, "Computing reformatting costs", 18, 1),
    (0.99, "step", 20, "", None, 0),
    (0.99, "finish", 20, "", None, 0),
    (0.99, "finish", 18, "", None, 0),
    (0.99, "step", 16, "", None, 1),
    (0.99, "finish", 16, "", None, 0),
    (0.99, "step", 15, "", None, 2),
    (1.00, "start", 21, "Determining refit engines", 15, 1),
    (12.0, "step", 21, "", None, 0),
    (12.0, "finish", 21, "", None, 0),
    (12.1, "step", 15, "", None, 4),
    (12.1, "finish", 15, "", None, 0),
    (12.1, "finish", 13, "", None, 0),
    (12.1, "step", 10, "", None, 4),
    (12.1, "finish", 10, "", None, 0),
)


def _tensorrt() -> Iterator[BuildEvent]:
    for at, what, instance, name, parent, number in _TENSORRT:
        if what == "start":
            yield PhaseStarted(at, instance, name, number, parent)
        elif what == "step":
            yield StepCompleted(at, instance, number)
        else:
            yield PhaseFinished(at, instance)


def _sample(at: float) -> ActivitySampled:
    return ActivitySampled(at, busy=True, cpu_percent=98.7, rss_bytes=1_234_567_890)


def _worker(at: float, instance: int, name: str, steps: int = 1) -> PhaseStarted:
    return PhaseStarted(at, instance, name, steps, origin=Origin.WORKER)


@pytest.fixture
def facts() -> BuildFacts:
    return BuildFacts(
        build_id="b_1a2b3c4d",
        label="resnet50 for the edge",
        policy="default",
        backend="tensorrt_rtx",
        model="/srv/models/resnet50/resnet50-v2-7.onnx",
        output="/srv/engines/resnet50/resnet50-v2-7.engine",
        created_at="2026-01-31T12:34:56Z",
    )


@pytest.fixture
def usual_build() -> list[BuildEvent]:
    """From the queue to success, in 14.2 s, of which 11 s in one silent step."""
    return [
        StateChanged(0.1, State.STARTING, device="cpu"),
        Hello(0.15, "tensorrt_rtx", 4242),
        _worker(0.2, 1, "Importing TensorRT"),
        PhaseFinished(0.5, 1),
        Ready(
            0.5,
            {"tensorrt_rtx": "1.7.1.116", "python": "3.11.7"},
            "/opt/lib/tensorrt_rtx/__init__.py",
            "cpu",
            Capabilities(),
        ),
        _worker(0.5, 2, "Parsing the model"),
        PhaseFinished(0.78, 2),
        OptionApplied(0.79, "builder_optimization_level", 3, 3),
        OptionApplied(0.79, "flags", ["TF32"], ["TF32"]),
        OptionApplied(0.79, "memory_pool_limits", {"WORKSPACE": 1 << 30}, {"WORKSPACE": 1 << 30}),
        _worker(0.79, 3, "Building"),
        StateChanged(0.8, State.BUILDING),
        *(event for event in _tensorrt() if event.at <= SILENT_FROM),
        *(event for second in range(1, 12) for event in _silent_second(second)),
        *(event for event in _tensorrt() if event.at >= SILENT_UNTIL),
        _sample(13.2),
        PhaseFinished(13.9, 3),
        _worker(13.9, 4, "Writing the engine"),
        PhaseFinished(14.1, 4),
        EngineWritten(
            14.1,
            "/srv/engines/resnet50/resnet50-v2-7.engine",
            12_345_678,
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "/srv/engines/resnet50/resnet50-v2-7.engine.json",
        ),
        Goodbye(14.1, Outcome.SUCCEEDED),
        StateChanged(14.2, State.SUCCEEDED, Reason.COMPLETED),
    ]


def _silent_second(second: int) -> tuple[BuildEvent, BuildEvent]:
    at = float(second)
    return Heartbeat(at + 0.1, 180, SILENT_FROM), _sample(at + 0.2)
