"""The HTTP API over models that nobody builds yet."""

from collections.abc import Awaitable
from typing import cast

from fastapi import APIRouter, Request, Response

from trt_agent_tools.api.access import ServiceOf
from trt_agent_tools.api.control import Control
from trt_agent_tools.api.front_ends import FrontEndService, judge_front_end
from trt_agent_tools.api.messages import ErrorAnswer, InspectBody
from trt_agent_tools.api.strict import StrictRoute
from trt_agent_tools.api.waiting import waited
from trt_agent_tools.model.inspection import Inspection
from trt_agent_tools.model.service import INSPECT_S, BuildService


def model_routes(service_of: ServiceOf, control: Control | None) -> APIRouter:
    """Return the routes; `service_of` and `control` are as for `make_app`."""
    router = APIRouter(route_class=StrictRoute, responses={"default": {"model": ErrorAnswer}})

    @router.post("/v1/models/inspect", response_model=Inspection)
    async def inspect_model(request: Request, body: InspectBody) -> Response:
        """Look at a model without building it: inputs, operators, files, missing profiles."""
        judge_front_end(body.front_end, control)
        service = service_of(request)
        return await waited(request, INSPECT_S, lambda: _inspect(service, body))

    return router


def _inspect(service: BuildService, body: InspectBody) -> Awaitable[Inspection]:
    if body.front_end is None:
        return service.inspect(body.request)
    return cast("FrontEndService", service).inspect(body.request, front_end=body.front_end)
