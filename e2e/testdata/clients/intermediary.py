"""Drives a gateway with RewardKit's own client, as its package on PyPI has it.

    intermediary.py URL BACKEND

What the client returns of each call is printed as a line of JSON; what it raises
as {"raised": TEXT}.
"""

import asyncio
import json
import sys

from reward_kit.mcp.clients import IntermediaryMCPClient


async def main(url, backend):
    async with IntermediaryMCPClient(url) as client:

        async def show(doing):
            try:
                result = await doing
            except Exception as e:
                result = {"raised": str(e)}
            if hasattr(result, "model_dump"):
                result = result.model_dump(exclude_none=True)
            print(json.dumps(result), flush=True)
            return result

        opened = await show(client.initialize_session([{"backend_name_ref": backend, "num_instances": 1}]))
        session = opened["rk_session_id"]
        instance = opened["initialized_backends"][0]["instances"][0]["instance_id"]

        def call(tool, **args):
            return show(client.call_backend_tool(session, instance, backend, tool, args))

        await show(client.list_backend_tools(session, instance, backend))
        await call("read_file", path="/data/source_dir/file_to_move.txt")
        await call("write_file", path="/data/new.txt", content="one\ntwo\n")
        await call("list_directory", path="/data")
        await call("read_file", path="/data/not-there.txt")
        await call("read_file", path="/etc/passwd")
        await call("read_file", pth="/data/new.txt")
        await call("no_such_tool")
        await show(client.call_backend_tool("no-such-session", instance, backend, "read_file", {"path": "/data/new.txt"}))
        await show(client.cleanup_session(session))


asyncio.run(main(*sys.argv[1:]))
