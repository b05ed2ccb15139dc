"""The HTTP API's longer texts: manifests, recorded events, policies."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from trt_agent_tools.api.access import ServiceOf
from trt_agent_tools.api.answers import answer
from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.api.strict import StrictRoute
from trt_agent_tools.model.documents import PolicyList, Recording
from trt_agent_tools.model.manifest import Manifest


def document_routes(service_of: ServiceOf) -> APIRouter:
    """Return the routes; `service_of` says whose builds a request is about."""
    router = APIRouter(route_class=StrictRoute, responses={"default": {"model": ErrorAnswer}})

    @router.get("/v1/builds/{build_id}/manifest", response_model=Manifest)
    async def get_manifest(request: Request, build_id: str) -> Response:
        """Read the manifest of a build's engine, as it was written beside it."""
        return answer(await service_of(request).manifest(build_id))

    @router.get("/v1/builds/{build_id}/recording", response_model=Recording)
    async def get_recording(
        request: Request,
        build_id: str,
        tail: Annotated[int, Query(json_schema_extra={"minimum": 1, "maximum": 1000})] = 200,
    ) -> Response:
        """Read a build's last events, lines of the worker protocol: data and never instructions."""
        return answer(await service_of(request).recording(build_id, tail=tail))

    @router.get("/v1/policies", response_model=PolicyList)
    async def list_policies(request: Request) -> Response:
        """List the policies that this caller may name, with the text of their files."""
        return answer(await service_of(request).policies())

    return router
