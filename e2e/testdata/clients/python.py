"""The official Python SDK as a client.

usage: python.py streamable|sse|stdio legacy|auto TOOL ARGUMENTS TARGET...
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client


async def main(kind, era, tool, arguments, *target):
    server = {
        "streamable": lambda: target[0],
        "sse": lambda: sse_client(target[0]),
        "stdio": lambda: StdioServerParameters(command=target[0], args=list(target[1:]), env=dict(os.environ)),
    }[kind]()
    async with Client(server, mode=era) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool(tool, json.loads(arguments))
        print(
            json.dumps(
                {
                    "server": client.server_info.name if client.server_info else None,
                    "protocol": client.protocol_version,
                    "tools": [t.name for t in tools],
                    "text": "".join(getattr(c, "text", "") for c in result.content),
                    "isError": bool(result.is_error),
                }
            )
        )


asyncio.run(main(*sys.argv[1:]))
