"""The command line: a front end over a `BuildService`, as the MCP server is."""
