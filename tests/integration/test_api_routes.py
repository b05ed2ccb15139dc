"""The API as any HTTP client sees it, on a real socket over a real supervisor."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.api_serving import FAST, Served, recording, served
from trt_agent_tools.api import event_stream
from trt_agent_tools.api.access import always
from trt_agent_tools.api.control import Control
from trt_agent_tools.api.messages import ErrorAnswer, StartBody
from trt_agent_tools.api.routes import make_app
from trt_agent_tools.api.strict import MAX_BODY_BYTES
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.request import FrontEnd, StartRequest
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import BuildList, BuildLog, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

pytestmark = pytest.mark.anyio

UNKNOWN = "b_0000000000000000"


@pytest.fixture
async def api(root: Path, tmp_path: Path, nothing_left: None) -> AsyncIterator[Served]:
    async with served(root, tmp_path / "state") as running:
        yield running


def start_body(api: Served, request: StartRequest) -> dict[str, object]:
    return {
        "request": request.model_dump(mode="json", exclude_unset=True),
        "front_end": api.front_end.model_dump(mode="json"),
    }


async def started(api: Served, request: StartRequest) -> Snapshot:
    response = await api.http.post("/v1/builds", json=start_body(api, request))
    assert response.status_code == 201, response.text
    return Snapshot.model_validate_json(response.content)


async def ended(api: Served, build_id: str) -> Snapshot:
    with anyio.fail_after(30):
        snapshot = await api.local.progress(build_id)
        while not snapshot.ended:
            snapshot = await api.local.progress(build_id, wait_s=10, since_seq=snapshot.seq)
    return snapshot


def refused(response: httpx2.Response, status: int, code: ErrorCode) -> ErrorAnswer:
    assert response.status_code == status, response.text
    body = ErrorAnswer.model_validate_json(response.content)
    assert body.error.code is code
    assert body.error.message
    assert body.error.hint
    return body


async def test_a_build_is_started_watched_listed_and_cancelled_by_plain_http(
    api: Served, root: Path
) -> None:
    build = await started(api, recording(root))
    assert build.model == str(next(root.iterdir()))
    seen = await api.http.get(f"/v1/builds/{build.build_id}?wait_s=5&since_seq=0&detail=tree")
    assert seen.status_code == 200
    assert Snapshot.model_validate_json(seen.content).phases is not None
    listed = await api.http.get("/v1/builds?limit=5")
    assert [b.build_id for b in BuildList.model_validate_json(listed.content).builds] == [
        build.build_id
    ]
    cancelled = await api.http.post(
        f"/v1/builds/{build.build_id}/cancel?wait_s=20", json={"reason": "enough"}
    )
    snapshot = Snapshot.model_validate_json(cancelled.content)
    assert snapshot.state is State.CANCELLED
    assert any("enough" in note for note in snapshot.notes or [])
    log = await api.http.get(f"/v1/builds/{build.build_id}/log?tail=3")
    assert BuildLog.model_validate_json(log.content).untrusted


async def test_a_cancel_needs_no_body(api: Served, root: Path) -> None:
    build = await started(api, recording(root))
    response = await api.http.post(f"/v1/builds/{build.build_id}/cancel?wait_s=20")
    assert Snapshot.model_validate_json(response.content).state is State.CANCELLED


async def test_sessions_are_opened_and_seen(api: Served) -> None:
    opened = await api.http.post("/v1/sessions", json={"gpu_time": "5m", "label": "night"})
    assert opened.status_code == 201, opened.text
    session = Session.model_validate_json(opened.content)
    assert session.budget_s == 300
    again = await api.http.get(f"/v1/sessions/{session.session_id}")
    assert Session.model_validate_json(again.content).label == "night"
    default = await api.http.get("/v1/sessions/default")
    assert Session.model_validate_json(default.content).session_id != session.session_id


async def test_absent_values_are_left_out_of_answers(api: Served, root: Path) -> None:
    build = await started(api, recording(root, "quick", speed=FAST))
    response = await api.http.get(f"/v1/builds/{build.build_id}")
    assert None not in response.json().values()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"/v1/builds/{UNKNOWN}", 404, ErrorCode.UNKNOWN_BUILD),
        ("GET", f"/v1/builds/{UNKNOWN}/events", 404, ErrorCode.UNKNOWN_BUILD),
        ("GET", f"/v1/builds/{UNKNOWN}/log", 404, ErrorCode.UNKNOWN_BUILD),
        ("POST", f"/v1/builds/{UNKNOWN}/cancel", 404, ErrorCode.UNKNOWN_BUILD),
        ("GET", "/v1/sessions/s_nobody", 404, ErrorCode.UNKNOWN_SESSION),
        ("GET", "/v1/nothing", 404, ErrorCode.INVALID_ARGUMENT),
        ("DELETE", f"/v1/builds/{UNKNOWN}", 405, ErrorCode.INVALID_ARGUMENT),
        ("GET", f"/v1/builds/{UNKNOWN}?wait_s=46", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", f"/v1/builds/{UNKNOWN}?wait_s=nan", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", f"/v1/builds/{UNKNOWN}?wait_s=soon", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", f"/v1/builds/{UNKNOWN}?detail=all", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", f"/v1/builds/{UNKNOWN}?wait=1", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", f"/v1/builds/{UNKNOWN}?wait_s=1&wait_s=2", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", "/v1/builds?limit=0", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", "/v1/builds?state=gone", 422, ErrorCode.INVALID_ARGUMENT),
        ("GET", "/healthz?verbose=1", 422, ErrorCode.INVALID_ARGUMENT),
        ("POST", "/v1/builds", 422, ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_a_wrong_request_is_refused_with_its_status_code_and_hint(
    api: Served, method: str, path: str, status: int, code: ErrorCode
) -> None:
    refused(await api.http.request(method, path), status, code)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'"text"',
        b'{"request": {"model": "m.onnx"}, "front_end": {}, "more": 1}',
        b'{"request": {"model": "m.onnx", "modle": "x"}, "front_end": {}}',
        b'{"request": {"model": "m.onnx", "options": {"fast": true}}, "front_end": {}}',
        b'{"request": {"model": "m.onnx"}, "front_end": {"roots": ["relative"]}}',
        b'{"request": {"model": "m.onnx"}}',
        b'{"request": {"model": ""}, "front_end": {}}',
    ],
)
async def test_a_body_that_is_no_start_is_refused_and_starts_nothing(
    api: Served, body: bytes
) -> None:
    response = await api.http.post(
        "/v1/builds", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code in {400, 422}, response.text
    error = ErrorAnswer.model_validate_json(response.content).error
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert not (await api.local.list_builds()).builds


async def test_what_the_supervisor_refuses_has_the_status_of_its_code(
    api: Served, root: Path
) -> None:
    async def start(request: StartRequest) -> httpx2.Response:
        return await api.http.post("/v1/builds", json=start_body(api, request))

    first = recording(root)
    build = await started(api, first)
    refused(await start(first), 409, ErrorCode.OUTPUT_BUSY)
    outside = first.model_copy(update={"model": "/etc/hostname"})
    refused(await start(outside), 403, ErrorCode.OUTSIDE_ROOTS)
    (root / "there.engine").write_bytes(b"x")
    there = first.model_copy(update={"output": "there.engine"})
    refused(await start(there), 409, ErrorCode.OUTPUT_EXISTS)
    missing = first.model_copy(update={"model": "missing.onnx"})
    refused(await start(missing), 422, ErrorCode.MODEL_NOT_FOUND)
    policy = first.model_copy(update={"policy": "nonsense"})
    refused(await start(policy), 404, ErrorCode.UNKNOWN_POLICY)
    await api.http.post(f"/v1/builds/{build.build_id}/cancel?wait_s=20")
    extend = {"limit": "build_time", "by": "5m", "reason": "more"}
    late = await api.http.post(f"/v1/builds/{build.build_id}/extend", json=extend)
    refused(late, 409, ErrorCode.TOO_LATE)


@pytest.mark.parametrize(
    ("header", "chunk", "chunks"),
    [
        pytest.param(f"Content-Length: {MAX_BODY_BYTES + 1}", b"{", 1, id="announced"),
        pytest.param(
            "Transfer-Encoding: chunked",
            b"10000\r\n" + b" " * 0x10000 + b"\r\n",
            MAX_BODY_BYTES // 0x10000 + 1,
            id="not announced",
        ),
    ],
)
async def test_a_body_over_the_limit_is_refused_before_all_of_it_has_come(
    api: Served, header: str, chunk: bytes, chunks: int
) -> None:
    with anyio.fail_after(10):
        async with await anyio.connect_unix(api.listener.path) as stream:
            await stream.send(f"POST /v1/builds HTTP/1.1\r\nHost: s\r\n{header}\r\n\r\n".encode())
            for _ in range(chunks):
                await stream.send(chunk)
            answered = b"".join([part async for part in stream])
    head, _, body = answered.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert ErrorAnswer.model_validate_json(body).error.code is ErrorCode.INVALID_ARGUMENT


async def test_the_schema_names_every_model_that_goes_over_the_api(api: Served) -> None:
    schema = (await api.http.get("/openapi.json")).json()
    assert schema["openapi"].startswith("3.")
    models = (
        "Snapshot Phase Progress Activity LimitUse Verdict Result BuildList BuildSummary BuildLog "
        "LogEntry Session SessionBody StartBody StartRequest BuildOptions FrontEnd CancelBody "
        "ExtendBody StopBody Hello Health ErrorAnswer ErrorInfo ErrorCode State Reason Detail Severity"
    )
    assert set(models.split()) <= set(schema["components"]["schemas"])
    routes = {(m.upper(), path) for path, item in schema["paths"].items() for m in item}
    assert routes == {
        ("POST", "/v1/builds"),
        ("GET", "/v1/builds"),
        ("GET", "/v1/builds/{build_id}"),
        ("GET", "/v1/builds/{build_id}/events"),
        ("POST", "/v1/builds/{build_id}/cancel"),
        ("POST", "/v1/builds/{build_id}/extend"),
        ("GET", "/v1/builds/{build_id}/log"),
        ("GET", "/v1/builds/{build_id}/manifest"),
        ("GET", "/v1/builds/{build_id}/recording"),
        ("GET", "/v1/policies"),
        ("POST", "/v1/sessions"),
        ("GET", "/v1/sessions/{session_id}"),
        ("GET", "/v1/hello"),
        ("GET", "/v1/attach"),
        ("POST", "/v1/stop"),
        ("POST", "/v1/models/inspect"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
    }


async def test_the_api_without_a_socket_of_its_own_takes_nobodys_word_for_what_is_allowed(
    api: Served, root: Path
) -> None:
    transport = httpx2.ASGITransport(app=make_app(always(api.local)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://s") as http:
        body = start_body(api, recording(root, "quick", speed=FAST))
        refused(await http.post("/v1/builds", json=body), 422, ErrorCode.INVALID_ARGUMENT)
        for path in ("/v1/hello", "/v1/attach"):
            assert (await http.get(path)).status_code == 404
        assert (await http.post("/v1/stop")).status_code == 404
        assert not (await api.local.list_builds()).builds
        del body["front_end"]
        response = await http.post("/v1/builds", json=body)
        assert response.status_code == 201, response.text
        await ended(api, response.json()["build_id"])


class Understanding(Supervisor):
    """Notes what the front end of a start allows."""

    allowed: FrontEnd | None = None

    async def start(
        self,
        request: StartRequest,
        *,
        wait_s: float = 0.0,
        principal: str = "local",
        default_policy: str | None = None,
        front_end: FrontEnd | None = None,
    ) -> Snapshot:
        self.allowed = front_end
        return await super().start(
            request, wait_s=wait_s, principal=principal, default_policy=default_policy
        )


async def test_what_the_front_end_allows_goes_with_its_start(root: Path, tmp_path: Path) -> None:
    config = SupervisorConfig(tmp_path / "state", (root,), enable_replay=True)
    allowed = FrontEnd(roots=[str(root), "/more"], policy="/p/ci.toml", enable_replay=True)
    async with Understanding(config) as service:
        app = make_app(always(service), control=Control(service))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://s") as http:
            body = StartBody(request=recording(root, "quick", speed=FAST), front_end=allowed)
            response = await http.post("/v1/builds", json=body.model_dump(mode="json"))
        assert response.status_code == 201, response.text
        assert service.allowed == allowed


async def test_a_server_that_ends_is_well_but_not_ready(api: Served, root: Path) -> None:
    assert (await api.http.get("/healthz")).json() == {"status": "ok"}
    assert (await api.http.get("/readyz")).json() == {"status": "ok"}
    api.control.stopping.set()
    assert (await api.http.get("/healthz")).status_code == 200
    refused(await api.http.get("/readyz"), 503, ErrorCode.SHUTTING_DOWN)
    start = await api.http.post("/v1/builds", json=start_body(api, recording(root)))
    refused(start, 503, ErrorCode.SHUTTING_DOWN)


class Events:
    """A stream of events, read to its end."""

    def __init__(self, text: str) -> None:
        parts = [part for part in text.split("\n\n") if part]
        self.comments = [part for part in parts if part.startswith(":")]
        fields = [
            dict(line.split(": ", 1) for line in part.split("\n"))
            for part in parts
            if not part.startswith(":")
        ]
        assert {f["event"] for f in fields} <= {"snapshot"}
        self.snapshots = [Snapshot.model_validate_json(f["data"]) for f in fields]
        assert [f["id"] for f in fields] == [str(s.seq) for s in self.snapshots]


async def events(api: Served, build_id: str, query: str = "", **headers: str) -> Events:
    with anyio.fail_after(60):
        response = await api.http.get(
            f"/v1/builds/{build_id}/events{query}", headers=headers, timeout=60
        )
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return Events(response.text)


async def test_events_begin_at_once_and_end_with_the_terminal_snapshot(
    api: Served, root: Path
) -> None:
    build = await started(api, recording(root, speed=10))
    seen = (await events(api, build.build_id)).snapshots
    assert seen[0].state in {State.QUEUED, State.STARTING}
    assert [s.ended for s in seen] == [False] * (len(seen) - 1) + [True]
    assert seen[-1].state is State.SUCCEEDED
    assert [s.seq for s in seen] == sorted({s.seq for s in seen})
    assert any("Determining refit engines" in (s.current or "") for s in seen)
    assert all(s.phases is None for s in seen)


async def test_events_show_as_much_as_is_asked_for(api: Served, root: Path) -> None:
    build = await started(api, recording(root, "quick", speed=FAST))
    seen = (await events(api, build.build_id, "?detail=tree")).snapshots
    assert seen[-1].phases


async def test_events_go_on_after_the_last_one_seen(api: Served, root: Path) -> None:
    build = await started(api, recording(root, speed=10))
    all_of_it = (await events(api, build.build_id)).snapshots
    last = all_of_it[-1].seq
    middle = all_of_it[1].seq
    rest = (await events(api, build.build_id, **{"Last-Event-ID": str(middle)})).snapshots
    assert [s.seq for s in rest] == [last]
    path = f"/v1/builds/{build.build_id}/events"
    # An event source that is told so does not come again.
    over = await api.http.get(path, headers={"Last-Event-ID": str(last)})
    assert over.status_code == 204
    # A seq that there never was is another build's, or another life's.
    ahead = (await events(api, build.build_id, **{"Last-Event-ID": str(last + 1)})).snapshots
    assert [s.seq for s in ahead] == [last]
    wrong = await api.http.get(path, headers={"Last-Event-ID": "latest"})
    refused(wrong, 422, ErrorCode.INVALID_ARGUMENT)


async def test_a_reader_that_has_seen_all_is_told_nothing_until_something_changes(
    api: Served, root: Path
) -> None:
    build = await started(api, recording(root, actions=[{"at": 0.05, "do": "hang_idle"}]))
    with anyio.fail_after(20):
        now = await api.local.progress(build.build_id)
        while "Parsing" not in (now.current or "") and "Importing" not in (now.current or ""):
            now = await api.local.progress(build.build_id, wait_s=5, since_seq=now.seq)
    async with api.http.stream(
        "GET",
        f"/v1/builds/{build.build_id}/events",
        headers={"Last-Event-ID": str(now.seq)},
        timeout=20,
    ) as response:
        await api.local.cancel(build.build_id, at_once=True)
        text = "".join([part async for part in response.aiter_text()])
    seen = Events(text).snapshots
    assert all(s.seq > now.seq for s in seen)
    assert seen[-1].state is State.CANCELLED


async def test_a_quiet_stream_is_kept_alive_by_comments(
    api: Served, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.2)
    hang = [{"at": 0.1, "do": "hang_idle", "for_s": 2}]
    build = await started(api, recording(root, "quick", actions=hang))
    seen = await events(api, build.build_id)
    assert len(seen.comments) >= 4
    assert seen.snapshots[-1].state is State.SUCCEEDED


async def test_a_reader_that_leaves_takes_its_stream_along_and_the_build_goes_on(
    api: Served, root: Path
) -> None:
    hang = [{"at": 1.2, "do": "hang_idle"}]
    build = await started(api, recording(root, speed=5, actions=hang))
    before = await attended(api, build.build_id, 0)
    async with api.http.stream("GET", f"/v1/builds/{build.build_id}/events") as response:
        async for _ in response.aiter_text():
            break
        await attended(api, build.build_id, before + 1)
    await attended(api, build.build_id, before)
    assert not (await api.local.progress(build.build_id)).ended


async def test_a_caller_that_leaves_a_wait_attends_no_longer(api: Served, root: Path) -> None:
    hang = [{"at": 1.2, "do": "hang_idle"}]
    build = await started(api, recording(root, speed=5, actions=hang))
    path = f"/v1/builds/{build.build_id}?wait_s=45&since_seq={10**9}"
    async with await anyio.connect_unix(api.listener.path) as caller:
        await caller.send(f"GET {path} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
        await attended(api, build.build_id, 1)
    await attended(api, build.build_id, 0)


async def attended(api: Served, build_id: str, readers: int) -> int:
    """Return once so many wait for a change of the build."""
    build = api.local._builds.get(build_id)
    assert build is not None
    with anyio.fail_after(10):
        while build._readers != readers:
            await anyio.sleep(0.01)
    return readers


async def test_numbers_that_json_lacks_are_refused(api: Served, root: Path) -> None:
    body = start_body(api, recording(root))
    text = json.dumps(body).replace('"backend": "replay"', '"backend": "replay", "limits": LIMIT')
    content = text.replace("LIMIT", '{"build_time": NaN}')
    response = await api.http.post(
        "/v1/builds", content=content, headers={"Content-Type": "application/json"}
    )
    refused(response, 422, ErrorCode.INVALID_ARGUMENT)
