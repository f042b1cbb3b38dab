"""What OpenEnv's own clients do with an environment, told as one line of JSON each.

clients.py all URL    every operation, in two episodes at once
clients.py end URL    tells the pid of an episode's server, waits for a line, and steps again;
                      then opens more episodes, tells of them, and waits to be killed
"""

import asyncio
import json
import sys

from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

URL = sys.argv[2]


def tell(**what):
    print(json.dumps(what), flush=True)


def call(env, tool, **arguments):
    return env.step({"type": "call_tool", "tool_name": tool, "arguments": arguments})


async def data(env, tool, **arguments):
    step = await call(env, tool, **arguments)
    assert step.observation["error"] is None, step.observation
    return step.observation["result"]["data"]


async def raised(doing):
    try:
        return f"no error: {await doing}"
    except RuntimeError as e:
        return str(e)


async def generic():
    async with GenericEnvClient(base_url=URL) as one, GenericEnvClient(base_url=URL) as two:
        begun = await one.reset(episode_id="mine", seed=7)
        await two.reset()
        tell(begun=begun.observation["metadata"], reward=begun.reward, done=begun.done)
        tools = (await one.step({"type": "list_tools"})).observation["tools"]
        tell(tools=[t["name"] for t in tools], add=next(t for t in tools if t["name"] == "add"))
        isolated = [await data(one, "add", by=5), await data(two, "add", by=1), await data(one, "add", by=5)]
        tell(isolated=isolated, state=await one.state())
        tell(record=(await call(one, "record")).observation["result"], said=await data(one, "say", text="a <b> & \u00e4"))
        tell(errors=[(await call(one, tool)).observation for tool in ("fail", "invented")])
        tell(wrong=await raised(one.step({"type": "move"})), still=await data(one, "add"))
        await one.reset()
        tell(fresh=await data(one, "add"), other=await data(two, "add"), state=await one.state())


async def tools():
    async with MCPToolClient(base_url=URL) as env:
        await env.reset(episode_id="tools")
        tell(mcp_tools=[t.name for t in await env.list_tools()])
        tell(called=[await env.call_tool("add", by=2), await env.call_tool("add", by=2)], state=(await env.state()).episode_id)
        tell(mcp_errors=[await raised(env.call_tool(tool)) for tool in ("fail", "invented")])
        step = await env.step(CallToolAction(tool_name="add", arguments={"by": 1}))
        failed = await env.step(CallToolAction(tool_name="fail"))
        listed = await env.step(ListToolsAction())
        tell(typed=type(step.observation).__name__, data=step.observation.result["data"], error=failed.observation.error.error_type, listed=len(listed.observation.tools))


async def hold():
    one, two = GenericEnvClient(base_url=URL), MCPToolClient(base_url=URL)
    await one.connect()
    await two.connect()
    await one.reset()
    await two.reset()
    tell(held=[await data(one, "pid"), await two.call_tool("pid")])
    await asyncio.sleep(3600)


async def lose():
    async with GenericEnvClient(base_url=URL) as env:
        await env.reset()
        tell(pid=await data(env, "pid"))
        await asyncio.to_thread(sys.stdin.readline)
        lost = await raised(call(env, "add"))
    async with GenericEnvClient(base_url=URL) as env:  # which clients of 0.10 connect by themselves at their next step
        tell(lost=lost, after=await raised(call(env, "add")))


async def main():
    match sys.argv[1]:
        case "all":
            await generic()
            await tools()
        case "end":
            await lose()
            await hold()


asyncio.run(main())
