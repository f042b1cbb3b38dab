"""Many rollouts that fork at random while their gateway is killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import rig

import tineworld
from tineworld import World

# TINE_TORTURE=1 is the full size.
ROLLOUTS, SECONDS, KILLS = (256, 120.0, 12) if os.environ.get("TINE_TORTURE") else (48, 6.0, 2)


async def wander(w: World, chance: random.Random, end: float) -> str:
    """Writes, reads back and forks until the time is over. A world that forgets raises."""
    kept: dict[str, str] = {}
    while time.monotonic() < end:
        path = f"{chance.randrange(8)}.txt"
        match chance.randrange(6):
            case 0:
                async with w.fork(chance.randrange(1, 3)) as ws:
                    for known, content in kept.items():
                        assert (await ws[-1].call("files__read_text_file", path=known)).text == content
                    await ws[0].call("files__write_file", path=path, content="of the fork")
            case 1:
                assert (await w.call("files__invented")).kind == "invalid"
            case 2 | 3 if path in kept:
                assert (await w.call("files__read_text_file", path=path)).text == kept[path]
            case _:
                kept[path] = str(chance.random())
                assert not (await w.call("files__write_file", path=path, content=kept[path])).is_error
    return "result"


async def rollout(t: tineworld.Tine, seed: int, end: float, outcomes: Counter[str]) -> None:
    chance = random.Random(seed)
    while time.monotonic() < end:
        try:
            async with t.open(servers=["files"], labels={"run": "storm"}) as w:
                outcomes[await wander(w, chance, end)] += 1
        except tineworld.WorldFailed as error:
            outcomes[error.kind] += 1


@asynccontextmanager
async def killed(gateway: rig.Gateway, times: int) -> AsyncIterator[None]:
    """Kills the gateway so many times while the block runs."""

    async def kill() -> None:
        for _ in range(times):
            await asyncio.sleep(SECONDS / (times + 1))  # killed at any moment
            await asyncio.to_thread(gateway.kill)
            await asyncio.to_thread(gateway.start)

    killing = asyncio.create_task(kill())
    try:
        yield
    finally:
        await killing


async def test_each_rollout_ends_with_a_result_or_a_failed_world_and_nothing_is_left(own_gateway: rig.Gateway) -> None:
    outcomes: Counter[str] = Counter()
    async with tineworld.connect(own_gateway.url) as t:
        async with killed(own_gateway, KILLS), asyncio.TaskGroup() as tasks:
            end = time.monotonic() + SECONDS
            for seed in range(ROLLOUTS):
                tasks.create_task(rollout(t, seed, end, outcomes))
        print(dict(outcomes))

        async def nothing_left() -> bool:
            return await t.sessions() == []

        await rig.eventually("all worlds are closed", nothing_left)
    own_gateway.stop()
    assert own_gateway.holders() == [], "the gateway left processes"
    assert outcomes["result"] > 0 and outcomes["lost"] > 0, outcomes
    assert outcomes.keys() <= {"result", "lost", "infrastructure"}, outcomes
