"""What a supervisor's own socket serves beside builds: its front ends and its end."""

from collections.abc import AsyncGenerator
from http import HTTPStatus

from fastapi import APIRouter, Response

from trt_agent_tools.api.answers import answer
from trt_agent_tools.api.control import Control
from trt_agent_tools.api.event_stream import STREAMED, EventStream
from trt_agent_tools.api.messages import ErrorAnswer, Hello, StopBody
from trt_agent_tools.api.strict import StrictRoute


def host_routes(control: Control) -> APIRouter:
    """Return the routes by which front ends find, hold and end a host process."""
    router = APIRouter(route_class=StrictRoute, responses={"default": {"model": ErrorAnswer}})

    @router.get("/v1/hello", response_model=Hello)
    async def hello() -> Response:
        """Say who this is."""
        return answer(control.hello())

    @router.get("/v1/attach", response_class=Response, responses=STREAMED)
    async def attach() -> Response:
        """Count the caller as a front end for as long as it keeps this answer open."""
        control.check_open()
        return EventStream(_until_the_end(control), control.front_end())

    @router.post("/v1/stop", response_model=Hello, status_code=HTTPStatus.ACCEPTED)
    async def stop(body: StopBody | None = None) -> Response:
        """Begin to end; the answer comes once that has begun."""
        return answer(control.stop(body or StopBody()), HTTPStatus.ACCEPTED)

    return router


async def _until_the_end(control: Control) -> AsyncGenerator[bytes, None]:
    yield b": attached\n\n"
    await control.stopping.wait()
