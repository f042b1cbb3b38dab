"""What a trainer in Python does with a gateway: one request a line, one answer a line.

The clients that are compared are in environments of their own, so that each is imported
where it is used.
"""
import asyncio
import json
import sys
import time

URL, TOKEN = sys.argv[1:3]


def timed(began):
    return time.perf_counter_ns() - began


async def calls(call, count, callers):
    """So many calls, of which a number run at once, and how long each took."""
    times, left = [], iter(range(count))

    async def caller():
        for _ in left:
            began = time.perf_counter_ns()
            text = await call()
            times.append(timed(began))
            if text != "marked":
                raise ValueError("a call gives %r" % text)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    return times


TOOL, ARGUMENTS = "files__read_text_file", {"path": "mark.txt"}


async def ours(count, callers, session):
    import tineworld

    async with tineworld.connect(URL, token=TOKEN) as t:
        world = await t.attach(session)

        async def call():
            return (await world.call(TOOL, args=ARGUMENTS)).text

        await calls(call, count // 5 + 1, callers)
        return await calls(call, count, callers)


async def official(count, callers, session):
    import httpx
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    http = httpx.AsyncClient(headers={"Authorization": "Bearer " + TOKEN}, timeout=60, limits=httpx.Limits(max_connections=None))
    async with http, streamable_http_client(URL + "/s/%s/mcp" % session, http_client=http) as streams, ClientSession(*streams[:2]) as client:
        await client.initialize()

        async def call():
            return (await client.call_tool(TOOL, ARGUMENTS)).content[0].text

        await calls(call, count // 5 + 1, callers)
        return await calls(call, count, callers)


async def worlds(count, session):
    """Forks a world so many times, calls each child once, and closes them."""
    import tineworld

    async with tineworld.connect(URL, token=TOKEN) as t:
        began = time.perf_counter_ns()
        parent = await t.attach(session)
        [children] = await t.fork_many({parent: count})
        results = await t.call_many([(w, TOOL, ARGUMENTS) for w in children])
        await t.close_worlds(children)
        took = timed(began)
    for result in results:
        if isinstance(result, Exception) or result.text != "marked":
            raise ValueError("a world answers %r" % result)
    return [took]


OPS = {"ours": ours, "official": official, "worlds": worlds}
for line in sys.stdin:
    request = json.loads(line)
    try:
        out = {"ns": asyncio.run(OPS[request.pop("op")](**request))}
    except Exception as e:
        out = {"error": "%s: %s" % (type(e).__name__, e)}
    print(json.dumps(out), flush=True)
