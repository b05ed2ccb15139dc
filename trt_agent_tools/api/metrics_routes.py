"""What Prometheus scrapes."""

from collections.abc import Callable
from http import HTTPStatus

from fastapi import APIRouter, Response

from trt_agent_tools.api.answers import refuse
from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.api.strict import StrictRoute
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format that every version of Prometheus reads."""


def metrics_routes(render: Callable[[], bytes] | None) -> APIRouter:
    """Return the route over `render`; without it the route says what is to be installed."""
    router = APIRouter(route_class=StrictRoute, responses={"default": {"model": ErrorAnswer}})

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            HTTPStatus.OK.value: {"content": {"text/plain": {"schema": {"type": "string"}}}}
        },
    )
    async def metrics() -> Response:
        """Return the supervisor's metrics, those of all callers' builds, for Prometheus."""
        if render is None:
            return refuse(
                ErrorInfo(
                    ErrorCode.INVALID_ARGUMENT,
                    "this supervisor keeps no metrics",
                    'Its operator installs the extra: pip install "trt-agent-tools[metrics]"',
                ),
                HTTPStatus.NOT_FOUND,
            )
        return Response(render(), media_type=CONTENT_TYPE)

    return router
