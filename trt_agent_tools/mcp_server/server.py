"""The MCP server over a `BuildService`, for any transport."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcp.server.mcpserver import MCPServer

from trt_agent_tools import __version__
from trt_agent_tools.mcp_server.build_tools import build_tools
from trt_agent_tools.mcp_server.session_tools import session_tools
from trt_agent_tools.model.service import BuildService

INSTRUCTIONS = (
    "Builds TensorRT engines from ONNX files, in the background and under a policy. Call start_build, "
    "then get_progress with wait_s (up to 45) until the state is succeeded, failed or cancelled. "
    "A build can take hours and be quiet for most of it; cancel_build ends one at any moment. Errors "
    "carry a code and a hint."
)


def make_server(
    open_service: Callable[[], AbstractAsyncContextManager[BuildService]],
) -> MCPServer[BuildService]:
    """Return a server that opens its service when it starts and closes it when it ends."""
    running: list[BuildService] = []

    @asynccontextmanager
    async def lifespan(_: MCPServer[BuildService]) -> AsyncIterator[BuildService]:
        async with open_service() as service:
            running.append(service)
            try:
                yield service
            finally:
                running.clear()

    return MCPServer(
        "trt-agent-tools",
        title="TensorRT builds",
        version=__version__,
        instructions=INSTRUCTIONS,
        tools=[*build_tools(lambda: running[0]), *session_tools(lambda: running[0])],
        lifespan=lifespan,
        log_level="WARNING",
    )
