"""A build that has ended, as a trace: the build is the root span, every phase a span below it."""

from dataclasses import dataclass
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from trt_agent_tools.model.snapshot import PhaseStatus
from trt_agent_tools.model.states import State
from trt_agent_tools.progress.clock import spans
from trt_agent_tools.progress.phases import PhaseNode, newest
from trt_agent_tools.supervisor.observer import Observed

MAX_PHASE_SPANS = 500
"""The most phases of a trace, the newest ones; a usual build has 15 to 60. Making one takes some 20 µs."""

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Placed:
    """A span that has begun, and the seconds since the build was accepted between which it lies."""

    span: Span
    start: float
    end: float


def trace_build(tracer: Tracer, build: Observed, accepted_ns: int) -> None:
    """Make the spans of a build that has ended. It was accepted at `accepted_ns`, in Unix time.

    No path of this host is in them beside the name of the model's file.
    """
    view = build.view
    at = spans(view, build.now())

    def unix_ns(seconds: float) -> int:
        return accepted_ns + round(seconds * _NS)

    root = tracer.start_span(
        "build", _parent(build), attributes=_of_build(build), start_time=accepted_ns
    )
    if not root.is_recording():
        # The caller's trace is not sampled.
        return
    for verdict in view.told.verdicts:
        root.add_event(
            "verdict",
            {
                "verdict.rule": verdict.rule.value,
                "verdict.action": verdict.action.value,
                "verdict.threshold": verdict.threshold,
                **{f"verdict.observed.{name}": value for name, value in verdict.observed.items()},
            },
            unix_ns(min(verdict.at_s, at.until)),
        )
    top = _Placed(root, 0.0, at.until)
    placed: dict[int, _Placed] = {}
    for node in reversed([*newest(view.phases, MAX_PHASE_SPANS)]):
        above = top if node.parent is None else placed.get(node.parent, top)
        # A worker's times are its own: whatever they are, a phase lies within the one around it.
        start = min(max(node.started_at, above.start), above.end)
        end = at.until if node.finished_at is None else node.finished_at
        span = tracer.start_span(
            node.name,
            set_span_in_context(above.span, Context()),
            attributes=_of_phase(node),
            start_time=unix_ns(start),
        )
        placed[node.instance] = _Placed(span, start, min(max(end, start), above.end))
    for phase in placed.values():
        phase.span.end(unix_ns(phase.end))
    root.set_status(_status(build))
    root.end(unix_ns(at.until))


def _parent(build: Observed) -> Context:
    """Return what the build is part of; never what this process happens to do just now."""
    traceparent = build.request.traceparent
    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _status(build: Observed) -> Status:
    view = build.view
    if view.state is State.SUCCEEDED:
        return Status(StatusCode.OK)
    if view.state is State.CANCELLED:
        # Somebody asked for it.
        return Status(StatusCode.UNSET)
    # The code alone: a message may name files of this host.
    return Status(StatusCode.ERROR, view.error.code.value if view.error else view.state.value)


def _of_build(build: Observed) -> dict[str, AttributeValue]:
    facts, view = build.facts, build.view
    at = spans(view, build.now())
    kept = len(view.phases.running) + len(view.phases.finished)
    known: dict[str, AttributeValue | None] = {
        "build.id": facts.build_id,
        "build.state": view.state.value,
        "build.reason": view.reason.value if view.reason else None,
        "build.backend": facts.backend,
        "build.device": view.device,
        "build.policy": facts.policy,
        "build.model": Path(facts.model).name,
        "build.queue_s": at.queue_s,
        "build.gpu_s": at.gpu_s,
        "build.engine_bytes": view.result.bytes if view.result else None,
        "build.ended_by": view.life.ended_by.value if view.life.ended_by else None,
        "build.phases_left_out": view.phases.left_out + max(0, kept - MAX_PHASE_SPANS) or None,
        "error.type": view.error.code.value if view.error else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _of_phase(node: PhaseNode) -> dict[str, AttributeValue]:
    finished = node.finished_at is not None
    return {
        "phase.origin": node.origin.value,
        "phase.status": (PhaseStatus.FINISHED if finished else PhaseStatus.STOPPED).value,
        "phase.steps_done": node.steps_done,
        "phase.steps_total": node.steps_total,
    }
