"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from .errors import TineError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers of any thread, also of one whose own loop is running. The thread
    ends with `stop`, or with the program."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()  # set by each stop(), and once is as good as twice: loop.stop() would end the clean-up, too
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._ended.wait())
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if os.getpid() != self._pid or self._loop.is_closed():
            work.close()
            where = "in a process that was forked from the one that connected" if os.getpid() != self._pid else "after it was closed"
            raise TineError(f"a connection to a gateway is used {where}; connect() again there")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine. Ctrl-C cancels it; what it was making is cleaned up in the background."""
        if threading.current_thread() is self._thread:
            work.close()
            raise TineError("the synchronous functions can't be used in a coroutine of this package; use the asynchronous ones there")
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    @property
    def stopped(self) -> bool:
        return self._loop.is_closed()

    def stop(self) -> None:
        """Ends the thread. It may be called twice, and from any thread."""
        if self._loop.is_closed() or os.getpid() != self._pid:
            return
        try:
            self._loop.call_soon_threadsafe(self._ended.set)
        except RuntimeError:  # closed in between
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
