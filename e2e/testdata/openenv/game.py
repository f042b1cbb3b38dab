"""An MCP server whose state is its memory, and which can fail and die."""

import os
from typing import Any

from fastmcp import FastMCP

mcp = FastMCP("game")
total = 0


@mcp.tool
def add(by: int = 1) -> int:
    """Adds to a number that the server remembers."""
    global total
    total += by
    return total


@mcp.tool
def record() -> dict[str, Any]:
    return {"total": total, "big": 2**60 + 1}


@mcp.tool(output_schema=None)
def say(text: str) -> str:
    return text


@mcp.tool
def fail() -> str:
    raise ValueError("boom")


@mcp.tool
def pid() -> int:
    return os.getpid()


mcp.run(show_banner=False)
