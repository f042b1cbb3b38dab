"""Groups of rollouts: each is kept, or dropped with the kind of its world's failure.

A group is one starting state that several rollouts share: its world is opened and set up once,
then forked. An episode is played in each fork. What it returns is kept; an episode whose world
failed is played again in another fork, as often as `retry_world_failures` says, and is dropped
after that, also if the episode caught the failure or did not notice it: the gateway is asked after
each episode. Any other exception of an episode ends the run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import trajectory
from ._features import MissingFeature
from ._session import Spec
from .errors import Invalid, Kind, Refused, WorldFailed

if TYPE_CHECKING:
    from .client import Tine
    from .world import Timeouts, World

log = logging.getLogger("tineworld")
Task = TypeVar("Task")
R = TypeVar("R")


@dataclass(frozen=True)
class Group(Generic[Task]):
    """Rollouts that begin with the same state.

    >>> Group({"goal": 21}, size=8, template="base", setup=write_the_task)
    """

    #: What the episodes are about; each gets it.
    task: Task
    #: How many rollouts there are.
    size: int = 8
    servers: Sequence[str] | None = None
    template: str | None = None
    labels: Mapping[str, str] | None = None
    #: Called with the world before it is forked: a coroutine function, or with `tineworld.sync` a
    #: plain one, which gets the synchronous World. A call in it that gives an error result raises
    #: SetupFailed, which ends the run unless the setup catches it.
    setup: Callable[[Any, Task], Awaitable[object] | None] | None = None


@dataclass(frozen=True)
class Kept(Generic[Task, R]):
    """A rollout that counts."""

    task: Task
    group: int
    index: int
    #: What the episode returned.
    value: R
    #: The session that it was played in; `Tine.trajectory` reads it, though it is closed.
    session: str
    attempts: int


@dataclass(frozen=True)
class Dropped(Generic[Task]):
    """A rollout whose world failed."""

    task: Task
    group: int
    index: int
    error: WorldFailed
    #: Empty where no world could be opened.
    session: str
    attempts: int

    @property
    def kind(self) -> Kind:
        return self.error.kind


@dataclass(frozen=True)
class Rollouts(Generic[Task, R]):
    """What came of a run, in the order of the groups."""

    kept: list[Kept[Task, R]]
    dropped: list[Dropped[Task]]

    def by_group(self) -> dict[int, list[Kept[Task, R]]]:
        """The kept rollouts of each group, by the group's position."""
        out: dict[int, list[Kept[Task, R]]] = {}
        for one in self.kept:
            out.setdefault(one.group, []).append(one)
        return out


async def run(
    tine: Tine,
    groups: Iterable[Group[Task]],
    episode: Callable[[World, Task], Awaitable[R]],
    *,
    concurrency: int = 64,
    retry_world_failures: int = 0,
    timeouts: Timeouts = "drop",
) -> Rollouts[Task, R]:
    """Plays `episode(world, task)` in each world of each group, `concurrency` at once.

    With `timeouts="score"` a call that takes too long is a result that the episode sees, and the
    rollout goes on; with "drop" it is a failure of the world.
    """
    todo = list(groups)
    if concurrency < 1 or retry_world_failures < 0 or any(group.size < 1 for group in todo):
        raise Invalid("concurrency and the size of a group must be at least 1, and retry_world_failures at least 0")
    if timeouts not in ("drop", "score"):
        raise Invalid(f"timeouts is drop or score, not {timeouts!r}")
    seats = asyncio.Semaphore(concurrency)
    # As many groups are open as it takes to use all seats, and one that is being set up.
    ahead = asyncio.Semaphore(1 + math.ceil(concurrency / min((group.size for group in todo), default=1)))
    players = [_Player(tine, group, at, episode, seats, retry_world_failures + 1, timeouts) for at, group in enumerate(todo)]

    async def play(player: _Player[Task, R]) -> None:
        async with ahead:
            await player.play()

    try:
        async with asyncio.TaskGroup() as tasks:
            for player in players:
                tasks.create_task(play(player))
    except BaseExceptionGroup as failed:
        raise _first(failed) from None
    return Rollouts(
        sorted((one for p in players for one in p.kept), key=lambda one: (one.group, one.index)),
        sorted((one for p in players for one in p.dropped), key=lambda one: (one.group, one.index)),
    )


