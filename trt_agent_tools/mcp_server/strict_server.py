"""The SDK's server, with refusals for names that there are not."""

import difflib
from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, GetPromptResult, InputRequiredResult

from trt_agent_tools.mcp_server.protocol_errors import protocol_error
from trt_agent_tools.mcp_server.strict import refused
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.untrusted import one_line


class StrictServer(MCPServer[None]):
    """Says which tools, prompts and arguments of prompts there are to who names another."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; one that there is not is refused as a tool refuses."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError:
            # Only now: a list of all tools is made anew each time, and most calls are for one of them.
            known = [tool.name for tool in await self.list_tools()]
            if name in known:
                raise
            return refused(_unknown("tool", name, known))

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[None, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """Return a prompt.

        Raises:
            MCPError: there is none of this name, or the arguments are not those that it takes.
        """
        prompts = {prompt.name: prompt for prompt in await self.list_prompts()}
        if name not in prompts:
            raise protocol_error(_unknown("prompt", name, list(prompts)))
        takes = prompts[name].arguments or []
        given = arguments or {}
        for argument in given:
            if argument not in {each.name for each in takes}:
                raise protocol_error(_unknown("argument", argument, [each.name for each in takes]))
        missing = [each.name for each in takes if each.required and each.name not in given]
        if missing:
            raise protocol_error(
                ErrorInfo(
                    ErrorCode.INVALID_ARGUMENT,
                    f"prompt {name} needs {', '.join(missing)}",
                    "Give them and ask again.",
                )
            )
        return await super().get_prompt(name, arguments, context)


def _unknown(what: str, name: str, known: Sequence[str]) -> ErrorInfo:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return ErrorInfo(
        ErrorCode.INVALID_ARGUMENT,
        f"there is no {what} {one_line(name, 60)!r}",
        f"{hint}There are {', '.join(known)}.",
    )
