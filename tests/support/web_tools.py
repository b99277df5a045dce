"""An MCP server over HTTP, made with the SDK: `python web_tools.py PORT`. Its counter counts calls with an effect."""

import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations

server = MCPServer("counter")
count = 0


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def read() -> int:
    """Read the counter."""
    return count


@server.tool()
def add(amount: int) -> dict[str, int]:
    """Add to the counter."""
    global count
    count += amount
    return {"count": count}


@server.tool(annotations=ToolAnnotations(idempotentHint=True))
async def log(text: str, ctx: Context) -> str:
    """Send messages before the answer, so that the answer is a stream of events."""
    for part in text.split():
        await ctx.info(part)
    return text.upper()


@server.tool()
def process() -> int:
    """Return the number of the process."""
    return os.getpid()


@server.tool()
def header(name: str, ctx: Context) -> str:
    """Return a header of the request."""
    return ctx.request_context.request.headers.get(name, "")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
