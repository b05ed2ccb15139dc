"""The tools over sessions. Docstrings and parameter descriptions are what an agent reads."""

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult
from pydantic import Field, ValidationError

from trt_agent_tools.mcp_server.access import ServiceOf
from trt_agent_tools.mcp_server.answers import ADDS, READS, check_name, invalid, result
from trt_agent_tools.mcp_server.strict import StrictTool, strict_tool
from trt_agent_tools.model.duration import parse_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.session import Session, SessionRequest


def session_tools(service_of: ServiceOf) -> list[StrictTool]:
    """Return the tools over the sessions that a request's caller has."""

    async def open_session(
        context: Context[Any, Any],
        gpu_time: Annotated[float | str, Field(description='Budget of GPU time, such as "30m".')],
        policy: Annotated[
            str | None, Field(max_length=100, description="Name of a policy of this server.")
        ] = None,
        label: Annotated[
            str | None, Field(max_length=120, description="A name for people to see.")
        ] = None,
        concurrent_builds: Annotated[
            int | None, Field(ge=1, le=1024, description="Builds that run at once.")
        ] = None,
    ) -> Annotated[CallToolResult, Session]:
        """Open a session with a budget of GPU time for several builds. Keep its session_id."""
        check_name(policy)
        try:
            request = SessionRequest(
                gpu_time=parse_duration(gpu_time),
                policy=policy,
                label=label,
                concurrent_builds=concurrent_builds,
            )
        except ValidationError as error:
            raise invalid(error) from error
        except ValueError as error:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT, f"gpu_time: {error}", 'Give a duration such as "30m".'
            ) from error
        session = await service_of(context.request_context).open_session(request)
        return result(session, session.summary)

    async def get_session(
        context: Context[Any, Any],
        session_id: Annotated[
            str | None, Field(max_length=100, description="Default: your own session.")
        ] = None,
    ) -> Annotated[CallToolResult, Session]:
        """See a session's GPU time, spent and left, and its builds."""
        session = await service_of(context.request_context).session(session_id)
        return result(session, session.summary)

    return [
        strict_tool(open_session, title="Open a session", annotations=ADDS),
        strict_tool(get_session, title="A session's budget", annotations=READS),
    ]
