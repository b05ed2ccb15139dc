"""The tools over builds. Docstrings and parameter descriptions are what an agent reads."""

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from trt_agent_tools.mcp_server.access import ServiceOf
from trt_agent_tools.mcp_server.answers import (
    ADDS,
    READS,
    BuildId,
    answer,
    check_name,
    invalid,
)
from trt_agent_tools.mcp_server.asking import repeated, take_answers
from trt_agent_tools.mcp_server.strict import StrictTool, strict_tool
from trt_agent_tools.mcp_server.tasks import declares_tasks
from trt_agent_tools.mcp_server.trace import traceparent_of
from trt_agent_tools.mcp_server.waiting import waited, watched
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import (
    MAX_WAIT_S,
    Backend,
    LimitName,
    LimitValue,
    StartRequest,
)
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.progress.render import at_detail

WaitS = Annotated[
    float,
    Field(
        ge=0,
        le=MAX_WAIT_S,
        description="Seconds to wait for a phase change, a warning or the end; 0 answers at once.",
    ),
]


def build_tools(service_of: ServiceOf) -> list[StrictTool]:
    """Return the tools over the builds that a request's caller has."""

    async def start_build(
        context: Context[Any, Any],
        model: Annotated[str, Field(min_length=1, max_length=4096, description="ONNX file.")],
        output: Annotated[
            str | None,
            Field(max_length=4096, description="Engine file; default: model's name, .engine."),
        ] = None,
        backend: Annotated[
            Literal["auto", "tensorrt", "tensorrt_rtx", "replay"],
            Field(description="auto: tensorrt if it and a GPU are there, else tensorrt_rtx."),
        ] = "auto",
        options: Annotated[
            BuildOptions | None,
            Field(description="Build options by TensorRT's own names."),
        ] = None,
        policy: Annotated[
            str | None, Field(max_length=100, description="Name of a policy of this server.")
        ] = None,
        limits: Annotated[
            dict[LimitName, LimitValue] | None,
            Field(
                max_length=32,
                description='Tighter limits than the policy\'s, such as {"build_time": "15m"}.',
            ),
        ] = None,
        session_id: Annotated[
            str | None, Field(max_length=100, description="From open_session; default: your own.")
        ] = None,
        label: Annotated[
            str | None, Field(max_length=120, description="A name for people to see.")
        ] = None,
        idempotency_key: Annotated[
            str | None,
            Field(max_length=200, description="Same key, same build: safe to repeat."),
        ] = None,
        wait_s: WaitS = 0.0,
    ) -> Annotated[CallToolResult, Snapshot] | InputRequiredResult:
        """Start a TensorRT engine build in the background.

        Returns a build_id at once; the build runs on when this call or the chat ends. Then call
        get_progress.
        """
        service = service_of(context.request_context)
        if again := repeated(context):
            await take_answers(context, service, again.build_id)
            return answer(await service.progress(again.build_id, detail=Detail.TREE))
        check_name(policy)
        try:
            request = StartRequest(
                model=model,
                output=output,
                backend=Backend(backend),
                options=options or BuildOptions(),
                policy=policy,
                limits=limits or {},
                session_id=session_id,
                label=label,
                idempotency_key=idempotency_key,
                traceparent=traceparent_of(context.request_context),
            )
        except ValidationError as error:
            raise invalid(error) from error
        started = await service.start(request)
        if not wait_s or declares_tasks(context.request_context):
            return answer(started)
        return await watched(
            context,
            service,
            started.build_id,
            wait_s=wait_s,
            since_seq=started.seq,
            detail=Detail.TREE,
        )

    async def get_progress(
        context: Context[Any, Any],
        build_id: BuildId,
        wait_s: WaitS = 0.0,
        since_seq: Annotated[
            int | None,
            Field(ge=0, description="seq you have seen; changes after it end the wait at once."),
        ] = None,
        detail: Annotated[
            Literal["summary", "tree", "full"],
            Field(description="tree: all phases. full: options, versions, warnings too."),
        ] = "summary",
    ) -> Annotated[CallToolResult, Snapshot] | InputRequiredResult:
        """See how a build stands.

        A long quiet time with a busy CPU is normal: TensorRT reports nothing inside a step. Wait
        with wait_s, or look again after poll_after_ms.
        """
        service = service_of(context.request_context)
        if again := repeated(context):
            await take_answers(context, service, again.build_id)
        elif wait_s:
            return await watched(
                context,
                service,
                build_id,
                wait_s=wait_s,
                since_seq=since_seq,
                detail=Detail(detail),
            )
        return answer(await service.progress(build_id, detail=Detail(detail)))

    async def cancel_build(
        context: Context[Any, Any],
        build_id: BuildId,
        reason: Annotated[
            str | None, Field(max_length=500, description="Kept with the build.")
        ] = None,
        wait_s: Annotated[
            float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the end.")
        ] = 0.0,
    ) -> Annotated[CallToolResult, Snapshot]:
        """End a build, whatever it is doing, within the policy's grace periods.

        `cancelled` is said only when its processes are gone; a build that has ended stays as it is.
        """
        service = service_of(context.request_context)
        await service.cancel(build_id, reason=reason)
        return answer(
            await waited(context, wait_s, lambda seconds: service.cancel(build_id, wait_s=seconds))
        )

    async def extend_build(
        context: Context[Any, Any],
        build_id: BuildId,
        limit: Annotated[
            str, Field(min_length=1, max_length=40, description="Such as build_time.")
        ],
        by: Annotated[float | str, Field(description='Seconds, or "15m".')],
        reason: Annotated[
            str, Field(min_length=1, max_length=500, description="Kept with the build.")
        ],
    ) -> Annotated[CallToolResult, Snapshot]:
        """Raise a limit of a running build, up to its policy's ceiling."""
        extended = await service_of(context.request_context).extend(
            build_id, limit=limit, by=by, reason=reason
        )
        raised = [use for use in extended.limits or () if use.rule.value == limit]
        # The phases are in get_progress; what was asked about is the limit.
        brief = at_detail(extended, Detail.SUMMARY).model_copy(update={"limits": raised})
        return answer(brief)

    return [
        strict_tool(start_build, title="Start a build", annotations=ADDS),
        strict_tool(
            get_progress, title="Progress of a build", annotations=READS, whole_output=True
        ),
        strict_tool(
            cancel_build,
            title="Cancel a build",
            annotations=ToolAnnotations(
                read_only_hint=False,
                destructive_hint=True,
                idempotent_hint=True,
                open_world_hint=False,
            ),
        ),
        strict_tool(extend_build, title="Extend a limit", annotations=ADDS),
    ]
