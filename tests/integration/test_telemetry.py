"""Metrics and traces of real supervisor processes, read by a real HTTP client and a real collector."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import cast

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import RequestParamsMeta
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.api_processes import Hosts, exit_of, hosts_of
from tests.integration.api_serving import FAST, recording
from tests.integration.otlp import Collector, absent_collector, collector, silent_collector, text
from trt_agent_tools.api.attach import stop
from trt_agent_tools.api.host_log import log_tail
from trt_agent_tools.api.messages import ErrorAnswer, StartBody
from trt_agent_tools.api.place import find_socket
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.store.journal import FILE_NAME
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.observer import Observed
from trt_agent_tools.supervisor.service import Supervisor

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"

BOUNDED_S = 15.0
"""Within this a process ends that gives its collector two seconds; the SDK would give it thirty."""

WITHOUT_EXTRAS = """
import sys
for name in ("prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter"):
    sys.modules[name] = None
from trt_agent_tools.cli.main import main
main()
"""


@pytest.fixture
def hosts(root: Path, tmp_path: Path, nothing_left: None) -> Iterator[Hosts]:
    yield from hosts_of(tmp_path / "state", root)


@pytest.fixture
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Give a collector that processes started from here on send to."""
    with collector() as taking:
        send_to(taking.url, monkeypatch)
        yield taking


def send_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")


@asynccontextmanager
async def http_of(hosts: Hosts) -> AsyncIterator[httpx2.AsyncClient]:
    """Connect to the socket of the folder's supervisor."""
    await hosts.answering()
    transport = httpx2.AsyncHTTPTransport(uds=str(find_socket(hosts.state)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://s", timeout=30) as http:
        yield http


async def build(
    http: httpx2.AsyncClient, hosts: Hosts, request: StartRequest, **headers: str
) -> Snapshot:
    """Start a build over HTTP and return its last snapshot."""
    body = StartBody(request=request, front_end=hosts.allowed).model_dump(mode="json")
    started = await http.post("/v1/builds", json=body, headers=headers)
    assert started.status_code == 201, started.text
    snapshot = Snapshot.model_validate_json(started.content)
    with anyio.fail_after(30):
        while not snapshot.ended:
            query = f"wait_s=10&since_seq={snapshot.seq}&detail=tree"
            answer = await http.get(f"/v1/builds/{snapshot.build_id}?{query}")
            snapshot = Snapshot.model_validate_json(answer.content)
    return snapshot


async def test_a_build_over_http_is_a_trace_below_the_callers_span(
    hosts: Hosts, collecting: Collector
) -> None:
    hosts.supervise()
    async with http_of(hosts) as http:
        ended = await build(
            http, hosts, recording(hosts.root, "quick", speed=FAST), traceparent=TRACEPARENT
        )
    trace = await anyio.to_thread.run_sync(collecting.trace_of, ended.build_id)
    assert trace.root.trace_id.hex() == TRACE
    assert trace.root.parent_span_id.hex() == SPAN
    assert trace.root.status.code == Status.STATUS_CODE_OK
    by_name = {span.name: span for span in trace.spans}
    assert {"Parsing the model", "Building engine", "Writing the engine"} <= by_name.keys()
    assert trace.parent(by_name["Building engine"]) == by_name["Building"]
    assert trace.parent(by_name["Building"]) == trace.root
    assert max(map(trace.depth, trace.spans)) >= 3
    for span in trace.spans:
        around = trace.parent(span) or trace.root
        assert around.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= around.end_time_unix_nano
        assert str(hosts.root) not in str(span)


async def test_a_failed_build_is_an_error_in_a_trace_of_its_own(
    hosts: Hosts, collecting: Collector
) -> None:
    hosts.supervise()
    fails = recording(hosts.root, speed=FAST, actions=[{"at": 0.7, "do": "crash"}])
    async with http_of(hosts) as http:
        ended = await build(http, hosts, fails, traceparent="00-nonsense")
    assert ended.state is State.FAILED
    trace = await anyio.to_thread.run_sync(collecting.trace_of, ended.build_id)
    assert not trace.root.parent_span_id
    assert trace.root.status.code == Status.STATUS_CODE_ERROR
    assert text(trace.root, "build.reason") == "worker_crash"
    assert any(text(span, "phase.status") == "stopped" for span in trace.spans)


async def test_a_tool_call_hands_its_trace_on_and_the_last_build_is_sent_at_the_end(
    root: Path, tmp_path: Path, collecting: Collector, nothing_left: None
) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            *("-m", "trt_agent_tools", "serve", "--embedded", "--enable-replay"),
            *("--root", str(root), "--state-dir", str(tmp_path / "state")),
        ],
        # Nothing is sent before the end.
        env={**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "600000"},
    )
    request = recording(root, "quick", speed=FAST)
    async with Client(stdio_client(server)) as client:
        called = await client.call_tool(
            "start_build",
            {"model": request.model, "backend": "replay"},
            meta=cast("RequestParamsMeta", {"traceparent": TRACEPARENT}),
        )
        assert not called.is_error, called.content
        snapshot = Snapshot.model_validate(called.structured_content)
        with anyio.fail_after(30):
            while not snapshot.ended:
                waited = await client.call_tool(
                    "get_progress",
                    {"build_id": snapshot.build_id, "wait_s": 10, "since_seq": snapshot.seq},
                )
                snapshot = Snapshot.model_validate(waited.structured_content)
    trace = await anyio.to_thread.run_sync(collecting.trace_of, snapshot.build_id)
    assert trace.root.trace_id.hex() == TRACE
    assert trace.root.parent_span_id.hex() == SPAN


