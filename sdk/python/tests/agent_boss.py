"""The program of an agent that starts others with the token of its run, and waits for the first of them."""

import asyncio
import json
import sys

import tineworld

job = json.load(sys.stdin)


async def main() -> None:
    server = job["agent_blueprint"]["mcp_servers"]["orchestrator"]
    token = server["headers"]["Authorization"].removeprefix("Bearer ")
    async with tineworld.connect(server["url"], token) as t:
        done, other = await asyncio.gather(t.run_agent("worker", "below"), t.run_agent("worker", "hang", mode="async_poll"))
        text = (await done.result()).text
        print(json.dumps({"type": "text", "text": f"{text} {other.id}"}), flush=True)
        await other.wait()


asyncio.run(main())
