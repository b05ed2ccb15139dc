"""The MCP server over a `BuildService`, for any transport."""

from mcp.server.mcpserver import MCPServer

from trt_agent_tools import __version__
from trt_agent_tools.mcp_server.access import ServiceOf
from trt_agent_tools.mcp_server.build_tools import build_tools
from trt_agent_tools.mcp_server.completions import add_completions
from trt_agent_tools.mcp_server.listing_tools import listing_tools
from trt_agent_tools.mcp_server.model_tools import model_tools
from trt_agent_tools.mcp_server.prompts import add_prompts
from trt_agent_tools.mcp_server.resources import add_resources
from trt_agent_tools.mcp_server.session_tools import session_tools
from trt_agent_tools.mcp_server.strict_server import StrictServer
from trt_agent_tools.mcp_server.subscriptions import Subscriptions
from trt_agent_tools.mcp_server.tasks import Tasks

INSTRUCTIONS = (
    "Builds TensorRT engines from ONNX files, in the background and under a policy. Call start_build, "
    "then get_progress with wait_s (up to 45) until the state is succeeded, failed or cancelled. "
    "A build can take hours and be quiet for most of it; cancel_build ends one at any moment. Errors "
    "carry a code and a hint."
)


def make_server(service_of: ServiceOf) -> MCPServer[None]:
    """Return a server; `service_of` says whose builds a request is about."""
    server = StrictServer(
        "trt-agent-tools",
        title="TensorRT builds",
        version=__version__,
        instructions=INSTRUCTIONS,
        extensions=[Tasks(service_of)],
        tools=[
            *build_tools(service_of),
            *listing_tools(service_of),
            *session_tools(service_of),
            *model_tools(service_of),
        ],
        log_level="WARNING",
        middleware=[Subscriptions(service_of)],
    )
    add_resources(server, service_of)
    add_prompts(server, service_of)
    add_completions(server, service_of)
    return server
