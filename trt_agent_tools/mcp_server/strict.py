"""Tools that take only what they declare, and refuse in a form that an agent can act on.

The SDK drops unknown arguments, turns "1" into 1 and hides what a handler raises. Here arguments are
strict, and a refusal is a tool error with a code, a message and a hint.
"""

import difflib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ConfigDict, ValidationError

from trt_agent_tools.mcp_server.schemas import always_there, compact, outline
from trt_agent_tools.model.error_guide import GUIDES
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.untrusted import one_line

_SHOWN = 5


class StrictTool(Tool):
    """A tool whose refusals carry `{"error": {code, message, hint, details, retry}}`."""

    async def run(
        self,
        arguments: dict[str, Any],
        context: Context[Any, Any],
        convert_result: bool = False,
    ) -> CallToolResult | InputRequiredResult:
        """Run the tool; a request that is refused is answered, not raised."""
        try:
            result: CallToolResult | InputRequiredResult = await super().run(
                arguments, context, convert_result
            )
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                return refused(_invalid(cause, self.fn_metadata.arg_model))
            if isinstance(cause, Refusal):
                return refused(cause.info)
            raise
        return result


def strict_tool(
    function: Callable[..., Any],
    *,
    title: str,
    annotations: ToolAnnotations,
    whole_output: bool = False,
) -> StrictTool:
    """Return `function` as a tool that refuses unknown arguments and wrong types.

    The tool's output schema names what is always there; with `whole_output` what may be absent too,
    with types.
    """
    made = Tool.from_function(function, title=title, annotations=annotations)
    metadata = made.fn_metadata
    # The SDK makes the arguments' model from the signature, while it runs: so is this one.
    metadata.arg_model = type(
        f"{function.__name__}_arguments",
        (metadata.arg_model,),
        {"model_config": ConfigDict(extra="forbid", strict=True), "__module__": __name__},
    )
    if metadata.output_schema:
        metadata.output_schema = (outline if whole_output else always_there)(metadata.output_schema)
    return StrictTool(
        fn=function,
        name=made.name,
        title=title,
        description=" ".join(made.description.split()),
        parameters=compact(metadata.arg_model.model_json_schema(by_alias=True)),
        fn_metadata=metadata,
        is_async=made.is_async,
        context_kwarg=made.context_kwarg,
        annotations=annotations,
    )


def refused(info: ErrorInfo) -> CallToolResult:
    """Return a refusal as the result of a tool call."""
    text = f"{info.code.value}: {info.message}." + (f" {info.hint}" if info.hint else "")
    told = {"code": info.code.value, "retry": GUIDES[info.code].retry.value}
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content={"error": asdict(info) | told},
        is_error=True,
    )


def _invalid(error: ValidationError, arguments: type[BaseModel]) -> ErrorInfo:
    problems = error.errors(include_url=False, include_input=False)
    told = [
        f"{_place(p['loc'])}: {p['msg'].removeprefix('Value error, ')}" for p in problems[:_SHOWN]
    ]
    unknown = [p["loc"] for p in problems if p["type"] == "extra_forbidden"]
    code, hint = ErrorCode.INVALID_ARGUMENT, "Correct the argument and call again."
    if unknown:
        if unknown[0][0] == "options":
            code = ErrorCode.UNKNOWN_OPTION
        names = _valid_names(arguments, unknown[0])
        near = difflib.get_close_matches(str(unknown[0][-1]), names, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        hint += f"Valid here: {', '.join(names)}."
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    return ErrorInfo(code, one_line("; ".join(told) + more, 1000), hint)


def _place(location: tuple[int | str, ...]) -> str:
    return one_line(".".join(str(part) for part in location), 100) or "arguments"


def _valid_names(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the names that are valid where an unknown one was given."""
    for part in location[:-1]:
        field = model.model_fields.get(str(part))
        inner = (
            [
                kind
                for kind in getattr(field.annotation, "__args__", (field.annotation,))
                if isinstance(kind, type) and issubclass(kind, BaseModel)
            ]
            if field
            else []
        )
        if not inner:
            break
        model = inner[0]
    return list(model.model_fields)
