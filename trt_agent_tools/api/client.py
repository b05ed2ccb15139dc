"""`RemoteService`: the `BuildService` of a supervisor in another process."""

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType

import anyio
import httpx2
from pydantic import BaseModel
from typing_extensions import Self

from trt_agent_tools.api.connection import (
    ANSWER_S,
    Connection,
    GoneError,
    Query,
    SilentError,
    UnreachableError,
    gone,
)
from trt_agent_tools.api.event_format import ERROR, KEEP_ALIVE_S, read_events
from trt_agent_tools.api.messages import (
    DEFAULT_SESSION,
    CancelBody,
    ErrorAnswer,
    ExtendBody,
    InspectBody,
    SessionBody,
    StartBody,
)
from trt_agent_tools.model.documents import PolicyList, Recording
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import MAX_WAIT_S, FrontEnd, StartRequest
from trt_agent_tools.model.service import INSPECT_S
from trt_agent_tools.model.session import Session, SessionRequest
from trt_agent_tools.model.snapshot import BuildList, BuildLog, Detail, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class RemoteService:
    """Use as ``async with RemoteService(socket, front_end) as service``.

    It counts as an attached front end until the block is left. When the supervisor is gone every call
    is refused with `SUPERVISOR_GONE`; with `find`, which returns the socket of another supervisor, only
    those that it may have heard are, and the next go to the one that was found.
    """

    def __init__(
        self,
        socket: Path,
        front_end: FrontEnd,
        *,
        find: Callable[[], Awaitable[Path]] | None = None,
    ) -> None:
        self._socket = socket
        self._front_end = front_end
        self._find = find
        self._stack = AsyncExitStack()
        self._connection: Connection | None = None
        self._turn = anyio.Lock()

    async def __aenter__(self) -> Self:
        """Attach.

        Raises:
            Refusal: nobody answers, or the supervisor is ending.
        """
        try:
            await self._attach()
        except Refusal:
            if self._find is None:
                raise
            # It ended between being found and being attached to.
            await self._attach_to_another()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave; builds go on."""
        await self._leave()

    async def start(self, request: StartRequest, *, wait_s: float = 0.0) -> Snapshot:
        """See `BuildService.start`."""
        body = StartBody(request=request, front_end=self._front_end)
        return await self._snapshot(
            "POST", "/v1/builds", query={"wait_s": wait_s}, body=body, wait_s=wait_s
        )

    async def progress(
        self,
        build_id: str,
        *,
        wait_s: float = 0.0,
        since_seq: int | None = None,
        detail: Detail = Detail.SUMMARY,
    ) -> Snapshot:
        """See `BuildService.progress`."""
        query: Query = {
            "wait_s": wait_s or None,
            "since_seq": since_seq,
            "detail": detail.value,
        }
        return await self._snapshot("GET", _build(build_id), query=query, wait_s=wait_s)

    async def events(
        self, build_id: str, *, detail: Detail = Detail.SUMMARY
    ) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot at once and one for each change, the terminal one as the last.

        Raises:
            Refusal: there is no such build, or the supervisor is gone.
        """
        connection = await self._attached()
        path = f"{_build(build_id)}/events"
        try:
            async with (
                connection.open(
                    "GET", path, query={"detail": detail.value}, silent_s=KEEP_ALIVE_S + ANSWER_S
                ) as response,
                aclosing(_chunks(response)) as chunks,
                aclosing(read_events(chunks)) as stream,
            ):
                async for name, data in stream:
                    if name == ERROR:
                        error = ErrorAnswer.model_validate_json(data).error
                        raise Refusal(error.code, error.message, error.hint, error.details)
                    snapshot = Snapshot.model_validate_json(data)
                    yield snapshot
                    if snapshot.ended:
                        return
        except GoneError as error:
            raise await self._gone(connection, error) from error
        raise await self._gone(connection, GoneError("the events broke off"))

    async def cancel(
        self,
        build_id: str,
        *,
        reason: str | None = None,
        wait_s: float = 0.0,
        at_once: bool = False,
    ) -> Snapshot:
        """See `BuildService.cancel`."""
        return await self._snapshot(
            "POST",
            f"{_build(build_id)}/cancel",
            query={"wait_s": wait_s},
            body=CancelBody(reason=reason, at_once=at_once),
            wait_s=wait_s,
        )

    async def extend(self, build_id: str, *, limit: str, by: float | str, reason: str) -> Snapshot:
        """See `BuildService.extend`."""
        body = ExtendBody(limit=limit, by=by, reason=reason)
        return await self._snapshot("POST", f"{_build(build_id)}/extend", body=body)

    async def list_builds(
        self, *, session_id: str | None = None, state: State | None = None, limit: int = 20
    ) -> BuildList:
        """See `BuildService.list_builds`."""
        query: Query = {
            "session_id": session_id,
            "state": state and state.value,
            "limit": limit,
        }
        return BuildList.model_validate_json(await self._call("GET", "/v1/builds", query=query))

    async def open_session(self, request: SessionRequest) -> Session:
        """See `BuildService.open_session`."""
        body = SessionBody(**request.model_dump(), front_end=self._front_end)
        return Session.model_validate_json(await self._call("POST", "/v1/sessions", body=body))

    async def session(self, session_id: str | None = None) -> Session:
        """See `BuildService.session`."""
        if session_id is not None and not _ID.fullmatch(session_id):
            raise Refusal(
                ErrorCode.UNKNOWN_SESSION,
                f"there is no session {one_line(session_id, 60)!r}",
                "open_session makes one; without session_id the default session is used.",
            )
        path = f"/v1/sessions/{session_id or DEFAULT_SESSION}"
        return Session.model_validate_json(await self._call("GET", path))

    async def log(
        self, build_id: str, *, tail: int = 50, min_severity: Severity | None = None
    ) -> BuildLog:
        """See `BuildService.log`."""
        query: Query = {"tail": tail, "min_severity": min_severity and min_severity.value}
        path = f"{_build(build_id)}/log"
        return BuildLog.model_validate_json(await self._call("GET", path, query=query))

    async def manifest(self, build_id: str) -> Manifest:
        """See `BuildService.manifest`."""
        path = f"{_build(build_id)}/manifest"
        return Manifest.model_validate_json(await self._call("GET", path))

    async def recording(self, build_id: str, *, tail: int = 200) -> Recording:
        """See `BuildService.recording`."""
        path = f"{_build(build_id)}/recording"
        return Recording.model_validate_json(await self._call("GET", path, query={"tail": tail}))

    async def inspect(self, request: InspectRequest) -> Inspection:
        """See `BuildService.inspect`."""
        body = InspectBody(request=request, front_end=self._front_end)
        answered = await self._call("POST", "/v1/models/inspect", body=body, wait_s=INSPECT_S)
        return Inspection.model_validate_json(answered)

    async def policies(self) -> PolicyList:
        """See `BuildService.policies`. The default is this front end's own, if it has one."""
        listed = PolicyList.model_validate_json(await self._call("GET", "/v1/policies"))
        own = self._front_end.policy
        if own is None:
            return listed
        return PolicyList(
            policies=[
                policy.model_copy(update={"is_default": policy.name == own})
                for policy in listed.policies
            ]
        )

    async def _snapshot(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: BaseModel | None = None,
        wait_s: float = 0.0,
    ) -> Snapshot:
        answered = await self._call(method, path, query=query, body=body, wait_s=wait_s)
        return Snapshot.model_validate_json(answered)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: BaseModel | None = None,
        wait_s: float = 0.0,
    ) -> bytes:
        connection = await self._attached()
        # A wait that the supervisor refuses, it refuses at once.
        patience = min(wait_s, MAX_WAIT_S) if math.isfinite(wait_s) else 0.0
        try:
            return await connection.call(method, path, query=query, body=body, wait_s=patience)
        except UnreachableError as error:
            refusal = await self._gone(connection, error)
            if self._find is None:
                raise refusal from error
        except GoneError as error:
            raise await self._gone(connection, error) from error
        # Nobody has heard of the call yet: it may go to another supervisor.
        connection = await self._attached()
        try:
            return await connection.call(method, path, query=query, body=body, wait_s=patience)
        except GoneError as error:
            raise await self._gone(connection, error) from error

    async def _attach(self) -> None:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(Connection(self._socket))
            try:
                with anyio.fail_after(ANSWER_S):
                    await stack.enter_async_context(connection.open("GET", "/v1/attach"))
            except GoneError as error:
                raise self._refusal(error) from error
            except TimeoutError as error:
                raise self._refusal(SilentError(f"no answer within {ANSWER_S:.0f} s")) from error
            self._connection = connection
            self._stack = stack.pop_all()

    async def _attach_to_another(self) -> None:
        if self._find is not None:
            self._socket = await self._find()
        await self._attach()

    async def _attached(self) -> Connection:
        """Return the connection, a new one if the supervisor of before is gone."""
        if self._connection is None:
            async with self._turn:
                if self._connection is None:
                    await self._attach_to_another()
        if self._connection is None:
            raise self._refusal(GoneError("it is not attached"))
        return self._connection

    async def _gone(self, connection: Connection, error: GoneError) -> Refusal:
        """Note that nobody answers on `connection`; one that is only slow may answer the next call."""
        if self._connection is connection and not isinstance(error, SilentError):
            await self._leave()
        return self._refusal(error)

    async def _leave(self) -> None:
        self._connection = None
        await self._stack.pop_all().aclose()

    def _refusal(self, error: GoneError) -> Refusal:
        return Refusal(
            ErrorCode.SUPERVISOR_GONE,
            f"the supervisor does not answer: {one_line(str(error), 200)}",
            "Call again: the next call finds or starts another, and list_builds shows what it knows. "
            "Builds that ran have ended with their supervisor; a start with an idempotency_key may be "
            "repeated."
            if self._find
            else "Start it again; its log is supervisor.log in the state folder.",
            {"socket": str(self._socket)},
        )


def _build(build_id: str) -> str:
    """Return the path of a build.

    Raises:
        Refusal: no build can have this id.
    """
    if not _ID.fullmatch(build_id):
        raise Refusal(
            ErrorCode.UNKNOWN_BUILD,
            f"there is no build {one_line(build_id, 60)!r}",
            "list_builds shows the builds that this server knows.",
        )
    return f"/v1/builds/{build_id}"


async def _chunks(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx2.TransportError as error:
        raise gone(error) from error
