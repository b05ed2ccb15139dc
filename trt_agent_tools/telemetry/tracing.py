"""Sends the trace of every build that ends. Imported only where the OpenTelemetry SDK is installed."""

import logging
import threading
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from trt_agent_tools import __version__
from trt_agent_tools.model.states import TERMINAL
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.supervisor.observer import Observed
from trt_agent_tools.telemetry.spans import trace_build

_SERVICE = "trt-agent-tools"
_UNNAMED = "unknown_service"
"""How the SDK names a service that the environment does not name begins so."""

_log = logging.getLogger(__name__)


def to_collector() -> SpanProcessor:
    """Return what sends spans by OTLP over HTTP, from a thread of its own, as the environment says.

    Raises:
        ValueError: the environment says what cannot be.
    """
    return BatchSpanProcessor(OTLPSpanExporter())


class Tracing:
    """Makes a trace of each build as an `Observer`, when the build ends."""

    def __init__(self, sender: SpanProcessor) -> None:
        # Not the process's global provider: the libraries here would trace themselves through it. And
        # not ended by the SDK at exit, where nothing bounds it.
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(sender)
        self._tracer = self._provider.get_tracer("trt_agent_tools", __version__)
        self._accepted_ns: dict[str, int] = {}

    def accepted(self, build: Observed) -> None:
        """See `Observer`. Steps of the wall clock during a build move nothing of it."""
        accepted_ns = time.time_ns() - round(build.now() * 1e9)
        self._accepted_ns[build.facts.build_id] = accepted_ns

    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        """See `Observer`."""
        if isinstance(event, StateChanged) and event.state in TERMINAL:
            accepted_ns = self._accepted_ns.pop(build.facts.build_id)
            trace_build(self._tracer, build, accepted_ns)

    def close(self, within_s: float) -> None:
        """Send what is left, and return within `within_s` whatever the collector does."""
        # The SDK waits up to half a minute: in a thread, which ends with the process.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(within_s)
        if closing.is_alive():
            _log.warning("the last traces were not sent within %.1f s", within_s)


def _resource() -> Resource:
    """Return what the environment says of this service, and its name if that says none."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        resource = resource.merge(Resource({SERVICE_NAME: _SERVICE}))
    return resource
