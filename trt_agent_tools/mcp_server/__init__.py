"""The MCP tools over a `BuildService`, and the text that an agent reads."""
