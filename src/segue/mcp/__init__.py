"""The MCP server: what an agent may ask about its own session."""
