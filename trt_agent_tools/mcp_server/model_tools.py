"""The tools over models. Docstrings and parameter descriptions are what an agent reads."""

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult
from pydantic import Field, ValidationError, WithJsonSchema

from trt_agent_tools.mcp_server.access import ServiceOf
from trt_agent_tools.mcp_server.answers import READS, invalid, result
from trt_agent_tools.mcp_server.strict import StrictTool, strict_tool
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend


def model_tools(service_of: ServiceOf) -> list[StrictTool]:
    """Return the tools over the models that a request's caller may read."""

    async def inspect_model(
        context: Context[Any, Any],
        model: Annotated[str, Field(min_length=1, max_length=4096, description="ONNX file.")],
        options: Annotated[
            BuildOptions | None,
            Field(description="As for start_build; profiles are judged."),
            # Judged in full, and not told in full a second time: every byte here is read by an agent.
            WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "null"}]}),
        ] = None,
        backend: Annotated[
            Literal["auto", "tensorrt", "tensorrt_rtx"], Field(description="As for start_build.")
        ] = "auto",
    ) -> Annotated[CallToolResult, Inspection]:
        """Look at a model without building it: inputs, missing profiles, unsupported operators, files."""
        try:
            request = InspectRequest(
                model=model, options=options or BuildOptions(), backend=Backend(backend)
            )
        except ValidationError as error:
            raise invalid(error) from error
        found = await service_of(context.request_context).inspect(request)
        return result(found, found.summary)

    return [strict_tool(inspect_model, title="Inspect a model", annotations=READS)]
