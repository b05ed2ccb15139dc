"""A build as a trace, made with the real SDK and kept in memory."""

import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.unit.telemetry.scripted import ScriptedBuild
from trt_agent_tools.model.events import Origin
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.verdict import Action, Rule
from trt_agent_tools.supervisor.observer import Observers
from trt_agent_tools.telemetry.spans import MAX_PHASE_SPANS
from trt_agent_tools.telemetry.tracing import Tracing

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = SAMPLED[:-1] + "0"

ACCEPTED_NS = 1_769_860_800_000_000_000


class Traces:
    """What was made of the builds that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.observers = Observers([Tracing(SimpleSpanProcessor(self._exporter))])

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    monkeypatch.setattr(time, "time_ns", lambda: ACCEPTED_NS)
    return Traces()


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """Return begin and end of a span, since the build was accepted."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - ACCEPTED_NS) / 1e9, (span.end_time - ACCEPTED_NS) / 1e9


def is_inside(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def test_a_build_is_a_trace_and_each_phase_a_span_inside_the_one_around_it(traces: Traces) -> None:
    build = ScriptedBuild(traces.observers)
    build.move(State.STARTING, at=2.0)
    build.start_phase(1, "Building", at=3.0, origin=Origin.WORKER)
    build.start_phase(2, "Building engine", at=4.0, parent=1, steps=6)
    build.step(2, 4, at=5.0)
    build.finish_phase(2, at=8.0)
    build.finish_phase(1, at=9.0)
    build.move(State.SUCCEEDED, Reason.COMPLETED, at=10.0)
    root, outer, inner = traces.one("build"), traces.one("Building"), traces.one("Building engine")
    assert (seconds(root), seconds(outer), seconds(inner)) == ((0, 10), (3, 9), (4, 8))
    assert root.parent is None
    assert is_inside(outer, root)
    assert is_inside(inner, outer)
    assert inner.attributes == {
        "phase.origin": "tensorrt",
        "phase.status": "finished",
        "phase.steps_done": 5,
        "phase.steps_total": 6,
    }
    assert root.attributes == {
        "build.id": "b_1",
        "build.state": "succeeded",
        "build.reason": "completed",
        "build.backend": "replay",
        "build.device": "gpu0",
        "build.policy": "default",
        "build.model": "resnet.onnx",
        "build.queue_s": 2.0,
        "build.gpu_s": 8.0,
    }
    assert root.status.status_code is StatusCode.OK


def test_a_trace_names_no_path_of_the_host_and_no_session(traces: Traces) -> None:
    build = ScriptedBuild(traces.observers)
    build.give(Rule.SILENT, Action.CANCEL)
    build.run(State.FAILED, Reason.BUILDER_ERROR, queue_s=0.0, gpu_s=1.0)
    for span in traces.spans:
        assert "secret" not in span.to_json()


def test_a_failed_build_is_an_error_by_its_code(traces: Traces) -> None:
    ScriptedBuild(traces.observers).run(State.FAILED, Reason.BUILDER_ERROR, queue_s=0.0, gpu_s=1.0)
    root = traces.one("build")
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "builder_error"
    assert root.attributes
    assert root.attributes["error.type"] == "builder_error"


def test_a_cancelled_build_is_no_error_and_its_running_phases_end_with_it(traces: Traces) -> None:
    build = ScriptedBuild(traces.observers)
    build.move(State.STARTING, at=0.0)
    build.start_phase(1, "Timing", at=1.0)
    build.move(State.CANCELLING, Reason.SILENT, at=5.0)
    build.move(State.CANCELLED, Reason.SILENT, at=6.0)
    assert traces.one("build").status.status_code is StatusCode.UNSET
    phase = traces.one("Timing")
    assert seconds(phase) == (1, 6)
    assert phase.attributes
    assert phase.attributes["phase.status"] == "stopped"


def test_verdicts_are_events_at_their_time(traces: Traces) -> None:
    build = ScriptedBuild(traces.observers)
    build.move(State.STARTING, at=0.0)
    build.at = 4.0
    build.give(Rule.SILENT, Action.WARNED)
    build.move(State.SUCCEEDED, Reason.COMPLETED, at=6.0)
    (event,) = traces.one("build").events
    assert event.timestamp == ACCEPTED_NS + 4_000_000_000
    assert event.attributes == {
        "verdict.rule": "silent",
        "verdict.action": "warned",
        "verdict.threshold": 5.0,
        "verdict.observed.silent": 6.0,
    }


def test_a_phase_never_sticks_out_of_the_one_around_it_whatever_a_worker_says(
    traces: Traces,
) -> None:
    build = ScriptedBuild(traces.observers)
    build.move(State.STARTING, at=0.0)
    build.start_phase(1, "outer", at=2.0)
    build.start_phase(2, "inner", at=1.0, parent=1)
    build.finish_phase(2, at=50.0)
    build.finish_phase(1, at=8.0)
    build.start_phase(3, "late", at=60.0)
    build.move(State.SUCCEEDED, Reason.COMPLETED, at=10.0)
    (_, end), (outer, outer_end) = seconds(traces.one("build")), seconds(traces.one("outer"))
    inner, inner_end = seconds(traces.one("inner"))
    late, late_end = seconds(traces.one("late"))
    assert 0 <= outer <= inner <= inner_end <= outer_end <= end
    assert late <= late_end <= end


def test_a_build_is_the_child_of_the_callers_span(traces: Traces) -> None:
    ScriptedBuild(traces.observers, traceparent=SAMPLED).run(
        State.SUCCEEDED, Reason.COMPLETED, queue_s=0.0, gpu_s=1.0
    )
    root = traces.one("build")
    assert root.parent
    assert root.context
    assert f"{root.context.trace_id:032x}" == SAMPLED.split("-")[1]
    assert f"{root.parent.span_id:016x}" == SAMPLED.split("-")[2]
    assert root.parent.is_remote


def test_a_trace_that_the_caller_does_not_sample_is_not_sent(traces: Traces) -> None:
    ScriptedBuild(traces.observers, traceparent=NOT_SAMPLED).run(
        State.SUCCEEDED, Reason.COMPLETED, queue_s=0.0, gpu_s=1.0
    )
    assert traces.spans == ()


def test_of_very_many_phases_the_newest_are_kept_and_the_others_counted(traces: Traces) -> None:
    build = ScriptedBuild(traces.observers)
    build.move(State.STARTING, at=0.0)
    build.start_phase(0, "around", at=0.5)
    for instance in range(1, MAX_PHASE_SPANS + 100):
        build.start_phase(instance, f"phase {instance}", at=1.0, parent=0)
        build.finish_phase(instance, at=1.0)
    build.finish_phase(0, at=2.0)
    build.move(State.SUCCEEDED, Reason.COMPLETED, at=3.0)
    assert len(traces.spans) == MAX_PHASE_SPANS + 1
    newest = traces.one(f"phase {MAX_PHASE_SPANS + 99}")
    assert is_inside(newest, traces.one("around"))
    attributes = traces.one("build").attributes
    assert attributes
    assert attributes["build.phases_left_out"] == 100


def test_the_service_is_named_by_its_environment_or_else_after_this_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    for expected in ("trt-agent-tools", "engines"):
        traces = Traces()
        ScriptedBuild(traces.observers).run(
            State.SUCCEEDED, Reason.COMPLETED, queue_s=0.0, gpu_s=1.0
        )
        assert traces.one("build").resource.attributes["service.name"] == expected
        monkeypatch.setenv("OTEL_SERVICE_NAME", "engines")


def test_a_disabled_sdk_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traces = Traces()
    ScriptedBuild(traces.observers).run(State.SUCCEEDED, Reason.COMPLETED, queue_s=0.0, gpu_s=1.0)
    assert traces.spans == ()
