"""The official Python SDK, of either major version, as a client of several servers.

usage: node.py JOB

JOB is JSON: {"servers": [{"kind", "era", "target"}], "calls": [{"tool", "args"}]}. What each
server lists and answers is printed as JSON.
"""

import asyncio
import contextlib
import json
import os
import sys

import mcp
from mcp import StdioServerParameters
from mcp.client.sse import sse_client


def stdio(target):
    return StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))


@contextlib.asynccontextmanager
async def connected(kind, era, target):
    """A client, and the version of the protocol."""
    if hasattr(mcp, "Client"):  # 2.x
        server = {"streamable": lambda: target[0], "sse": lambda: sse_client(target[0]), "stdio": lambda: stdio(target)}[kind]()
        async with mcp.Client(server, mode=era) as client:
            yield client, client.protocol_version
        return
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    streams = {
        "streamable": lambda: streamable_http_client(target[0]),
        "sse": lambda: sse_client(target[0]),
        "stdio": lambda: stdio_client(stdio(target)),
    }[kind]()
    async with streams as (read, write, *_), mcp.ClientSession(read, write) as client:
        yield client, (await client.initialize()).protocolVersion


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def use(server, calls):
    async with connected(**server) as (client, protocol):
        tools = [plain(t) for t in (await client.list_tools()).tools]
        results = []
        for call in calls:
            try:
                results.append(plain(await client.call_tool(call["tool"], call["args"])))
            except mcp.MCPError if hasattr(mcp, "MCPError") else mcp.McpError as e:
                results.append({"error": e.error.message, "code": e.error.code})
        return {"protocol": protocol, "tools": tools, "results": results}


async def main(job):
    return [await use(s, job["calls"]) for s in job["servers"]]


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
