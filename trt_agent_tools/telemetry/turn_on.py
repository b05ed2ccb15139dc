"""Which telemetry a process has: what is installed, and what its environment asks for."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from trt_agent_tools.supervisor.observer import Condition, Observer

if TYPE_CHECKING:
    from trt_agent_tools.telemetry.metrics import Metrics
    from trt_agent_tools.telemetry.tracing import Tracing

FLUSH_S = 2.0
"""A process that ends gives its last traces so long."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own settings; one of them turns tracing on."""

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"

_log = logging.getLogger(__name__)


class Telemetry:
    """The telemetry of this process. What is absent or fails is told in the log; it harms nothing.

    Metrics are kept if they are wanted and `prometheus_client` is installed. Traces are sent if the
    environment names an endpoint and the OpenTelemetry SDK is installed.
    """

    def __init__(self, *, metrics: bool) -> None:
        self._metrics = _metrics() if metrics else None
        self._tracing = _tracing()

    @property
    def observers(self) -> list[Observer]:
        """Who is to be told of builds."""
        return [observer for observer in (self._metrics, self._tracing) if observer is not None]

    def exposition(self, condition: Callable[[], Condition]) -> Callable[[], bytes] | None:
        """Return what renders the metrics for a scrape, None without metrics."""
        kept = self._metrics
        return None if kept is None else lambda: kept.text(condition())

    async def aclose(self, within_s: float = FLUSH_S) -> None:
        """Send the last traces, within `within_s`."""
        if self._tracing is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._tracing.close, within_s)


def _metrics() -> "Metrics | None":
    try:
        from trt_agent_tools.telemetry.metrics import Metrics  # noqa: PLC0415

        return Metrics()
    except ModuleNotFoundError:
        # The extra is not installed: whoever scrapes is told so.
        _log.debug("no metrics are kept", exc_info=True)
    except Exception:  # noqa: BLE001  (whatever is wrong with the library, builds go on: told, logged)
        _log.exception("no metrics are kept: they could not be set up")
    return None


def _tracing() -> "Tracing | None":
    if not _wants_traces():
        return None
    try:
        from trt_agent_tools.telemetry.tracing import Tracing, to_collector  # noqa: PLC0415

        return Tracing(to_collector())
    except ModuleNotFoundError as error:
        _log.warning('%s, so no traces are sent: pip install "trt-agent-tools[otel]"', error)
    except Exception:  # noqa: BLE001  (whatever the SDK makes of its settings: likewise)
        _log.exception("no traces are sent: they could not be set up")
    return None


def _wants_traces() -> bool:
    said = os.environ.get
    if not any(map(said, ENDPOINTS)) or said("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return False
    protocol = next(filter(None, map(said, _PROTOCOLS)), _SPOKEN)
    if protocol != _SPOKEN:
        _log.warning("no traces are sent: %s is not spoken here, only %s", protocol, _SPOKEN)
    return protocol == _SPOKEN
