"""The same without `await`: for scripts, and for notebooks, where an event loop runs already.

>>> with tineworld.sync.connect() as t, t.open() as w:
...     print(w.call("files__list_directory", path=".").text)

The work is done by an event loop in a thread of its own. The functions may be called from several
threads at once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from . import client as _client
from . import local as _local
from . import world as _world
from ._opening import Opening
from ._places import Executed
from ._session import Spec
from ._sync_agents import Agents, iterate
from ._sync_agents import Run as Run
from ._thread import LoopThread
from .client import Options
from .errors import Invalid, WorldFailed
from .messages import Format, Message, MessageFormat
from .result import Result
from .rollouts import Group, Rollouts
from .trajectory import Start, Step
from .world import Timeouts

T = TypeVar("T")
Task = TypeVar("Task")
R = TypeVar("R")


def connect(url: str | None = None, token: str | None = None, **options: Unpack[Options]) -> Tine:
    """`tineworld.connect`, with the same arguments."""
    return _start(lambda: _client.connect(url, token, **options))


def local(
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    agents: str | Path | None = None,
    state: str | Path | None = None,
    binary: str | Path | None = None,
    **options: Unpack[Options],
) -> Tine:
    """`tineworld.local`, with the same arguments."""
    return _start(lambda: _local.local(config, agents=agents, state=state, binary=binary, **options))


def _start(opening: Callable[[], Opening[_client.Tine]]) -> Tine:
    thread = LoopThread("tineworld")

    async def make() -> _client.Tine:
        return await opening()

    try:
        return Tine(thread, thread.run(make()))
    except BaseException:
        thread.stop()
        raise


_NOT_PLAIN = "the {} of tineworld.sync must be a plain function, but it {}; write it without async, or run it with tineworld.connect"


def _plain(what: str, function: object) -> None:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):
        raise Invalid(_NOT_PLAIN.format(what, "is a coroutine function"))


async def _wait(opening: Opening[T]) -> T:
    return await opening


class Tine(Agents):
    """A connection to a gateway: `tineworld.Tine`, without `await`."""

    def __init__(self, thread: LoopThread, tine: _client.Tine) -> None:
        self._thread = thread
        self._tine = tine
        self.url = tine.url

    def __enter__(self) -> Tine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all worlds of this connection and the connection. It may be called twice."""
        if not self._thread.stopped:
            self._thread.run(self._tine.close())
            self._thread.stop()

    def open(
        self,
        *,
        servers: Sequence[str] | None = None,
        template: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: str | None = None,
        idle: str | None = None,
        eager: bool = False,
        members: Mapping[str, Any] | None = None,
        wait: str | None = None,
        timeouts: Timeouts = "drop",
    ) -> World:
        """Opens a world, which is closed by a block or by `close`."""
        return self.open_spec(Spec(servers, template, labels, ttl, idle, eager, members, wait), timeouts=timeouts)

    def open_spec(self, spec: Spec, *, timeouts: Timeouts = "drop") -> World:
        """Opens a world as `open` does, with the arguments in one object."""
        return self._world(self._run(_wait(self._tine.open_spec(spec, timeouts=timeouts))))

    def open_many(self, count: int, spec: Spec = Spec(), *, timeouts: Timeouts = "drop") -> list[World]:
        """Opens worlds, all alike, all or none."""
        return [self._world(world) for world in self._run(self._tine.open_many(count, spec, timeouts=timeouts))]

    def fork_many(self, worlds: Mapping[World, int]) -> list[list[World]]:
        """Forks several worlds, each so many times, all or none."""
        forks = self._run(self._tine.fork_many({world._world: count for world, count in worlds.items()}))
        return [[self._world(world) for world in of_one] for of_one in forks]

    def call_many(self, calls: Sequence[tuple[World, str, Mapping[str, Any]]]) -> list[Result | WorldFailed]:
        """Makes calls in many worlds; see `tineworld.Tine.call_many`."""
        return self._run(self._tine.call_many([(world._world, tool, arguments) for world, tool, arguments in calls]))

    def close_worlds(self, worlds: Iterable[World]) -> None:
        """Closes worlds."""
        self._run(self._tine.close_worlds([world._world for world in worlds]))

    def attach(self, session: str, *, timeouts: Timeouts = "drop") -> World:
        """A world that was opened elsewhere, by its id."""
        return self._world(self._run(self._tine.attach(session, timeouts=timeouts)))

    def run(
        self,
        groups: Iterable[Group[Task]],
        episode: Callable[[World, Task], R],
        *,
        setup: Callable[[World, Task], None] | None = None,
        concurrency: int = 64,
        retry_world_failures: int = 0,
        timeouts: Timeouts = "drop",
    ) -> Rollouts[Task, R]:
        """Plays an episode in each world of each group, each in a thread. `setup` is called with the
        world of each group that has none of its own, before it is forked. These are plain functions,
        which get a World without `await`."""
        todo = list(groups)
        _plain("episode", episode)
        for function in [setup, *(group.setup for group in todo)]:
            _plain("setup", function)
        with ThreadPoolExecutor(concurrency + 8, "tineworld-episode") as pool:

            async def call(what: str, function: Callable[[World, Task], T], world: _world.World, task: Task) -> T:
                made = await asyncio.get_running_loop().run_in_executor(pool, function, self._world(world), task)
                if inspect.isawaitable(made):
                    if inspect.iscoroutine(made):
                        made.close()
                    raise Invalid(_NOT_PLAIN.format(what, "returns an awaitable, so that nothing was played"))
                return made

            def prepared(group: Group[Task]) -> Group[Task]:
                own: Callable[[World, Task], Any] | None = group.setup or setup
                if own is None:
                    return group
                chosen = own
                return replace(group, setup=lambda world, task: call("setup", chosen, world, task))

            async def play(world: _world.World, task: Task) -> R:
                return await call("episode", episode, world, task)

            return self._run(
                self._tine.run(
                    [prepared(g) for g in todo], play, concurrency=concurrency, retry_world_failures=retry_world_failures, timeouts=timeouts
                )
            )

    def sessions(self, *, labels: Mapping[str, str] | None = None, closed: bool = False) -> list[dict[str, Any]]:
        """The sessions that the caller may see, newest first."""
        return self._run(self._tine.sessions(labels=labels, closed=closed))

    def trajectory(self, session: str) -> list[Step]:
        """The trajectory of a session, open or closed."""
        return self._run(self._tine.trajectory(session))

    def trajectories(self, *, labels: Mapping[str, str] | None = None, closed: bool = True, kept: bool = False) -> Iterator[Step]:
        """The steps of all sessions with these labels; see `tineworld.Tine.trajectories`."""
        return iterate(self._run, self._tine.trajectories(labels=labels, closed=closed, kept=kept))

    def delete_snapshot(self, snapshot: str) -> None:
        """Deletes a snapshot, by name or id."""
        self._run(self._tine.delete_snapshot(snapshot))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)

    def _world(self, world: _world.World) -> World:
        return World(self, world)


