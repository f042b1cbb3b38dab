"""One connection to a server, from its handshake to its end."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import anyio

from . import _versions
from ._stderr import Stderr
from .params import MCPStdioParams, Params

T = TypeVar("T")

# What the package mcp says where a server does not know the session any more, which carried nothing
# out; where the connection ended; and for other answers that are no messages.
_UNKNOWN = "Session terminated"
_CLOSED = "Connection closed"
_REFUSED = ("Server returned an error response", "Not Found")


class Broken(ConnectionError):
    """The connection is of no use any more. `unsent` is whether the request surely had no effect."""

    def __init__(self, message: str, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent


class Link:
    """The transport and the session live in a task of their own, in which they are opened and closed:
    the package mcp demands that both happen in one task."""

    def __init__(self, params: Params, changed: Callable[[], None]) -> None:
        self.params = params
        self.session: Any = None
        self._changed = changed
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._status = ""
        self._unknown = {_UNKNOWN}
        self._stderr: Stderr | None = None
        self._process: Any = None

    @property
    def over(self) -> bool:
        return self._ended.is_set()

    @property
    def gone(self) -> bool:
        """Whether nothing of it is left, such as a program that was told to end."""
        return self._task is None or self._task.done()

    async def open(self, timeout: float) -> None:
        """Connects. Where that fails `close` waits for the end of what was begun."""
        if isinstance(self.params, MCPStdioParams):
            _look_for(self.params)
            self._stderr = Stderr()
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self._leave()
            raise TimeoutError(f"{self.params.describe()} did not answer the handshake within {timeout:g} s{self.told_so_far()}") from None
        except BaseException:
            self._leave()
            raise
        if not ready.done():
            await self.close()
            raise self._why()

    async def _live(self, ready: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                file = self._stderr.file if self._stderr else None
                read, write = await stack.enter_async_context(_versions.streams(self.params, file, self._hear_status, self._hear_process))
                relay, heard = anyio.create_memory_object_stream[Any](0)
                stack.callback(heard.close)
                stack.callback(relay.close)
                group = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(group.cancel_scope.cancel)
                group.start_soon(self._watch, read, relay)
                session = await stack.enter_async_context(_versions.ClientSession(heard, write, message_handler=self._hear))
                await session.initialize()
                self.session = session
                ready.set_result(None)
                await self._stop.wait()
        finally:
            self._ended.set()
            if self._stderr:
                self._stderr.close()

    async def _watch(self, read: Any, relay: Any) -> None:
        """Passes messages on, and learns of their end, which a session keeps to itself."""
        async with relay:
            try:
                async for message in read:
                    await relay.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the session is closed
        self._ended.set()

    async def _hear(self, message: Any) -> None:
        if _versions.is_list_change(message):
            self._changed()

    def _hear_process(self, process: Any) -> None:
        self._process = process

    def _hear_status(self, status: str, unknown: str) -> None:
        self._status = status
        if unknown:
            self._unknown.add(unknown)

    async def ask(self, what: str, work: Callable[[Any], Awaitable[T]], timeout: float) -> T:
        """Waits for an answer, for the end of the connection, or for the time to be over."""
        self._status = ""
        asking = asyncio.ensure_future(work(self.session))
        ending = asyncio.create_task(self._ended.wait())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    # The end and a last answer may come together.
                    await asyncio.wait({asking}, timeout=0.1)
        except TimeoutError:
            raise TimeoutError(f"{what} did not answer within {timeout:g} s") from None
        finally:
            ending.cancel()
            done = asking.done()
            if not done:
                asking.cancel()
        if not done:
            raise self._broken(what)
        try:
            return asking.result()
        except _versions.ProtocolError as error:
            raise self._refusal(what, error) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise Broken(f"{what}: the connection has ended{self._told()}", unsent=True) from error

    def _refusal(self, what: str, error: Any) -> Exception:
        message = error.error.message
        if message in self._unknown:
            return Broken(f"{what}: the server does not know this session any more", unsent=True)
        if message == _CLOSED or self.over:
            return self._broken(what)
        if message in _REFUSED and self._status:
            return ConnectionError(f"{what}: {self.params.describe()} answered {self._status}{self._mend()}")
        return RuntimeError(f"{what} failed: {message}")

    def _broken(self, what: str) -> Broken:
        cause = _first(self._task.exception()) if self._task and self._task.done() and not self._task.cancelled() else None
        why = self._told() or (f": it answered {self._status}{self._mend()}" if self._status else f": {cause}" if cause else "")
        return Broken(f"{what}: the connection broke off before the answer; it may have been carried out{why}")

    def _mend(self) -> str:
        if not self._status.startswith(("401", "403")):
            return ""
        return "; check headers, auth, or MCP_TOKEN, which is only sent over https or to this machine"

    def _leave(self) -> None:
        self._stop.set()
        if self._task is not None and self.session is None and not self._task.cancelling():
            self._task.cancel()  # in the middle of the handshake

    async def close(self) -> None:
        """Ends the session and the transport. It may be called twice."""
        self._leave()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=10)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=10)
        if not self._task.cancelled() and self._task.done():
            self._task.exception()  # it was seen

    def _told(self) -> str:
        """The exit code of a program that has ended, and what it wrote to its standard error before."""
        code = getattr(self._process, "returncode", None)
        ended = f"exit code {code}" if code is not None and code >= 0 else ""
        text = self._stderr.tail() if self._stderr and self.over else ""
        return "".join(f": {part}" for part in (ended, text) if part)

    def told_so_far(self) -> str:
        text = self._stderr.tail(wait=0) if self._stderr else ""
        return f": {text}" if text else ""

    def _why(self) -> Exception:
        """Why the handshake failed."""
        assert self._task is not None
        name = self.params.describe()
        cause = None if self._task.cancelled() else _first(self._task.exception())
        if isinstance(self.params, MCPStdioParams):
            if isinstance(cause, OSError):
                return type(cause)(f"{name} can't be started: {cause}")
            return ConnectionError(f"{name} was started and did not speak MCP{self._told() or f': {cause}'}")
        if self._status:
            return ConnectionError(f"{name} answered {self._status}{self._mend()}")
        return ConnectionError(f"{name} did not answer: {cause or type(cause).__name__}")


def _first(error: BaseException | None) -> BaseException | None:
    """The first cause of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _look_for(params: MCPStdioParams) -> None:
    if params.cwd is not None and not os.path.isdir(params.cwd):
        raise FileNotFoundError(f'the folder "{params.cwd}" for {params.describe()} is not there; mend cwd')
    path = (params.env or {}).get("PATH", os.environ.get("PATH"))
    found = shutil.which(params.command, path=path)
    if found is None and params.cwd is not None:
        found = shutil.which(os.path.join(params.cwd, params.command), path=path)
    if found is None:
        raise FileNotFoundError(f'command "{params.command}" is not found on PATH; install it, or give its whole path')
