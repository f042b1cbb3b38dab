"""Things that are made by a request: they can be awaited, or used as a block that ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from .errors import TineError

T = TypeVar("T")
log = logging.getLogger("tineworld")


class Opening(Generic[T]):
    """`await opening` gives the thing; `async with opening as thing` also ends it with the block."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], end: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._end = end
        self._made: list[T] = []

    def __await__(self) -> Generator[Any, None, T]:
        return self._make().__await__()

    async def __aenter__(self) -> T:
        made = await self._make()
        self._made.append(made)
        return made

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self._end(self._made.pop())


class Cleanups:
    """Work that goes on when its caller is cancelled, so that nothing is left behind."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def make(self, making: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]]) -> T:
        """Makes something. If the caller is cancelled meanwhile, it is undone once it is made."""
        task = asyncio.ensure_future(making)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self.start(self._undo(task, undo))
            raise

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for work that goes on if the caller is cancelled."""
        task = self.start(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_report)
            raise

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self, seconds: float) -> None:
        """Waits for all of it, and cancels what takes longer."""
        while running := {t for t in self._running if t is not asyncio.current_task()}:
            _, late = await asyncio.wait(running, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    @staticmethod
    async def _undo(task: asyncio.Future[T], undo: Callable[[T], Awaitable[None]]) -> None:
        try:
            await undo(await task)
        except TineError as error:
            log.warning("cleaning up after a cancellation: %s", error)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("cleaning up after a cancellation: %s", error)
