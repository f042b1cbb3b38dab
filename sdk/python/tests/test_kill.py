"""Gateways that are killed."""

from __future__ import annotations

import asyncio

import pytest
import rig

import tineworld


async def test_a_call_in_flight_is_lost_and_the_world_comes_back(own_gateway: rig.Gateway) -> None:
    async with tineworld.connect(own_gateway.url) as t, t.open(servers=["files", "fault"]) as w:
        await w.call("files__write_file", path="a.txt", content="1")
        hanging = asyncio.create_task(w.call("fault__hang"))

        async def hangs() -> bool:
            return bool((await w.info())["in_flight"])

        await rig.eventually("the call runs", hangs)
        own_gateway.kill()
        with pytest.raises(tineworld.Lost, match="broke off"):
            await hanging
        waiting = asyncio.create_task(w.call("files__read_text_file", path="a.txt"))
        await asyncio.to_thread(own_gateway.start)
        assert (await waiting).text == "1"


async def test_creations_wait_for_the_gateway_and_are_made_once(own_gateway: rig.Gateway) -> None:
    async with tineworld.connect(own_gateway.url) as t:
        async with t.open(servers=["files"], labels={"run": "once"}) as w:
            own_gateway.kill()
            making = [asyncio.ensure_future(_make(w.fork(2))) for _ in range(8)]
            await asyncio.to_thread(own_gateway.start)
            forks = [x for ws in await asyncio.gather(*making) for x in ws]
            assert len({s["id"] for s in await t.sessions(labels={"run": "once"})}) == 1 + 16
            await t.close_worlds(forks)
        assert await t.sessions(labels={"run": "once"}) == []


async def _make(opening: tineworld.Opening[list[tineworld.World]]) -> list[tineworld.World]:
    return await opening


async def test_a_gateway_that_stays_away_is_told_after_patience(own_gateway: rig.Gateway) -> None:
    async with tineworld.connect(own_gateway.url, patience=0.3) as t:
        w = await t.open(servers=["files"])
        await asyncio.to_thread(own_gateway.kill)
        with pytest.raises(tineworld.NoGateway, match="is `.* serve` running"):
            await w.call("files__list_directory", path=".")
        assert isinstance(w.failed, tineworld.Infrastructure)
        await asyncio.to_thread(own_gateway.start)


async def test_a_program_that_kept_its_loop_busy_loses_no_call(own_gateway: rig.Gateway) -> None:
    """It has not seen yet that its pooled connections are closed."""
    async with tineworld.connect(own_gateway.url) as t, t.open(servers=["files"]) as w:
        await w.call("files__write_file", path="a.txt", content="1")
        own_gateway.kill()
        own_gateway.start()
        assert (await w.call("files__read_text_file", path="a.txt")).text == "1"
