"""Many worlds at once, and leases: with scripted gateways for what breaks, with a real one for the rest."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import rig
from aiohttp import web

import tineworld
from tineworld import Spec
from tineworld._thread import LoopThread

BATCH = "POST /v1/batch"
LEASES = "POST /v1/leases"


async def _lines(request: web.Request, lines: list[dict[str, Any]]) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await answer.prepare(request)
    for line in lines:
        await answer.write(json.dumps(line).encode() + b"\n")
    return answer


async def _session(request: web.Request) -> web.StreamResponse:
    return web.json_response({"id": request.match_info["id"]})


async def test_a_batch_that_breaks_off_is_repeated_with_its_key() -> None:
    asked: list[tuple[str, list[Any]]] = []

    async def batch(request: web.Request) -> web.StreamResponse:
        items = (await request.json())["items"]
        asked.append((request.headers["Idempotency-Key"], items))
        lines = [{"item": i, "closed": True} if "close" in item else {"item": i, "opened": {"id": f"ses_{i}"}} for i, item in enumerate(items)]
        lines.reverse()
        return await _lines(request, lines[:1] if len(asked) == 1 else [*lines, {"done": True, "failed": 0}])

    async with rig.Scripted({BATCH: batch}) as server, tineworld.connect(server.url, lease=None) as t:
        worlds = await t.open_many(3, Spec(servers=["files"]))
        assert [w.id for w in worlds] == ["ses_0", "ses_1", "ses_2"], "in the order of the items"
        assert len(asked) == 2 and asked[0] == asked[1]
    assert asked[2][1] == [{"close": {"session": f"ses_{i}"}} for i in range(3)]


async def test_calls_of_a_batch_that_breaks_off_are_lost_and_not_repeated() -> None:
    asked: list[Any] = []

    async def batch(request: web.Request) -> web.StreamResponse:
        assert "Idempotency-Key" not in request.headers
        asked.append(await request.json())
        invalid = {"item": 2, "error": {"kind": "invalid", "message": "no such tool"}, "status": 400}
        gone = {"item": 3, "error": {"kind": "invalid", "message": "session was closed"}, "status": 410}
        return await _lines(request, [{"item": 0, "result": {"content": [{"type": "text", "text": "ok"}]}, "call": "call_1"}, invalid, gone])

    async with rig.Scripted({BATCH: batch, "GET /v1/sessions/{id}": _session}) as server, tineworld.connect(server.url, lease=None) as t:
        w = await t.attach("ses_1")
        first, second, third, fourth = await t.call_many([(w, "a__b", {"n": n}) for n in range(4)])
        assert isinstance(first, tineworld.Result) and first.text == "ok" and first.call == "call_1"
        assert isinstance(second, tineworld.Lost)
        assert isinstance(third, tineworld.Result) and third.kind == "invalid"
        assert isinstance(fourth, tineworld.Lost)
    assert len(asked) == 1


async def test_large_batches_are_parted_and_atomic_ones_refused() -> None:
    sizes: list[int] = []

    async def batch(request: web.Request) -> web.StreamResponse:
        items = (await request.json())["items"]
        sizes.append(len(items))
        return await _lines(request, [{"item": i, "result": {"content": []}} for i in range(len(items))] + [{"done": True}])

    async with rig.Scripted({BATCH: batch, "GET /v1/sessions/{id}": _session}) as server, tineworld.connect(server.url, lease=None) as t:
        w = await t.attach("ses_1")
        assert len(await t.call_many([(w, "a__b", {})] * 10_001)) == 10_001
        assert len(await t.call_many([(w, "a__b", {"c": "x" * (3 << 20)})] * 5)) == 5
        assert await t.call_many([]) == []
        with pytest.raises(tineworld.Invalid, match="10000 at most"):
            await t.open_many(10_001)
    assert sizes == [10_000, 1, 2, 2, 1]


async def test_all_or_none(t: tineworld.Tine) -> None:
    rig.need(t, BATCH)
    worlds = await t.open_many(20, Spec(servers=["files"], labels={"run": "many"}))
    assert len({w.id for w in worlds}) == 20
    forks = await t.fork_many({w: 2 for w in worlds[:5]})
    assert [len(ws) for ws in forks] == [2] * 5
    done = await t.call_many([(w, "files__write_file", {"path": "a", "content": str(i)}) for i, w in enumerate(worlds)])
    assert all(isinstance(one, tineworld.Result) and not one.is_error for one in done)
    read = await t.call_many([(w, "files__read_text_file", {"path": "a"}) for w in worlds])
    assert [one.text for one in read if isinstance(one, tineworld.Result)] == [str(i) for i in range(20)]
    await t.close_worlds([*worlds, *(w for ws in forks for w in ws)])
    assert await t.sessions(labels={"run": "many"}) == []
    with pytest.raises(tineworld.TineError, match="nowhere"):
        await t.open_many(3, Spec(servers=["nowhere"]))


async def test_each_by_itself(t: tineworld.Tine) -> None:
    rig.need(t, BATCH)
    async with t.open(servers=["files"]) as w, t.open(servers=["files"]) as gone:
        await gone.close()
        gone.closed = False
        (forks, failure) = await t.fork_many({w: 2, gone: 2}, atomic=False)
        assert isinstance(forks, list) and len(forks) == 2 and isinstance(failure, tineworld.TineError)


async def test_a_cancelled_batch_leaves_nothing(t: tineworld.Tine) -> None:
    rig.need(t, BATCH)
    for pause in (0, 0.002, 0.01, 0.03):
        making = asyncio.create_task(t.open_many(16, Spec(servers=["files"], labels={"run": "left"})))
        await asyncio.sleep(pause)  # cancelled at any moment
        making.cancel()
        await asyncio.wait([making])
        if not making.cancelled():
            await t.close_worlds(making.result())

    async def nothing_left() -> bool:
        return await t.sessions(labels={"run": "left"}) == []

    await rig.eventually("all worlds are closed", nothing_left)


async def test_a_lease_is_taken_once_renewed_while_the_loop_is_busy_and_ended() -> None:
    heard: list[str] = []
    renewed = threading.Event()

    async def take(request: web.Request) -> web.StreamResponse:
        heard.append("take " + (await request.json())["ttl"])
        return web.json_response({"id": "lse_1", "ttl": "5s"})

    async def renew(request: web.Request) -> web.StreamResponse:
        heard.append("renew " + request.match_info["id"])
        renewed.set()
        return web.json_response({"id": "lse_1"})

    async def open(request: web.Request) -> web.StreamResponse:
        heard.append("open " + (await request.json())["lease"])
        return web.json_response({"id": "ses_1"})

    async def end(request: web.Request) -> web.StreamResponse:
        heard.append("end " + request.match_info["id"])
        return web.Response(status=204)

    routes = {LEASES: take, "PUT /v1/leases/{id}": renew, "DELETE /v1/leases/{id}": end, "POST /v1/sessions": open, "DELETE /v1/sessions/{id}": end}
    thread = LoopThread("scripted")
    server = rig.Scripted(routes)
    thread.run(server.__aenter__())
    try:
        async with tineworld.connect(server.url, lease=5) as t:
            await asyncio.gather(*(_wait(t.open()) for _ in range(3)))
            assert heard == ["take 5000ms"] + ["open lse_1"] * 3
            assert renewed.wait(rig.PATIENCE), "this keeps the loop from running"
        assert heard[4] == "renew lse_1" and heard[-1] == "end lse_1"
    finally:
        thread.run(server.__aexit__())
        thread.stop()


async def _wait(opening: tineworld.Opening[tineworld.World]) -> tineworld.World:
    return await opening


async def test_worlds_after_a_lost_lease_are_under_another(t: tineworld.Tine) -> None:
    rig.need(t, LEASES)
    async with tineworld.connect(t.url, lease=5) as mine:
        w = await mine.open(servers=["files"])
        lease = mine._lease
        assert lease is not None
        await t.wire.json("DELETE", "v1", "leases", lease.id)
        with pytest.raises(tineworld.Lost):
            await w.call("files__list_directory", path=".")
        if mine.features.has(*BATCH.split(" ")):
            assert len(await mine.open_many(2, Spec(servers=["files"]))) == 2
        async with mine.open(servers=["files"]) as another:
            assert not (await another.call("files__list_directory", path=".")).is_error
            assert mine._lease is not None and mine._lease.id != lease.id


KILLED = """
import asyncio, sys, tineworld
async def main():
    t = await tineworld.connect(sys.argv[1], lease=5)
    w = await t.open(servers=["files"], labels={"run": "killed"})
    await w.fork(3)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_worlds_of_a_killed_program_end_with_their_lease(t: tineworld.Tine) -> None:
    rig.need(t, LEASES)
    with subprocess.Popen([sys.executable, "-c", KILLED, t.url], stdout=subprocess.PIPE, env=os.environ) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        assert len(await t.sessions(labels={"run": "killed"})) == 4
        program.kill()

    async def ended() -> bool:
        return await t.sessions(labels={"run": "killed"}) == []

    await rig.eventually("the worlds are closed", ended)
    reasons = {s.get("reason") for s in await t.sessions(labels={"run": "killed"}, closed=True)}
    assert reasons == {"lease"}
