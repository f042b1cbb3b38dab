"""Groups of rollouts on a real gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from typing import Any

import pytest
import rig

import tineworld
from tineworld import Group, Timeouts, World


async def write_goal(w: World, goal: int) -> None:
    await w.call("files__write_file", path="goal.txt", content=str(goal))


async def read_goal(w: World, goal: int) -> str:
    return (await w.call("files__read_text_file", path="goal.txt")).text


async def test_all_are_kept_in_order(t: tineworld.Tine) -> None:
    groups = [Group(goal, size=3, servers=["files"], labels={"run": "order"}, setup=write_goal) for goal in range(4)]
    done = await t.run(groups, read_goal, concurrency=5)
    assert [(k.group, k.index, k.value, k.attempts) for k in done.kept] == [(g, i, str(g), 1) for g in range(4) for i in range(3)]
    assert done.dropped == [] and {g: len(ks) for g, ks in done.by_group().items()} == {0: 3, 1: 3, 2: 3, 3: 3}
    assert len({k.session for k in done.kept}) == 12
    assert await t.sessions(labels={"run": "order"}) == []
    assert (await t.trajectory(done.kept[0].session))[-1]["type"] == "close"


async def test_no_more_play_at_once_than_allowed(t: tineworld.Tine) -> None:
    playing: list[int] = [0, 0]

    async def episode(w: World, _: int) -> None:
        playing[0] += 1
        playing[1] = max(playing)
        await w.call("files__list_directory", path=".")
        playing[0] -= 1

    await t.run([Group(0, size=4, servers=["files"]) for _ in range(4)], episode, concurrency=3)
    assert playing == [0, 3]


async def test_failed_worlds_are_dropped_with_their_kind(t: tineworld.Tine) -> None:
    async def episode(w: World, tool: str) -> bool:
        return (await w.call(tool, timeout=0.3 if tool == "fault__hang" else None)).is_error

    tools = ["fault__die", "fault__hang", "gone__x", "files__invented", "fault__fail", "fault__count"]
    done = await t.run([Group(tool, size=2, servers=["files", "fault", "gone"], labels={"run": "kinds"}) for tool in tools], episode)
    assert [(d.task, d.kind, d.attempts) for d in done.dropped] == [
        (tool, kind, 1) for tool, kind in [("fault__die", "lost"), ("fault__hang", "timeout"), ("gone__x", "infrastructure")] for _ in range(2)
    ]
    assert [(k.task, k.value) for k in done.kept] == [(tool, tool != "fault__count") for tool in tools[3:] for _ in range(2)]
    assert await t.sessions(labels={"run": "kinds"}) == []


@pytest.mark.parametrize("timeouts", ["drop", "score"])
async def test_timeouts_are_dropped_or_scored(t: tineworld.Tine, timeouts: Timeouts) -> None:
    async def episode(w: World, _: None) -> str:
        return (await w.call("fault__hang", timeout=0.2)).kind

    done = await t.run([Group(None, size=2, servers=["fault"])], episode, timeouts=timeouts)
    assert [d.kind for d in done.dropped] == (["timeout"] * 2 if timeouts == "drop" else [])
    assert [k.value for k in done.kept] == ([] if timeouts == "drop" else ["timeout"] * 2)


async def test_a_failed_world_is_played_again_in_another(t: tineworld.Tine) -> None:
    seen: list[str] = []

    async def episode(w: World, _: None) -> int:
        seen.append(w.id)
        if len(seen) <= 3:
            await w.call("fault__die")
        return int((await w.call("fault__count")).text)

    done = await t.run([Group(None, size=2, servers=["fault"], labels={"run": "again"})], episode, retry_world_failures=2)
    assert sorted(k.attempts for k in done.kept) == [2, 3] and done.dropped == []
    assert [k.value for k in done.kept] == [1, 1] and len(set(seen)) == 5
    told = [step["of"] async for step in t.trajectories(labels={"run": "again"})]
    kept = [step["of"] async for step in t.trajectories(labels={"run": "again"}, kept=True)]
    assert len(set(told)) == 6 and set(kept) == {k.session for k in done.kept}
    assert Counter(kept) == Counter(of for of in told if of in kept)


async def test_a_root_that_fails_is_opened_again_or_drops_its_group(t: tineworld.Tine) -> None:
    tries = {"once": 0, "always": 0}

    async def setup(w: World, task: str) -> None:
        tries[task] += 1
        if task == "always" or tries[task] == 1:
            await w.call("fault__die")

    async def episode(w: World, task: str) -> str:
        return task

    groups = [Group(task, size=3, servers=["fault"], setup=setup, labels={"run": "root"}) for task in tries]
    done = await t.run(groups, episode, retry_world_failures=1)
    assert [(k.task, k.attempts) for k in done.kept] == [("once", 2)] * 3
    assert [(d.task, d.kind, d.attempts, d.session) for d in done.dropped] == [("always", "lost", 2, "")] * 3
    assert await t.sessions(labels={"run": "root"}) == []


async def test_a_failure_that_the_episode_caught_is_a_failure(t: tineworld.Tine) -> None:
    async def episode(w: World, _: None) -> float:
        try:
            await w.call("fault__die")
        except tineworld.WorldFailed:
            pass
        return 1.0

    done = await t.run([Group(None, size=2, servers=["fault"])], episode)
    assert done.kept == [] and [d.kind for d in done.dropped] == ["lost"] * 2


async def test_a_server_that_was_killed_and_came_back_is_a_failure() -> None:
    """Its calls succeed, since it restarts on its declared state; the gateway knows of the damage."""
    config = {"servers": {"fault": rig.fault_server(state=["data"], fork="files")}}
    pids: list[int] = []

    async def episode(w: World, kill: bool) -> int:
        pid = (await w.call("fault__count")).data["pid"]
        if kill:
            os.kill(pid, signal.SIGKILL)

            async def noticed() -> bool:
                return not any(m["instance"] for m in (await w.info())["members"])

            await rig.eventually("the gateway knows that the server has ended", noticed)
        pids.append((await w.call("fault__count")).data["pid"])
        return int(pids[-1] != pid)

    async with tineworld.local(config, binary=rig.tine_binary()) as t:
        done = await t.run([Group(kill, size=1) for kill in (False, True)], episode)
    assert [(k.task, k.value) for k in done.kept] == [(False, 0)]
    assert [(d.task, d.kind, "damaged" in str(d.error)) for d in done.dropped] == [(True, "lost", True)] and len(pids) == 2


async def test_an_episode_may_close_its_world(t: tineworld.Tine) -> None:
    async def episode(w: World, _: None) -> int:
        await w.close()
        return 1

    done = await t.run([Group(None, size=2, servers=["files"])], episode)
    assert [k.value for k in done.kept] == [1, 1]


async def test_a_failure_that_the_setup_caught_is_a_failure(t: tineworld.Tine) -> None:
    async def setup(w: World, _: None) -> None:
        with contextlib.suppress(tineworld.WorldFailed):
            await w.call("fault__die")

    done = await t.run([Group(None, size=2, servers=["fault"], setup=setup)], read_nothing)
    assert done.kept == [] and [d.kind for d in done.dropped] == ["lost"] * 2


async def read_nothing(w: World, task: Any) -> None:
    pass


async def test_an_error_result_in_the_setup_is_raised(t: tineworld.Tine) -> None:
    async def wrong_tool(w: World, _: None) -> None:
        await w.call("files__wrote_file", path="goal.txt", content="1")

    async def batch(w: World, _: None) -> None:
        await t.call_many([(w, "files__read_text_file", {"path": "absent"})])

    async def plain(w: World, _: None) -> None:
        with pytest.raises(tineworld.SetupFailed, match="absent"):
            await w.call("files__read_text_file", path="absent")

    async def episode(w: World, _: None) -> bool:
        return (await w.call("files__read_text_file", path="absent")).is_error

    for setup in (wrong_tool, batch):
        with pytest.raises(tineworld.SetupFailed, match="files__wrote_file|absent"):
            await t.run([Group(None, size=2, servers=["files"], setup=setup, labels={"run": "typo"})], episode)
    assert await t.sessions(labels={"run": "typo"}) == []
    done = await t.run([Group(None, size=2, servers=["files"], setup=plain)], episode)
    assert [k.value for k in done.kept] == [True, True], "an episode gets error results"
    with pytest.raises(tineworld.Invalid, match="not a coroutine function"):
        await t.run([Group(None, servers=["files"], setup=lambda w, task: None)], episode)


async def test_an_error_of_the_episode_ends_the_run_and_leaves_nothing(t: tineworld.Tine) -> None:
    async def episode(w: World, goal: int) -> None:
        if goal == 1:
            raise ZeroDivisionError("a mistake in the trainer's own code")
        await w.call("fault__hang")

    groups = [Group(goal, size=2, servers=["fault"], labels={"run": "bug"}) for goal in range(3)]
    with pytest.raises(ZeroDivisionError, match="the trainer's own code"):
        await t.run(groups, episode)
    assert await t.sessions(labels={"run": "bug"}) == []


async def test_a_cancelled_run_leaves_nothing(t: tineworld.Tine) -> None:
    began = asyncio.Event()

    async def episode(w: World, _: None) -> None:
        began.set()
        await w.call("fault__hang")

    run = asyncio.create_task(t.run([Group(None, size=4, servers=["fault"], labels={"run": "cancelled"})] * 3, episode, concurrency=5))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    async def nothing_left() -> bool:
        return await t.sessions(labels={"run": "cancelled"}) == []

    await rig.eventually("all worlds are closed", nothing_left)


async def test_64_rollouts_with_kills_of_servers_and_of_the_gateway(own_gateway: rig.Gateway) -> None:
    """8 groups of 8 forks: each rollout is kept, or dropped with the kind of what was done to it."""
    chance = random.Random(16)
    plan: dict[tuple[int, int], str] = {(g, i): chance.choice(["play", "play", "play", "invent", "die", "hang"]) for g in range(8) for i in range(8)}
    turns: Counter[int] = Counter()
    did: dict[str, str] = {}
    kills = asyncio.Event()

    async def setup(w: World, group: int) -> None:
        await w.call("files__write_file", path="task.txt", content=str(group))

    async def episode(w: World, group: int) -> str:
        did[w.id] = what = plan[group, turns[group]]
        turns[group] += 1
        assert (await w.call("files__read_text_file", path="task.txt")).text == str(group)
        tool, given = {"play": ("files__list_directory", {"path": "."}), "invent": ("files__invented", {}), "die": ("fault__die", {}), "hang": ("fault__hang", {})}[what]
        first: Any = await w.call(tool, args=given, timeout=1 if what == "hang" else None)
        if sum(turns.values()) > 20:
            kills.set()
        return str(first.kind or what)

    async def kill() -> None:
        await kills.wait()
        own_gateway.kill()
        await asyncio.to_thread(own_gateway.start)

    async with tineworld.connect(own_gateway.url) as t:
        killing = asyncio.create_task(kill())
        done = await t.run([Group(g, size=8, servers=["files", "fault"], setup=setup) for g in range(8)], episode, concurrency=16)
        await killing
        assert len(done.kept) + len(done.dropped) == 64
        assert {(k.group, k.index) for k in done.kept} | {(d.group, d.index) for d in done.dropped} == set(plan)
        for kept in done.kept:
            assert kept.value == {"play": "play", "invent": "invalid"}[did[kept.session]]
        cut_off = 0  # by the kill of the gateway
        for dropped in done.dropped:
            wanted = {"die": "lost", "hang": "timeout"}.get(did.get(dropped.session, ""), "")
            if dropped.kind != wanted:
                assert dropped.kind in ("lost", "infrastructure"), dropped
                cut_off += 1
        assert cut_off <= 16 and len(done.kept) >= 20
        assert await t.sessions() == []
    own_gateway.stop()
    assert own_gateway.holders() == [], "the gateway left processes"
