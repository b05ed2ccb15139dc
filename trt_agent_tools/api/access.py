"""Whose builds a request is about."""

from collections.abc import Callable

from starlette.requests import Request

from trt_agent_tools.model.service import BuildService

ServiceOf = Callable[[Request], BuildService]
"""Returns the service as the request's caller sees it. Called anew for every request."""


def always(service: BuildService) -> ServiceOf:
    """Return what gives `service` to every request: the one user of a Unix socket."""
    return lambda _: service
