"""Operations on many worlds, each a batch: one request for thousands of worlds."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from . import _batch, messages, result
from ._features import Features
from ._opening import Cleanups
from ._session import Spec
from ._wire import Wire
from .errors import Invalid, TineError, WorldFailed

if TYPE_CHECKING:
    from .result import Result
    from .world import Timeouts, World

T = TypeVar("T")
_AT_ONCE = 32  # closes of single worlds, where the gateway has no batches


class Many(ABC):
    """The part of a connection that is about many worlds."""

    wire: Wire
    features: Features
    _cleanups: Cleanups
    _worlds: dict[str, World]

    @abstractmethod
    def adopt(self, session: Mapping[str, Any], timeouts: Timeouts, names: Mapping[str, str] | None = None) -> World: ...

    @abstractmethod
    async def leased(self, body: dict[str, Any], make: Callable[[], Awaitable[T]]) -> T: ...

    @overload
    async def open_many(self, count: int, spec: Spec = ..., *, atomic: Literal[True] = True, timeouts: Timeouts = "drop") -> list[World]: ...

    @overload
    async def open_many(self, count: int, spec: Spec = ..., *, atomic: Literal[False], timeouts: Timeouts = "drop") -> list[World | TineError]: ...

    async def open_many(self, count: int, spec: Spec = Spec(), *, atomic: bool = True, timeouts: Timeouts = "drop") -> Any:
        """Opens worlds, all alike: all or none, or with `atomic=False` each by itself, with the
        error in the place of a world that could not be opened.

        >>> worlds = await t.open_many(1000, tineworld.Spec(template="base"))
        """
        body = spec.body()

        def read(item: int, line: Mapping[str, Any]) -> World:
            return self.adopt(line["opened"], timeouts)

        return await self.leased(body, lambda: self._make([{"open": body}] * count, atomic, read, lambda world: [world]))

    @overload
    async def fork_many(self, worlds: Mapping[World, int], *, atomic: Literal[True] = True) -> list[list[World]]: ...

    @overload
    async def fork_many(self, worlds: Mapping[World, int], *, atomic: Literal[False]) -> list[list[World] | TineError]: ...

    async def fork_many(self, worlds: Mapping[World, int], *, atomic: bool = True) -> Any:
        """Forks several worlds, each so many times; all or none, as `open_many`."""
        parents = list(worlds)
        for parent in parents:
            parent._usable()

        def read(item: int, line: Mapping[str, Any]) -> list[World]:
            return parents[item]._adopt(line["forks"])

        items = [{"fork": {"session": parent.id, "count": worlds[parent]}} for parent in parents]
        return await self._make(items, atomic, read, lambda forks: forks)

    async def call_many(self, calls: Sequence[tuple[World, str, Mapping[str, Any]]]) -> list[Result | WorldFailed]:
        """Makes calls in many worlds, each given as world, tool and arguments. Where a world failed,
        the failure stands in the place of the result."""
        for world, _, _ in calls:
            world._usable()
        unfit = {i: why for i, (_, tool, arguments) in enumerate(calls) if (why := messages.unfit(tool, arguments))}
        items = [{"call": world._request(tool, arguments)} for i, (world, tool, arguments) in enumerate(calls) if i not in unfit]
        made = iter(await _batch.send(self.wire, self.features, items))
        outcomes = [Invalid(unfit[i]) if i in unfit else next(made) for i in range(len(calls))]
        out: list[Result | WorldFailed] = []
        for (world, tool, _), outcome in zip(calls, outcomes, strict=True):
            try:
                if isinstance(outcome, TineError):
                    out.append(world._sound(world._told(tool, outcome)))
                else:
                    out.append(world._sound(result.from_wire(tool, outcome.get("result"), str(outcome.get("call") or ""))))
            except WorldFailed as error:
                out.append(world._fail(error))
        return out

    async def close_worlds(self, worlds: Iterable[World]) -> None:
        """Closes worlds. The work goes on if the caller is cancelled."""
        open_ones = [world for world in worlds if not world.closed]
        for world in open_ones:
            world.closed = True
        if open_ones:
            await self._cleanups.finish(self._close([world.id for world in open_ones]))

    async def _close(self, ids: list[str]) -> None:
        try:
            if len(ids) > 1 and self.features.has("POST", _batch.ROUTE):
                outcomes = await _batch.send(self.wire, self.features, [{"close": {"session": id}} for id in ids])
                failures = [o for o in outcomes if isinstance(o, TineError)]
            else:
                failures = await self._close_each(ids)
        finally:
            for id in ids:
                self._worlds.pop(id, None)
        for failure in failures:
            if not (isinstance(failure, Invalid) and failure.status == 404):  # it is gone
                raise failure

    async def _close_each(self, ids: list[str]) -> list[TineError]:
        room = asyncio.Semaphore(_AT_ONCE)

        async def close(id: str) -> TineError | None:
            async with room:
                try:
                    await self.wire.json("DELETE", "v1", "sessions", id)
                except TineError as error:
                    return error
                return None

        return [error for error in await asyncio.gather(*map(close, ids)) if error is not None]

    async def _make(
        self, items: Sequence[Mapping[str, Any]], atomic: bool, read: Callable[[int, Mapping[str, Any]], T], worlds: Callable[[T], list[World]]
    ) -> list[T | TineError]:
        async def make() -> list[T | TineError]:
            outcomes = await _batch.send(self.wire, self.features, items, atomic=atomic)
            return [o if isinstance(o, TineError) else read(i, o) for i, o in enumerate(outcomes)]

        async def undo(made: list[T | TineError]) -> None:
            await self.close_worlds([w for one in made if not isinstance(one, TineError) for w in worlds(one)])

        made = await self._cleanups.make(make(), undo)
        if atomic and (failed := [one for one in made if isinstance(one, TineError)]):
            raise failed[0]
        return made
