"""Completions: ids of the caller's builds and sessions, and names of policies, while they are typed."""

from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    CompleteRequestParams,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from trt_agent_tools.api.messages import DEFAULT_SESSION
from trt_agent_tools.mcp_server.access import RequestContext, ServiceOf
from trt_agent_tools.mcp_server.protocol_errors import refusals_told
from trt_agent_tools.mcp_server.resources import POLICY
from trt_agent_tools.model.service import BuildService

MAX_VALUES = 100
"""The protocol takes no more in one answer."""


def add_completions(server: MCPServer[None], service_of: ServiceOf) -> None:
    """Let `server` complete ids and names for whoever asks."""

    # The SDK's decorator has no types.
    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
    async def nothing_of_its_own(
        _ref: PromptReference | ResourceTemplateReference,
        _argument: CompletionArgument,
        _context: CompletionContext | None,
    ) -> Completion:
        # The SDK does not say here who asks: the answer is filled in where it does.
        return Completion(values=[], total=0, has_more=False)

    async def with_those_of_the_caller(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method != "completion/complete" or not isinstance(result, dict):
            return result
        # It was taken as valid on the way here.
        asked = CompleteRequestParams.model_validate(ctx.params, by_name=False)
        with refusals_told():
            values = await _values(service_of(ctx), asked)
        found = Completion(
            values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES
        )
        return {**result, "completion": found.model_dump(mode="json", by_alias=True)}

    server.middleware.append(with_those_of_the_caller)


async def _values(service: BuildService, asked: CompleteRequestParams) -> list[str]:
    """Return what begins with what was typed, the newest first where that means something."""
    name = asked.argument.name
    known: list[str] = []
    if name == "build_id":
        known = [build.build_id for build in (await service.list_builds(limit=500)).builds]
    elif name == "session_id":
        known = [DEFAULT_SESSION, (await service.session()).session_id]
    elif isinstance(asked.ref, ResourceTemplateReference) and asked.ref.uri == POLICY:
        known = [policy.name for policy in (await service.policies()).policies]
    return [value for value in known if value.startswith(asked.argument.value)]
