"""Tools that agents can be given by name: `python`, tools of MCP servers, and functions of the user's program."""