class World:
    """A world: `tineworld.World`, without `await`."""

    def __init__(self, tine: Tine, world: _world.World) -> None:
        self._run = tine._run
        self._tine = tine
        self._world = world
        self.id = world.id
        self.url = world.url
        self.token = world.token
        self.labels = world.labels

    @property
    def failed(self) -> WorldFailed | None:
        """The first failure of this world; None as long as there was none."""
        return self._world.failed

    @property
    def closed(self) -> bool:
        return self._world.closed

    def __repr__(self) -> str:
        return repr(self._world)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._world.__aexit__())

    def close(self) -> None:
        self._run(self._world.close())

    def call(self, tool: str, /, *, args: Mapping[str, Any] | None = None, timeout: float | None = None, **arguments: Any) -> Result:
        """Calls a tool; see `tineworld.World.call`."""
        return self._run(self._world.call(tool, args=args, timeout=timeout, **arguments))

    def act(self, message: Any, *, timeout: float | None = None) -> list[Message]:
        """Makes the tool calls of an assistant's message, and returns the messages to append."""
        return self._run(self._world.act(message, timeout=timeout))

    def tools(self, format: Format = "openai") -> list[dict[str, Any]]:
        """The tools of this world, as a model API takes them."""
        return self._run(self._world.tools(format))

    def fork(self, count: int = 1, *, labels: Mapping[str, str] | None = None, ttl: str | None = None, wait: str | None = None) -> Worlds:
        """Worlds that begin with the state of this one, all or none: a list, and a block that closes
        them."""
        worlds = self._run(_wait(self._world.fork(count, labels=labels, ttl=ttl, wait=wait)))
        return Worlds(World(self._tine, world) for world in worlds)

    def snapshot(self, name: str | None = None, *, labels: Mapping[str, str] | None = None) -> str:
        """Freezes this world and returns the snapshot's id."""
        return self._run(self._world.snapshot(name, labels=labels))

    def rewind(self, snapshot: str | None = None) -> None:
        """Brings this world back to one of its snapshots, by default the newest."""
        self._run(self._world.rewind(snapshot))

    def info(self) -> dict[str, Any]:
        """What the gateway knows of this world."""
        return self._run(self._world.info())

    def check(self) -> None:
        """Raises if this world has failed."""
        self._run(self._world.check())

    def annotate(
        self,
        *,
        reward: float | None = None,
        text: str | None = None,
        token_ids: Sequence[int] | None = None,
        logprobs: Sequence[float | None] | None = None,
        data: Any = None,
        call: str | Result | None = None,
    ) -> str:
        """Writes what a trainer knows into the trajectory; see `tineworld.World.annotate`."""
        return self._run(self._world.annotate(reward=reward, text=text, token_ids=token_ids, logprobs=logprobs, data=data, call=call))

    def trajectory(self) -> list[Step]:
        """Every step from the first ancestor to this world."""
        return self._run(self._world.trajectory())

    def to_messages(self, format: MessageFormat = "openai", *, start: Start = "setup") -> list[Message]:
        """The trajectory as a conversation; see `tineworld.World.to_messages`."""
        return self._run(self._world.to_messages(format, start=start))

    def exec(
        self,
        server: str,
        argv: Sequence[str],
        *,
        stdin: str | bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        max_output: int = 64 << 20,
    ) -> Executed:
        """Runs a program beside a server; see `tineworld.World.exec`."""
        return self._run(self._world.exec(server, argv, stdin=stdin, cwd=cwd, env=env, user=user, timeout=timeout, max_output=max_output))

    def files(self, path: str = "workspace", *, recursive: bool = False, snapshot: str | None = None) -> list[dict[str, Any]]:
        """The files at a path."""
        return self._run(self._world.files(path, recursive=recursive, snapshot=snapshot))

    def diff(self, snapshot: str) -> dict[str, Any]:
        """What changed since a snapshot."""
        return self._run(self._world.diff(snapshot))

    def put(self, path: str, content: str | bytes | Path) -> None:
        """Writes a file, or with the path of a local folder all that is in it."""
        self._run(self._world.put(path, content))

    def read(self, path: str, *, snapshot: str | None = None) -> tuple[bytes, bool]:
        """A file, or a folder's tar file, and whether it is the latter."""
        return self._run(self._world.read(path, snapshot=snapshot))

    @overload
    def get(self, path: str, to: None = None, *, folder: bool = False, snapshot: str | None = None) -> bytes: ...
    @overload
    def get(self, path: str, to: Path, *, snapshot: str | None = None) -> None: ...
    def get(self, path: str, to: Path | None = None, *, folder: bool = False, snapshot: str | None = None) -> bytes | None:
        """Reads a file, or with `folder` a folder as a tar file; with `to` it is written there."""
        if to is not None:
            return self._run(self._world.get(path, to, snapshot=snapshot))
        return self._run(self._world.get(path, folder=folder, snapshot=snapshot))


class Worlds(list[World]):
    """The forks of a world. As a block it closes them; otherwise `close` of each does, or the end of
    the connection."""

    def __enter__(self) -> Worlds:
        return self

    def __exit__(self, *_: object) -> None:
        if self:
            self[0]._run(self[0]._tine._tine.leave_worlds([world._world for world in self]))