@pytest.mark.parametrize("bad_collector", [absent_collector, silent_collector])
async def test_a_collector_that_refuses_or_hangs_holds_up_no_build_and_no_end(
    bad_collector: Callable[[], AbstractContextManager[str]],
    hosts: Hosts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bad_collector() as url:
        send_to(url, monkeypatch)
        hosts.supervise()
        async with http_of(hosts) as http:
            for _ in range(2):
                ended = await build(http, hosts, recording(hosts.root, "quick", speed=FAST))
                assert ended.state is State.SUCCEEDED
        hello = await stop(hosts.state)
        assert hello
        await exit_of(hello.pid, within_s=BOUNDED_S)
    # In the SDK's words or in ours, whichever came first.
    assert any("trace" in line for line in log_tail(hosts.state, 0))


async def test_metrics_are_scraped_from_the_supervisors_socket(hosts: Hosts) -> None:
    hosts.supervise()
    async with http_of(hosts) as http:
        await build(http, hosts, recording(hosts.root, "quick", speed=FAST))
        scraped = await http.get("/metrics")
        refused = await http.get("/metrics?name=trt_builds")
    assert scraped.status_code == 200
    assert scraped.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(scraped.text)
        for sample in family.samples
    }
    assert samples["trt_builds_ended_total", "completed", "succeeded"] == 1
    assert samples["trt_build_duration_seconds_count", "succeeded"] == 1
    assert samples["trt_gpu_seconds_total",] > 0
    assert samples["trt_devices", "leased"] == 0
    assert samples["trt_journal_failing",] == 0
    assert refused.status_code == 422


async def test_without_the_extras_builds_work_and_it_is_said_what_to_install(
    hosts: Hosts, collecting: Collector
) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220  (a test has its loop for itself)
        [sys.executable, "-c", WITHOUT_EXTRAS, "supervise", "--state-dir", str(hosts.state)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    hosts.started.append(process)
    async with http_of(hosts) as http:
        ended = await build(http, hosts, recording(hosts.root, "quick", speed=FAST))
        scraped = await http.get("/metrics")
    assert ended.state is State.SUCCEEDED
    assert scraped.status_code == 404
    assert "trt-agent-tools[metrics]" in ErrorAnswer.model_validate_json(scraped.content).error.hint
    assert any("trt-agent-tools[otel]" in line for line in log_tail(hosts.state, 0))


def test_nothing_of_the_extras_is_loaded_where_they_are_not_asked_for() -> None:
    code = (
        "import sys; from trt_agent_tools.telemetry.turn_on import Telemetry\n"
        "assert not Telemetry(metrics=False).observers\n"
        "print([m for m in sys.modules if m.startswith(('prometheus', 'opentelemetry.sdk'))])"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean
    )
    assert done.stdout.strip() == "[]", done.stdout


class Failing:
    """Fails at the first thing that it is told."""

    def accepted(self, build: Observed) -> None:
        """Hear nothing."""

    def told(self, build: Observed, event: StateChanged | Noted | VerdictGiven) -> None:
        raise RuntimeError(f"{event} of {build.facts.build_id}")


async def test_a_failing_observer_harms_no_build(
    root: Path, tmp_path: Path, nothing_left: None
) -> None:
    config = SupervisorConfig(tmp_path / "state", (root,), enable_replay=True)
    async with Supervisor(config, [Failing()]) as supervisor:
        snapshot = await supervisor.start(recording(root, "quick", speed=FAST))
        with anyio.fail_after(30):
            while not snapshot.ended:
                snapshot = await supervisor.progress(
                    snapshot.build_id, wait_s=10, since_seq=snapshot.seq
                )
    assert snapshot.state is State.SUCCEEDED


async def test_a_repeated_key_finds_its_build_from_another_trace_and_from_the_journal(
    root: Path, tmp_path: Path, nothing_left: None
) -> None:
    config = SupervisorConfig(tmp_path / "state", (root,), enable_replay=True)
    request = recording(root, "quick", speed=FAST).model_copy(update={"idempotency_key": "once"})
    traced = request.model_copy(update={"traceparent": TRACEPARENT})
    async with Supervisor(config) as supervisor:
        first = await supervisor.start(traced)
        assert (await supervisor.start(request)).build_id == first.build_id
    async with Supervisor(config) as supervisor:
        assert (await supervisor.start(request)).build_id == first.build_id


async def test_a_journal_that_cannot_be_written_is_told_until_it_can(
    root: Path, tmp_path: Path
) -> None:
    config = SupervisorConfig(tmp_path / "state", (root,))
    async with Supervisor(config) as supervisor:
        assert not supervisor.condition().journal_failing
        with closing(sqlite3.connect(config.state_dir / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Refusal):
                await supervisor.open_session(SessionRequest(gpu_time="5m"))
            assert supervisor.condition().journal_failing
            other.execute("ROLLBACK")
        await supervisor.open_session(SessionRequest(gpu_time="5m"))
        assert not supervisor.condition().journal_failing
