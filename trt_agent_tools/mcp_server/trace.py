"""The trace that a tool call is part of: clients send it beside the arguments, in `_meta`."""

from trt_agent_tools.mcp_server.access import RequestContext
from trt_agent_tools.model.trace import traceparent_or_none


def traceparent_of(request_context: RequestContext) -> str | None:
    """Return `_meta.traceparent` of the request, None if there is none or it is malformed."""
    meta = request_context.meta
    return None if meta is None else traceparent_or_none(meta.get("traceparent"))
