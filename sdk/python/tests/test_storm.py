"""Many rollouts that fork at random while their gateway is killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import rig

import tineworld
from tineworld import World

# TINE_TORTURE=1 is the full size.
ROLLOUTS, SECONDS, KILLS = (256, 120.0, 12) if os.environ.get("TINE_TORTURE") else (48, 6.0, 2)
# Of the servers that are programs: what is called, and in every which rollout.
PROGRAMS = {"fault": ("fault__count", {}, 4), "box": ("box__rlm_exec", {"code": "1"}, 16)}


@pytest.fixture
def stormy(tmp_path: Path) -> Iterator[rig.Gateway]:
    """A gateway with servers in processes and, where there are some, in sandboxes."""
    servers = {"files": {"builtin": "files"}, "fault": rig.fault_server(timeout="30s")}
    one = rig.Gateway(tmp_path, {"servers": servers | rig.boxed_server()})
    one.start()
    yield one
    one.stop()


async def wander(w: World, programs: list[str], chance: random.Random, end: float) -> str:
    """Writes, reads back and forks until the time is over. A world that forgets raises."""
    kept: dict[str, str] = {}
    for program in programs:
        await use(w, program)
    while time.monotonic() < end:
        path = f"{chance.randrange(8)}.txt"
        match chance.randrange(6):
            case 0:
                async with w.fork(chance.randrange(1, 3)) as ws:
                    for known, content in kept.items():
                        assert (await ws[-1].call("files__read_text_file", path=known)).text == content
                    await ws[0].call("files__write_file", path=path, content="of the fork")
                    for program in programs:
                        await use(ws[-1], program)
            case 1:
                assert (await w.call("files__invented")).kind == "invalid"
            case 2 | 3 if path in kept:
                assert (await w.call("files__read_text_file", path=path)).text == kept[path]
            case _:
                kept[path] = str(chance.random())
                assert not (await w.call("files__write_file", path=path, content=kept[path])).is_error
    return "result"


async def use(w: World, program: str) -> None:
    tool, arguments, _ = PROGRAMS[program]
    assert not (await w.call(tool, args=arguments)).is_error


async def rollout(t: tineworld.Tine, seed: int, servers: set[str], end: float, outcomes: Counter[str]) -> None:
    chance = random.Random(seed)
    programs = [program for program, (_, _, every) in PROGRAMS.items() if program in servers and seed % every == 0]
    while time.monotonic() < end:
        try:
            async with t.open(servers=["files", *programs], labels={"run": "storm"}) as w:
                outcomes[await wander(w, programs, chance, end)] += 1
        except tineworld.WorldFailed as error:
            outcomes[error.kind] += 1


@asynccontextmanager
async def killed(gateway: rig.Gateway, times: int) -> AsyncIterator[Counter[str]]:
    """Kills the gateway so many times while the block runs. Counts the instances that it leaves running."""
    orphans: Counter[str] = Counter()

    async def kill() -> None:
        for _ in range(times):
            await asyncio.sleep(SECONDS / (times + 1))  # killed at any moment
            await asyncio.to_thread(gateway.kill)
            for program in PROGRAMS:
                orphans[program] += len(rig.holders(gateway.state / "instances" / f"{program}-"))
            await asyncio.to_thread(gateway.start)

    killing = asyncio.create_task(kill())
    try:
        yield orphans
    finally:
        await killing


async def test_each_rollout_ends_with_a_result_or_a_failed_world_and_nothing_is_left(stormy: rig.Gateway) -> None:
    outcomes: Counter[str] = Counter()
    servers = {"fault", *rig.boxed_server()}
    async with tineworld.connect(stormy.url, patience=1) as other:
        still = await other.open(servers=["files", *servers])
        for program in servers:
            await use(still, program)  # so that the kills and the stop have something to leave
        async with tineworld.connect(stormy.url) as t:
            async with killed(stormy, KILLS) as orphans, asyncio.TaskGroup() as tasks:
                end = time.monotonic() + SECONDS
                for seed in range(ROLLOUTS):
                    tasks.create_task(rollout(t, seed, servers, end, outcomes))
            print(dict(outcomes), dict(orphans))

            async def nothing_left() -> bool:
                return [session["id"] for session in await t.sessions()] == [still.id]

            await rig.eventually("all other worlds are closed", nothing_left)
        stormy.stop()
        assert stormy.holders() == [], "the gateway left processes"
    assert all(orphans[server] for server in servers), "there was nothing that could be left"
    assert outcomes["result"] > 0 and outcomes["lost"] > 0, outcomes
    assert outcomes.keys() <= {"result", "lost", "infrastructure"}, outcomes
