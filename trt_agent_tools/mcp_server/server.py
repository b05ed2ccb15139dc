"""The MCP server over a `BuildService`, for any transport."""

from mcp.server.mcpserver import MCPServer

from trt_agent_tools import __version__
from trt_agent_tools.mcp_server.access import ServiceOf
from trt_agent_tools.mcp_server.build_tools import build_tools
from trt_agent_tools.mcp_server.session_tools import session_tools

INSTRUCTIONS = (
    "Builds TensorRT engines from ONNX files, in the background and under a policy. Call start_build, "
    "then get_progress with wait_s (up to 45) until the state is succeeded, failed or cancelled. "
    "A build can take hours and be quiet for most of it; cancel_build ends one at any moment. Errors "
    "carry a code and a hint."
)


def make_server(service_of: ServiceOf) -> MCPServer[None]:
    """Return a server; `service_of` says whose builds a request is about."""
    return MCPServer(
        "trt-agent-tools",
        title="TensorRT builds",
        version=__version__,
        instructions=INSTRUCTIONS,
        tools=[*build_tools(service_of), *session_tools(service_of)],
        log_level="WARNING",
    )
