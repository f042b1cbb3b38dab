"""The face without await."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import rig

import tineworld
from tineworld import Group, sync


def test_a_script(gateway: rig.Gateway) -> None:
    with sync.connect(gateway.url) as t:
        with t.open(servers=["files"], labels={"run": "script"}) as w:
            w.call("files__write_file", path="a.txt", content="1")
            with w.fork(2) as ws:
                assert [x.call("files__read_text_file", path="a.txt").text for x in ws] == ["1", "1"]
            snapshot = w.snapshot()
            w.call("files__write_file", path="a.txt", content="2")
            w.rewind(snapshot)
            assert w.call("files__read_text_file", path="a.txt").text == "1"
            function = {"name": "files__read_text_file", "arguments": '{"path": "a.txt"}'}
            assert w.act({"role": "assistant", "tool_calls": [{"id": "1", "function": function}]})[0]["content"] == "1"
            assert {tool["function"]["name"] for tool in w.tools()} >= {"files__read_text_file"}
            assert w.to_messages()[-1]["content"] == "1" and w.trajectory()[0]["type"] == "session"
            assert w.info()["id"] == w.id
            w.check()
            t.delete_snapshot(snapshot)
        with pytest.raises(tineworld.WorldClosed):
            w.call("files__read_text_file", path="a.txt")
        assert t.sessions(labels={"run": "script"}) == []
    assert not [x for x in threading.enumerate() if x.name.startswith("tineworld")]


def test_forks_are_a_list_and_a_block(gateway: rig.Gateway) -> None:
    with sync.connect(gateway.url) as t, t.open(servers=["files"], labels={"run": "sync-forks"}) as w:
        one, two = w.fork(2)
        assert not one.call("files__list_directory", path=".").is_error
        one.close()
        with w.fork(2) as forks:
            assert len(forks) == 2
        assert all(fork.closed for fork in forks) and one.closed and not two.closed
        with pytest.raises(tineworld.WorldClosed):
            forks[0].call("files__list_directory", path=".")
    with sync.connect(gateway.url) as t:
        assert two.id not in {s["id"] for s in t.sessions()}


async def test_in_a_running_loop(gateway: rig.Gateway) -> None:
    """As in a notebook, whose cells run in a coroutine."""
    with sync.connect(gateway.url) as t, t.open(servers=["files"]) as w:
        assert not w.call("files__list_directory", path=".").is_error
    ticked = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(ticked.set_result, True)
    assert await ticked


def test_several_threads_at_once(gateway: rig.Gateway) -> None:
    with sync.connect(gateway.url) as t, t.open(servers=["files"]) as w, ThreadPoolExecutor(8) as pool:
        with w.fork(8) as ws:
            wrote = [pool.submit(x.call, "files__write_file", path="a.txt", content=str(i)) for i, x in enumerate(ws)]
            assert not any(one.result().is_error for one in wrote)
            assert [x.call("files__read_text_file", path="a.txt").text for x in ws] == [str(i) for i in range(8)]


def test_run_with_plain_functions(gateway: rig.Gateway) -> None:
    def setup(w: sync.World, goal: int) -> None:
        w.call("files__write_file", path="goal.txt", content=str(goal))

    def episode(w: sync.World, goal: int) -> str:
        if goal == 1:
            w.call("fault__die")
        return w.call("files__read_text_file", path="goal.txt").text

    with sync.connect(gateway.url) as t:
        done = t.run([Group(goal, size=2, servers=["files", "fault"]) for goal in range(3)], episode, setup=setup, concurrency=4)
    assert [k.value for k in done.kept] == ["0", "0", "2", "2"]
    assert [d.kind for d in done.dropped] == ["lost", "lost"]


def test_the_setup_of_a_group_gets_the_same_world_as_the_episode(gateway: rig.Gateway) -> None:
    worlds: list[object] = []

    def own(w: sync.World, goal: int) -> None:
        worlds.append(w)
        w.call("files__write_file", path="goal.txt", content="own")

    def common(w: sync.World, goal: int) -> None:
        w.call("files__write_file", path="goal.txt", content="common")

    def episode(w: sync.World, goal: int) -> str:
        worlds.append(w)
        return w.call("files__read_text_file", path="goal.txt").text

    with sync.connect(gateway.url) as t:
        groups = [Group(0, size=1, servers=["files"], setup=own), Group(1, size=1, servers=["files"])]
        done = t.run(groups, episode, setup=common)
    assert [k.value for k in done.kept] == ["own", "common"]
    assert all(isinstance(w, sync.World) for w in worlds)


def test_run_refuses_what_would_have_to_be_awaited(gateway: rig.Gateway) -> None:
    played: list[int] = []

    async def episode(w: sync.World, goal: int) -> int:
        played.append(goal)
        return goal

    class Callable:
        async def __call__(self, w: sync.World, goal: int) -> None:
            played.append(goal)

    def plain(w: sync.World, goal: int) -> int:
        return goal

    def hidden(w: sync.World, goal: int) -> Any:
        return episode(w, goal)

    group = Group(0, size=1, servers=["files"], labels={"run": "awaited"})
    with sync.connect(gateway.url) as t:
        for wrong in (episode, Callable(), partial(episode), hidden):
            with pytest.raises(tineworld.Invalid, match="the episode of tineworld.sync must be a plain function"):
                t.run([group], wrong)
            with pytest.raises(tineworld.Invalid, match="the setup of tineworld.sync must be a plain function"):
                t.run([replace(group, setup=wrong)], plain)
        with pytest.raises(tineworld.Invalid, match="the setup of tineworld.sync must be a plain function"):
            t.run([group], plain, setup=episode)  # type: ignore[arg-type]
        assert t.sessions(labels={"run": "awaited"}) == [] and played == []


def test_errors_come_as_they_are(gateway: rig.Gateway) -> None:
    with pytest.raises(tineworld.Invalid):
        sync.connect("nonsense")
    with sync.connect(gateway.url) as t:
        with pytest.raises(tineworld.Invalid, match="nowhere"):
            t.open(servers=["nowhere"])
    with pytest.raises(tineworld.TineError, match="after it was closed; connect"):
        t.open()
    t.close()


def test_a_forked_process_is_told_to_connect_itself(gateway: rig.Gateway) -> None:
    with sync.connect(gateway.url) as t:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                t.sessions()
                words = "no error"
            except tineworld.TineError as error:
                words = str(error)
            os.write(write, words.encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as told:
            assert "forked" in told.read()


def test_nothing_is_missing() -> None:
    """Each function of the asynchronous classes is here with the same arguments."""
    left_out = {"create", "adopt", "leased", "leave", "leave_worlds", "later", "at_end", "run"}
    for mine, theirs in ((sync.Tine, tineworld.Tine), (sync.World, tineworld.World), (sync.Run, tineworld.Run)):
        for name, function in inspect.getmembers(theirs, inspect.isfunction):
            if name.startswith("_") or name in left_out:
                continue
            wanted = [p for p in inspect.signature(function).parameters if p != "atomic"]
            assert list(inspect.signature(getattr(mine, name)).parameters) == wanted, f"{mine.__name__}.{name}"


def test_batches(gateway: rig.Gateway) -> None:
    with sync.connect(gateway.url) as t:
        rig.need(t._tine, "POST /v1/batch")
        worlds = t.open_many(3, tineworld.Spec(servers=["files"], labels={"run": "sync-batch"}))
        forks = t.fork_many({worlds[0]: 2})
        done = t.call_many([(w, "files__list_directory", {"path": "."}) for w in [*worlds, *forks[0]]])
        assert all(isinstance(one, tineworld.Result) for one in done)
        t.close_worlds([*worlds, *forks[0]])
        assert t.sessions(labels={"run": "sync-batch"}) == []
