"""Prometheus metrics of a supervisor's builds. Imported only where `prometheus_client` is installed.

Labels have few values, all of them words of ours: no ids, models, policies or principals.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from trt_agent_tools import __version__
from trt_agent_tools.model.states import LIVE, TERMINAL, State
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.progress.clock import spans
from trt_agent_tools.supervisor.observer import Condition, Observed

BUILD_BUCKETS_S = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)
"""A build takes seconds to hours."""

QUEUE_BUCKETS_S = (0.1, 1, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800)
"""A wait is nothing, or the length of the builds before it."""


class Metrics:
    """Counts what it is told as an `Observer`, and writes it down when it is scraped."""

    def __init__(self) -> None:
        # When each counter was made: series that nobody here asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        self._live: dict[str, Observed] = {}
        self._settled_s = 0.0
        self._counted_s = 0.0
        ProcessCollector(registry=registry)
        Info("trt_supervisor", "The supervisor.", registry=registry).info({"version": __version__})
        self._builds = Gauge(
            "trt_builds", "Builds that wait or run, by state.", ["state"], registry=registry
        )
        self._ended = Counter(
            "trt_builds_ended", "Builds that ended.", ["state", "reason"], registry=registry
        )
        self._duration = Histogram(
            "trt_build_duration_seconds",
            "From getting the device to the proven end.",
            ["state"],
            buckets=BUILD_BUCKETS_S,
            registry=registry,
        )
        self._queue = Histogram(
            "trt_queue_wait_seconds",
            "From being accepted to getting the device, of builds that got one.",
            buckets=QUEUE_BUCKETS_S,
            registry=registry,
        )
        self._gpu = Counter(
            "trt_gpu_seconds", "Time that builds have held devices.", registry=registry
        )
        self._verdicts = Counter(
            "trt_verdicts",
            "Verdicts of policies: warnings, and ends that were or would have been.",
            ["rule", "action"],
            registry=registry,
        )
        self._devices = Gauge(
            "trt_devices",
            "Devices: free, leased by a build, or out_of_service as a process outlives SIGKILL.",
            ["state"],
            registry=registry,
        )
        self._failing = Gauge(
            "trt_journal_failing",
            "1 if the journal could not be written when that was last tried.",
            registry=registry,
        )
        self._owed = Gauge(
            "trt_journal_owed_records",
            "Records kept in memory until the journal can be written again.",
            registry=registry,
        )
        self._recovered = Gauge(
            "trt_builds_recovered",
            "Builds that had lost their supervisor and were brought to their end by this one.",
            registry=registry,
        )

    def accepted(self, build: Observed) -> None:
        """See `Observer`."""
        self._live[build.facts.build_id] = build

    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        """See `Observer`."""
        if isinstance(event, VerdictGiven):
            verdict = event.verdict
            self._verdicts.labels(verdict.rule.value, verdict.action.value).inc()
        elif isinstance(event, StateChanged):
            if event.state is State.STARTING:
                self._queue.observe(spans(build.view, event.at).queue_s)
            elif event.state in TERMINAL:
                self._count_end(build, event)

    def text(self, condition: Condition) -> bytes:
        """Return all metrics as they are now, in the text format 0.0.4."""
        states = [build.view.state for build in self._live.values()]
        for state in (state for state in State if state in LIVE):
            self._builds.labels(state.value).set(states.count(state))
        running = sum(spans(build.view, build.now()).gpu_s or 0.0 for build in self._live.values())
        # A build's end may lie before the last look at it: the counter waits, for it must not fall.
        due = self._settled_s + running - self._counted_s
        if due > 0:
            self._gpu.inc(due)
            self._counted_s += due
        self._devices.labels("free").set(condition.devices_free)
        self._devices.labels("leased").set(condition.devices_leased)
        self._devices.labels("out_of_service").set(condition.devices_out_of_service)
        self._failing.set(condition.journal_failing)
        self._owed.set(condition.records_owed)
        self._recovered.set(condition.builds_recovered)
        return generate_latest(self._registry)

    def _count_end(self, build: Observed, event: StateChanged) -> None:
        view = build.view
        reason = view.reason.value if view.reason else ""
        self._ended.labels(event.state.value, reason).inc()
        held_s = spans(view, event.at).gpu_s
        if held_s is not None:
            self._duration.labels(event.state.value).observe(held_s)
            self._settled_s += held_s
        self._live.pop(build.facts.build_id, None)
