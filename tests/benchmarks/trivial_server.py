"""An MCP server with one tool that does nothing: the floor that `get_progress` is compared with."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("trivial", log_level="WARNING")


@server.tool()
async def ping() -> str:
    """Answer."""
    return "pong"


if __name__ == "__main__":
    server.run(transport="stdio")
