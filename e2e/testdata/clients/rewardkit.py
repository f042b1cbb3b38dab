"""A client as RewardKit has it: the official Python SDK over streamable HTTP, with
arguments wrapped in "args", and results read as JSON from the first content item.

usage: rewardkit.py legacy|auto URL

Each line on stdin is a call, {"tool", "args", "session", "flat"}, and is answered
by a line on stdout. With a session the call is made by a worker that sends that
id as mcp-session-id, over a connection of its own; with flat the arguments are
not wrapped. {"list": true} lists the tools instead.
"""

import asyncio
import contextlib
import json
import sys

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def connect(stack, era, url, session):
    headers = {"mcp-session-id": session} if session else {}
    http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
    return await stack.enter_async_context(Client(streamable_http_client(url, http_client=http), mode=era))


async def answer(client, line):
    if line.get("list"):
        return {"tools": [t.name for t in (await client.list_tools()).tools]}
    args = line.get("args") or {}
    result = await client.call_tool(line["tool"], args if line.get("flat") else {"args": args})
    text = result.content[0].text
    out = {"isError": bool(result.is_error), "text": text, "meta": result.meta or {}}
    if not result.is_error:
        out["data"] = json.loads(text)
        out["structured"] = result.structured_content
    elif result.structured_content is not None:
        out["data"] = json.loads(text)
    return out


async def main(era, url):
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        while line := await asyncio.to_thread(sys.stdin.readline):
            line = json.loads(line)
            session = line.get("session") or ""
            try:
                if session not in clients:
                    clients[session] = await connect(stack, era, url, session)
                out = await answer(clients[session], line)
            except Exception as e:  # the test says whether that is wrong
                out = {"failed": f"{type(e).__name__}: {e}"}
            print(json.dumps(out), flush=True)


asyncio.run(main(*sys.argv[1:]))
