"""A connection to a gateway."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import aiohttp

from . import _address, _features, rollouts, trajectory
from ._agents import Agents
from ._lease import Lease
from ._many import Many
from ._opening import Cleanups, Opening
from ._session import Spec
from ._wire import LINES, Ask, Wire, new_key
from .errors import BrokenOff, Invalid, TineError
from .rollouts import Group, Rollouts
from .trajectory import Step
from .world import Timeouts, World

T = TypeVar("T")
Task = TypeVar("Task")
R = TypeVar("R")
log = logging.getLogger("tineworld")


class Options(TypedDict, total=False):
    """The options of `connect`."""

    lease: float | None
    connections: int
    patience: float
    max_body: int


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    lease: float | None = 60,
    connections: int = 256,
    patience: float = 30,
    max_body: int = 128 << 20,
) -> Opening[Tine]:
    """Connects to a gateway. Await it, or use a block, at whose end all worlds are closed.

    `url` is TINE_URL or this machine's gateway by default, `token` TINE_TOKEN. `lease` is how many
    seconds the gateway keeps worlds of a program that has died (5 to 86,400; None for no lease).
    `connections` are open at once at most. `patience` is how many seconds a request waits for a
    gateway that is away or refuses for now. `max_body` bounds the bytes of one answer.

    >>> async with tineworld.connect("http://127.0.0.1:8463") as t: ...
    """
    where = _address.address(url, token)
    if lease is not None and not 5 <= lease <= 86_400:
        raise Invalid(f"lease must be 5 to 86,400 seconds or None, not {lease}")

    async def make() -> Tine:
        wire = Wire(where, connections=connections, patience=patience, max_body=max_body)
        try:
            # A wrong address or token is told at once, and not after patience.
            ask = Ask("GET", ("v1", "openapi.json"))
            document = await wire.exchange(ask, lambda answer: wire.read_json(ask, answer), patience=0)
            return Tine(wire, _features.Features(document, where.base), lease)
        except BaseException:
            await wire.close()
            raise

    return Opening(make, Tine.close)


class Tine(Many, Agents):
    """A connection to a gateway, made by `connect` or `local`. It belongs to the event loop that it
    was made in; its methods may run at once."""

    def __init__(self, wire: Wire, features: _features.Features, lease: float | None) -> None:
        self.wire = wire
        self.features = features
        self.url = wire.address.base
        self._cleanups = Cleanups()
        self._worlds: dict[str, World] = {}
        self._ttl = lease
        self._lease: Lease | None = None
        self._leasing: asyncio.Task[None] | None = None
        self._at_end: list[Callable[[], Awaitable[None]]] = []
        self._closed = False

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
    ) -> Opening[World]:
        """Opens a world. Await it, or use a block that closes it.

        `servers` are those of the config that it has, by default those that the template was made
        with, or all. `template` is a snapshot, by name or id. Times are written like 90s or 2h. `members` says more about some servers: how
        many instances, which template. With `eager` all servers start now. With
        `timeouts="score"` a call that takes too long is a result and does not raise.

        >>> async with t.open(template="base", labels={"run": "7"}) as w: ...
        """
        return self.open_spec(Spec(servers, template, labels, ttl, idle, eager, members, wait), timeouts=timeouts)

    def open_spec(self, spec: Spec, *, timeouts: Timeouts = "drop") -> Opening[World]:
        """Opens a world as `open` does, with the arguments in one object."""
        body = spec.body()

        async def make() -> World:
            return await self.leased(body, lambda: self.create(("v1", "sessions"), body, lambda made: self.adopt(made, timeouts), World.close))

        return Opening(make, lambda world: self.leave_worlds([world]))

    async def attach(self, session: str, *, timeouts: Timeouts = "drop") -> World:
        """A world that was opened elsewhere, by its id. The end of this connection does not close it."""
        return World(self, await self.wire.json("GET", "v1", "sessions", session), timeouts)

    async def run(
        self,
        groups: Iterable[Group[Task]],
        episode: Callable[[World, Task], Awaitable[R]],
        *,
        concurrency: int = 64,
        retry_world_failures: int = 0,
        timeouts: Timeouts = "drop",
    ) -> Rollouts[Task, R]:
        """Plays an episode in each world of each group; see `tineworld.rollouts`."""
        return await rollouts.run(
            self, groups, episode, concurrency=concurrency, retry_world_failures=retry_world_failures, timeouts=timeouts
        )

    async def sessions(self, *, labels: Mapping[str, str] | None = None, closed: bool = False) -> list[dict[str, Any]]:
        """The sessions that the caller may see, newest first."""
        query: dict[str, Any] = {"limit": "1000", "label": [f"{k}={v}" for k, v in (labels or {}).items()]}
        if closed:
            query["closed"] = "true"
        out: list[dict[str, Any]] = []
        while True:
            page = await self.wire.json("GET", "v1", "sessions", query=query)
            out += page["sessions"]
            if not page.get("next"):
                return out
            query["after"] = page["next"]

    async def delete_snapshot(self, snapshot: str) -> None:
        """Deletes a snapshot, by name or id."""
        await self.wire.json("DELETE", "v1", "snapshots", snapshot)

    async def trajectory(self, session: str) -> list[Step]:
        """The trajectory of a session, open or closed."""
        ask = Ask("GET", ("v1", "sessions", session, "trajectory"), accept=LINES)

        async def read(answer: aiohttp.ClientResponse) -> list[Step]:
            return [_step(line) async for line in self.wire.read_lines(ask, answer)]

        return await self.wire.exchange(ask, read)

    async def trajectories(
        self, *, labels: Mapping[str, str] | None = None, closed: bool = True, kept: bool = False
    ) -> AsyncGenerator[Step, None]:
        """The steps of all sessions with these labels, one session after another; `of` in each step
        is the session whose trajectory it belongs to. With `kept` only those of the rollouts that
        `run` kept: not the worlds that they were forked from, and no attempt that failed."""
        if not kept:
            async for step in self._trajectories(labels, closed):
                yield step
            return
        one: list[Step] = []
        async for step in self._trajectories(labels, closed):
            if one and one[0]["of"] != step["of"]:
                for step_of_one in one if trajectory.is_kept(one) else ():
                    yield step_of_one
                one = []
            one.append(step)
        for step in one if trajectory.is_kept(one) else ():
            yield step

    async def _trajectories(self, labels: Mapping[str, str] | None, closed: bool) -> AsyncGenerator[Step, None]:
        self.features.need("GET", "/v1/trajectories")
        query: dict[str, Any] = {"label": [f"{k}={v}" for k, v in (labels or {}).items()]}
        if closed:
            query["closed"] = "true"
        async with self.wire.lines(Ask("GET", ("v1", "trajectories"), query=query, accept=LINES)) as lines:
            async for line in lines:
                if line.get("type") == "end":
                    return
                yield _step(line)
        raise BrokenOff(f"the trajectories of {self.url} broke off before their end; ask again")

    async def create(self, path: Sequence[str], body: Any, read: Callable[[Any], T], undo: Callable[[T], Awaitable[None]]) -> T:
        """Makes something by a request with an idempotency key. If the caller is cancelled it is
        undone."""

        async def make() -> T:
            return read(await self.wire.json("POST", *path, body=body, key=new_key()))

        return await self._cleanups.make(make(), undo)

    def adopt(self, session: Mapping[str, Any], timeouts: Timeouts, names: Mapping[str, str] | None = None) -> World:
        """A world that was made here, and ends with this connection at the latest."""
        world = World(self, session, timeouts, names)
        self._worlds[world.id] = world
        return world

    async def leased(self, body: dict[str, Any], make: Callable[[], Awaitable[T]]) -> T:
        """Makes sessions under the lease of this connection: another one, if the gateway has ended it."""
        while True:
            await self._lease_into(body)
            try:
                return await make()
            except Invalid as error:
                if self._lease is None or self._lease.id not in error.message:
                    raise
                self._lease.lost = True

    async def _lease_into(self, body: dict[str, Any]) -> None:
        if self._ttl is None:
            return
        if not self.features.has("POST", "/v1/leases"):
            log.warning("the gateway at %s has no leases: worlds of a program that dies stay open until sessions.idle of its config", self.url)
            self._ttl = None
            return
        while self._lease is None or self._lease.lost:
            if self._leasing is None:
                self._leasing = self._cleanups.start(self._take_lease(self._ttl))
            await asyncio.shield(self._leasing)
        body["lease"] = self._lease.id

    async def _take_lease(self, ttl: float) -> None:
        try:
            if self._lease is not None:
                self._lease.stop()
            lease = self._lease = await Lease.take(self.wire, ttl, new_key(), None)
            # A connection that nobody closes, nor holds any more, renews nothing.
            weakref.finalize(self, lease.stop)
        finally:
            self._leasing = None

    async def leave_worlds(self, worlds: Iterable[World]) -> None:
        """Closes worlds at the end of a block. A world that can't be closed is told to the log: what
        was played in it counts, and its lease ends it."""
        try:
            await self.close_worlds(worlds)
        except TineError as error:
            log.warning("a world was not closed: %s", error)

    def at_end(self, end: Callable[[], Awaitable[None]]) -> None:
        """Has something done when this connection is closed."""
        self._at_end.append(end)

    async def close(self) -> None:
        """Closes all worlds of this connection and the connection. It may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._cleanups.finish(self._end())
        finally:
            for end in self._at_end:
                await end()

    async def _end(self) -> None:
        try:
            await self.leave_worlds(list(self._worlds.values()))
            await self._cleanups.wait(seconds=10)
            if self._lease is not None:
                self._lease.stop()
                await self.wire.json("DELETE", "v1", "leases", self._lease.id)
        except TineError as error:
            log.warning("closing the connection to %s: %s", self.url, error)
        finally:
            await self.wire.close()


def _step(line: dict[str, Any]) -> Step:
    step: Step = line  # type: ignore[assignment]  # as the gateway wrote it
    return step
