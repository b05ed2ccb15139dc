"""Whose builds a request is about."""

from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from starlette.requests import Request

from trt_agent_tools.api.gate import caller_of
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.supervisor.principals import LOCAL_CALLER

RequestContext = ServerRequestContext[Any, Any]
"""What the SDK hands to a handler; nothing of ours is in its type parameters."""

ServiceOf = Callable[[RequestContext], BuildService]
"""Returns the service as the request's caller sees it. Called anew for every request.

Raises:
    Refusal: the caller is not known.
"""


def always(service: BuildService) -> ServiceOf:
    """Return what gives `service` to every request: the one user of a stdio server."""
    return lambda _: service


def principal_of(context: RequestContext) -> str:
    """Return who asks: the principal that the gate found over HTTP, else the one user of this process.

    Raises:
        RuntimeError: the request came past the gate.
    """
    request = context.request
    return (caller_of(request) if isinstance(request, Request) else LOCAL_CALLER).principal
