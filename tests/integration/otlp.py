"""A collector that takes traces by OTLP over HTTP, or behaves badly."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

LONGEST_S = 20.0


class Collector:
    """Keeps the spans that came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[Span] = []
        self._came = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self._spans.extend(scope.spans)
            self._came.notify_all()

    def trace_of(self, build_id: str) -> "Trace":
        """Wait for the trace of a build."""
        deadline = time.monotonic() + LONGEST_S
        with self._came:
            # The root is the last span of a trace to be made.
            while (root := self._root(build_id)) is None:
                assert self._came.wait(deadline - time.monotonic()), f"no trace of {build_id} came"
            return Trace(root, [span for span in self._spans if span.trace_id == root.trace_id])

    def _root(self, build_id: str) -> Span | None:
        return next((s for s in self._spans if text(s, "build.id") == build_id), None)


@dataclass(frozen=True)
class Trace:
    """The spans of one build."""

    root: Span
    spans: list[Span]

    def parent(self, span: Span) -> Span | None:
        return next((s for s in self.spans if s.span_id == span.parent_span_id), None)

    def depth(self, span: Span) -> int:
        parent = self.parent(span)
        return 0 if parent is None else 1 + self.depth(parent)


def text(span: Span, name: str) -> str:
    """Return an attribute, empty without one."""
    return next((a.value.string_value for a in span.attributes if a.key == name), "")


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taking.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    taking = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield taking
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silent_collector() -> Iterator[str]:
    """Give the URL of one that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def absent_collector() -> Iterator[str]:
    """Give the URL of a port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