def _first(error: BaseException) -> BaseException:
    """The first exception in a group, with its own traceback."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Player(Generic[Task, R]):
    """Plays the rollouts of one group."""

    def __init__(
        self,
        tine: Tine,
        group: Group[Task],
        at: int,
        episode: Callable[[World, Task], Awaitable[R]],
        seats: asyncio.Semaphore,
        attempts: int,
        timeouts: Timeouts,
    ) -> None:
        self.kept: list[Kept[Task, R]] = []
        self.dropped: list[Dropped[Task]] = []
        self._tine, self._group, self._at, self._episode = tine, group, at, episode
        self._seats, self._attempts, self._timeouts = seats, attempts, timeouts

    async def play(self) -> None:
        left = dict.fromkeys(range(self._group.size), 0)  # attempts of the rollouts that have no end yet
        root: World | None = None
        try:
            while left:
                try:
                    root = await self._root(root)
                    forks = await root.fork(len(left))
                except WorldFailed as error:
                    self._missed(left, "", error, list(left))
                    await self._leave(root)
                    root = None
                    continue
                try:
                    async with asyncio.TaskGroup() as tasks:
                        for index, world in zip(list(left), forks, strict=True):
                            tasks.create_task(self._one(left, index, world))
                finally:
                    await self._tine.leave_worlds(forks)  # a task that is cancelled before it begins closes nothing
        finally:
            await self._leave(root)

    async def _root(self, root: World | None) -> World:
        """The world that all rollouts of the group are forked from: the one there is, while it is whole."""
        if root is not None:
            try:
                await root.check()
                return root
            except WorldFailed:
                await self._leave(root)
        group = self._group
        root = await self._tine.open_spec(Spec(group.servers, group.template, group.labels))
        try:
            if group.setup is not None:
                await self._set_up(root, group.setup)
                await self._mark(root, trajectory.SETUP, "to_messages() of its rollouts has the calls of their setup, too")
        except BaseException:
            await self._leave(root)
            raise
        return root

    async def _set_up(self, root: World, setup: Callable[[Any, Task], Awaitable[object] | None]) -> None:
        root.strict = True
        made = setup(root, self._group.task)
        if not inspect.isawaitable(made):
            raise Invalid("the setup of a group is not a coroutine function; write `async def`, or use tineworld.sync")
        await made
        root.strict = False
        await root.check()

    async def _mark(self, world: World, mark: str, without: str) -> None:
        """Notes in the trajectory where the rollouts begin, for `to_messages`, or that one is kept."""
        try:
            await world.annotate(data={mark: {"group": self._at}})
        except (MissingFeature, Refused) as error:
            log.warning("world %s is not marked, so that %s: %s", world.id, without, error)

    async def _one(self, left: dict[int, int], index: int, world: World) -> None:
        world.timeouts = self._timeouts
        try:
            async with world, self._seats:
                value = await self._episode(world, self._group.task)
                await world.check()
                await self._mark(world, trajectory.KEPT, "trajectories(kept=True) lacks it")
        except WorldFailed as error:
            self._missed(left, world.id, error, [index])
            return
        attempts = left.pop(index) + 1
        self.kept.append(Kept(self._group.task, self._at, index, value, world.id, attempts))

    def _missed(self, left: dict[int, int], session: str, error: WorldFailed, indices: Sequence[int]) -> None:
        for index in indices:
            left[index] += 1
            if left[index] >= self._attempts:
                self.dropped.append(Dropped(self._group.task, self._at, index, error, session, left.pop(index)))

    async def _leave(self, root: World | None) -> None:
        if root is not None:
            await self._tine.leave_worlds([root])
