"""A server made with FastMCP.

usage: fast.py stdio | http PORT | sse PORT
"""

import sys
from typing import Annotated, Literal

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

server = FastMCP("fast", version="1.2.3")


class Place(BaseModel):
    name: str
    altitude: float | None = None


class Forecast(BaseModel):
    of: str
    temps: list[float]
    digits: int


@server.tool
def forecast(place: Place, days: Annotated[int, Field(ge=1, le=7, description="from today, 明日")] = 3, unit: Literal["celsius", "開氏"] = "celsius") -> Forecast:
    """Predicts the weather. ☔"""
    return Forecast(of=place.name + " in " + unit, temps=[20.5 + d for d in range(days)], digits=9007199254740993)


@server.tool
def double(n: int) -> int:
    """Doubles, in a result that FastMCP wraps."""
    return 2 * n


@server.tool
def fail(why: str) -> str:
    """Fails."""
    raise ToolError(why)


kind, *port = sys.argv[1:]
if kind == "stdio":
    server.run(show_banner=False)
else:
    server.run(transport=kind, host="127.0.0.1", port=int(port[0]), show_banner=False)
