"""The MCP server: lets an agent query its own session."""
