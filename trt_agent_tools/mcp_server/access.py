"""Whose builds a request is about."""

from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext

from trt_agent_tools.model.service import BuildService

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
