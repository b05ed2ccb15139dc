"""Builds as tasks, for clients that declare the extension `io.modelcontextprotocol/tasks`.

A task is a build under its own id: there is no second store. `start_build` with `wait_s` answers such a
client with a task at once, and it follows the build by `tasks/get` instead of waiting in the call.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.server import require_client_extension
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    InputResponses,
    RequestParams,
    Result,
)
from pydantic import BaseModel, Field

from trt_agent_tools.mcp_server.access import RequestContext, ServiceOf
from trt_agent_tools.mcp_server.answers import answer
from trt_agent_tools.mcp_server.protocol_errors import refusals_told
from trt_agent_tools.mcp_server.questions import Question, open_questions
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import State

IDENTIFIER = "io.modelcontextprotocol/tasks"

HELD = "start_build"
"""The tool whose call can be held as a task."""

_VERSIONS = frozenset({"2026-07-28"})
_MAX_REMEMBERED = 10_000

TaskStatus = Literal["working", "input_required", "completed", "cancelled"]
"""A build that failed is a completed task: its tool call has an answer, which says so."""


class TaskParams(RequestParams):
    """Which task."""

    task_id: str = Field(min_length=1, max_length=64)


class UpdateParams(TaskParams):
    """Answers to what a task asked, by the keys of its questions."""

    input_responses: InputResponses


def declares_tasks(context: RequestContext) -> bool:
    """Whether this request's client takes tasks."""
    capabilities = context.session.client_capabilities
    return bool(capabilities and IDENTIFIER in (capabilities.extensions or {}))


class Task(Result):
    """A build as a task. Times are UTC; a build is kept as long as its journal keeps it."""

    task_id: str
    status: TaskStatus
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None


class Tasks(Extension):
    """The extension's methods over the builds that a request's caller has."""

    identifier = IDENTIFIER

    def __init__(self, service_of: ServiceOf) -> None:
        self._service_of = service_of
        # Questions whose answer changed nothing. Lost with this process, they are asked again.
        self._settled: OrderedDict[tuple[str, str], None] = OrderedDict()

    def methods(self) -> Sequence[MethodBinding]:
        """Return what the extension adds to the protocol."""
        return [
            MethodBinding("tasks/get", TaskParams, self._get, _VERSIONS),
            MethodBinding("tasks/update", UpdateParams, self._update, _VERSIONS),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, _VERSIONS),
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: RequestContext, call_next: CallNext
    ) -> HandlerResult:
        """Answer a start that would be waited for with a task, once the build is accepted."""
        result = await call_next(ctx)
        if not (
            params.name == HELD
            and (params.arguments or {}).get("wait_s")
            and declares_tasks(ctx)
            and isinstance(result, CallToolResult)
            and not result.is_error
        ):
            return result
        started = Snapshot.model_validate(result.structured_content)
        return {**_dump(self._task(started, ctx)), "resultType": "task"}

    async def _get(self, ctx: RequestContext, params: TaskParams) -> HandlerResult:
        snapshot = await self._asked(
            ctx, lambda of: of.progress(params.task_id, detail=Detail.TREE)
        )
        task = _dump(self._task(snapshot, ctx))
        if task["status"] == "input_required":
            task["inputRequests"] = {
                question.key: _dump(question.request()) for question in self._open(snapshot, ctx)
            }
        elif task["status"] == "completed":
            task["result"] = _dump(answer(snapshot))
        return task

    async def _update(self, ctx: RequestContext, params: UpdateParams) -> HandlerResult:
        async def take(service: BuildService) -> Snapshot:
            snapshot = await service.progress(params.task_id)
            for question in self._open(snapshot, ctx):
                answered = params.input_responses.get(question.key)
                if not isinstance(answered, ElicitResult):
                    continue
                # Settled before anything is awaited, so that the same answer twice extends once.
                self._settle(question)
                try:
                    await question.take(answered, service)
                except Refusal:
                    # Nothing was extended: it is asked again.
                    self._open_again(question)
                    raise
            return snapshot

        await self._asked(ctx, take)
        return {}

    async def _cancel(self, ctx: RequestContext, params: TaskParams) -> HandlerResult:
        await self._asked(ctx, lambda of: of.cancel(params.task_id, reason="tasks/cancel"))
        return {}

    async def _asked(
        self, ctx: RequestContext, call: Callable[[BuildService], Awaitable[Snapshot]]
    ) -> Snapshot:
        require_client_extension(ctx, IDENTIFIER)
        with refusals_told():
            return await call(self._service_of(ctx))

    def _task(self, snapshot: Snapshot, ctx: RequestContext) -> Task:
        created = snapshot.created_at or ""
        return Task(
            task_id=snapshot.build_id,
            status=self._status(snapshot, ctx),
            status_message=snapshot.summary,
            created_at=created,
            last_updated_at=_after(created, snapshot.elapsed_s),
            poll_interval_ms=snapshot.poll_after_ms,
        )

    def _status(self, snapshot: Snapshot, ctx: RequestContext) -> TaskStatus:
        if snapshot.state is State.CANCELLED:
            return "cancelled"
        if snapshot.ended:
            return "completed"
        return "input_required" if self._open(snapshot, ctx) else "working"

    def _open(self, snapshot: Snapshot, ctx: RequestContext) -> list[Question]:
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            return []
        return [
            question
            for question in open_questions(snapshot)
            if (question.build_id, question.key) not in self._settled
        ]

    def _open_again(self, question: Question) -> None:
        self._settled.pop((question.build_id, question.key), None)

    def _settle(self, question: Question) -> None:
        self._settled[question.build_id, question.key] = None
        if len(self._settled) > _MAX_REMEMBERED:
            self._settled.popitem(last=False)


def _dump(model: BaseModel) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(model, Task):
        # That it is unlimited is said, not left out.
        dumped["ttlMs"] = model.ttl_ms
    return dumped


def _after(created_at: str, elapsed_s: float) -> str:
    """Return when a build was last different: it changes with time until its end."""
    then = datetime.fromisoformat(created_at) + timedelta(seconds=elapsed_s)
    return then.isoformat(timespec="milliseconds")
