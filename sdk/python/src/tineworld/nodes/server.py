"""A connection to an MCP server, whose tools are nodes."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ClassVar, Self, TypeVar

from .._thread import LoopThread
from . import _versions
from ._link import Broken, Link
from ._values import WRAPPED
from .node import Node, ToolInfo
from .params import Params, Seconds, seconds

T = TypeVar("T")


def connect_mcp(config: Params, client_session: Any = None, setup_timeout: Seconds = 30) -> MCPServer:
    """Connects to a server and lists its tools.

    `client_session` is used instead of a connection, if given: something with the coroutines
    `list_tools` and `call_tool` of a `ClientSession` that is bound to no event loop.

    It raises FileNotFoundError for a command that is not found, ConnectionError for a server that does
    not answer or refuses, and TimeoutError after `setup_timeout`.

    >>> with connect_mcp(MCPStdioParams("uvx", ["mcp-server-time"])) as server:
    ...     print([node.name() for node in server.tools])
    """
    return MCPServer(config, client_session, setup_timeout)


class MCPToolNode(Node):
    """A tool of a server."""

    _server: ClassVar[MCPServer]
    _tool: ClassVar[Mapping[str, Any]]

    def invoke(self) -> Any:
        """Calls the tool and returns its value: the structured one if there is one, else the text; a
        result with images, audio or resources as the list of its contents.

        RuntimeError is a failure that the tool or its server reports.
        """
        return value_of(self._tool, self.result())

    def result(self) -> dict[str, Any]:
        """Calls the tool and returns its result as it is on the wire."""
        result = self._server.call(str(self._tool["name"]), self.arguments)
        if result.get("isError"):
            raise RuntimeError(f'tool "{self._tool["name"]}" of {self._server.describe()} failed: {_text(result) or "it said nothing"}')
        return result


class MCPServer:
    """A connection to a server. It is made anew where it broke off, and the list of tools is fetched
    again then, and when the server says that it has changed. It may be used from several threads."""

    def __init__(self, config: Params, client_session: Any = None, setup_timeout: Seconds = 30) -> None:
        self.config = config
        self._setup = seconds(setup_timeout)
        self._given = client_session
        self._timeout = seconds(config.timeout)
        self._nodes: list[type[MCPToolNode]] | None = None
        self._changes = 0
        self._link: Link | None = None
        self._left: list[Link] = []  # whose handshake failed
        self._closed = False
        self._pid = os.getpid()
        self._thread = LoopThread("tineworld-mcp")
        self._lock: asyncio.Lock | None = None
        try:
            self._run(self._set_up())
        except TimeoutError:
            # A program that does not end by itself is given some time. The caller has waited long enough.
            threading.Thread(target=self.close, name="tineworld-mcp-close").start()
            raise
        except BaseException:
            self.close()
            raise
        _close_at_exit(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> str:
        return self.config.describe()

    @property
    def tools(self) -> list[type[MCPToolNode]]:
        """The tools as they are now."""
        return list(self._run(self._list()))

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Calls a tool and returns the result as it is on the wire. A call that broke off is not repeated."""

        async def work(session: Any) -> dict[str, Any]:
            return _versions.as_json(await session.call_tool(tool, dict(arguments)))

        return self._run(self._ask(f'tool "{tool}" of {self.describe()}', work))

    def close(self) -> None:
        """Ends the connection. It may be called twice."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() == self._pid:
            self._thread.run(self._end())
            self._thread.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed or os.getpid() != self._pid:
            work.close()
            where = "after it was closed" if self._closed else "in a process that was forked from the one that connected"
            raise RuntimeError(f"the connection to {self.describe()} is used {where}; call connect_mcp again{'' if self._closed else ' there'}")
        return self._thread.run(work)

    async def _set_up(self) -> None:
        try:
            async with asyncio.timeout(self._setup):
                await self._list()
        except TimeoutError:
            listing = self._link is not None or self._given is not None
            what = "list its tools" if listing else "answer the handshake"
            told = "".join(link.told_so_far() for link in self._left)
            raise TimeoutError(f"{self.describe()} did not {what} within {self._setup:g} s{told}") from None

    async def _end(self) -> None:
        await self._shut()
        for link in self._left:
            await link.close()

    async def _shut(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _connected(self) -> Link:
        """The connection. A new one knows nothing of the tools that an old one had."""
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if self._link is not None and self._link.over:
                await self._shut()
            if self._link is None:
                self._left = [link for link in self._left if not link.gone]
                link = Link(self.config, self._change)
                try:
                    await link.open(self._setup)
                except BaseException:
                    self._left.append(link)
                    raise
                self._link = link
                self._change()
            return self._link

    def _change(self) -> None:
        self._changes += 1
        self._nodes = None

    async def _ask(self, what: str, work: Callable[[Any], Awaitable[T]]) -> T:
        if self._given is not None:
            try:
                return await asyncio.wait_for(work(self._given), self._timeout)
            except TimeoutError:
                raise TimeoutError(f"{what} did not answer within {self._timeout:g} s") from None
            except _versions.ProtocolError as error:
                raise RuntimeError(f"{what} failed: {error.error.message}") from error
        for again in (True, False):
            link = await self._connected()
            try:
                return await link.ask(what, work, self._timeout)
            except Broken as error:
                if self._link is link:
                    await self._shut()
                if not (again and error.unsent):
                    raise ConnectionError(str(error)) from error
            except (ConnectionError, TimeoutError):
                raise
            except RuntimeError as error:  # the package mcp raises these for results that are not as declared
                raise error if what in str(error) else RuntimeError(f"{what} failed: {error}") from error
        raise AssertionError("unreachable")

    async def _list(self) -> list[type[MCPToolNode]]:
        if self._given is None:
            await self._connected()
        while (nodes := self._nodes) is None:
            before = self._changes
            listed = await self._ask(f"the list of tools of {self.describe()}", _pages)
            nodes = [self._node(tool) for tool in listed]
            if self._changes == before:  # or it changed meanwhile
                self._nodes = nodes
        return nodes

    def _node(self, tool: dict[str, Any]) -> type[MCPToolNode]:
        info = ToolInfo(str(tool["name"]), str(tool.get("description") or ""), tool["inputSchema"])
        return type(info.name, (MCPToolNode,), {"_info": info, "_server": self, "_tool": tool, "__doc__": info.detail or None})


async def _pages(session: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor, seen = None, set[str]()
    while True:
        page = _versions.as_json(await (session.list_tools(params=_versions.types.PaginatedRequestParams(cursor=cursor)) if cursor else session.list_tools()))
        tools += page["tools"]
        cursor = page.get("nextCursor")
        if not cursor:
            return tools
        if cursor in seen:
            raise RuntimeError(f"the server gives the page {cursor!r} of its tools again and again")
        seen.add(cursor)


def value_of(tool: Mapping[str, Any], result: Mapping[str, Any]) -> Any:
    """The value of a result that is no error."""
    content = result.get("content") or []
    structured = result.get("structuredContent")
    if structured is not None:
        told = (result.get("_meta") or {}).get(WRAPPED)
        wrapped = told if isinstance(told, bool) else _wrapped(tool, structured, content)
        return structured["result"] if wrapped else structured
    if all(block.get("type") == "text" for block in content):
        return _text(result)
    return content


def _text(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result.get("content") or [] if block.get("type") == "text")


def _wrapped(tool: Mapping[str, Any], structured: Mapping[str, Any], content: list[Mapping[str, Any]]) -> bool:
    """Servers made of Python functions put a value that is no object into {"result": ...}. Their text has the
    value itself, where a server whose own object is that has the object."""
    schema = tool.get("outputSchema") or {}
    if set(structured) != {"result"} or set(schema.get("properties") or ()) != {"result"}:
        return False
    for block in content:
        try:
            if json.loads(block.get("text", "")) == structured:
                return False
        except ValueError:
            continue
    return bool(schema.get("x-fastmcp-wrap-result")) or str(schema.get("title", "")).endswith("Output")


def _close_at_exit(server: MCPServer) -> None:
    """A program that ends leaves no server behind, and may forget a connection before."""
    known = weakref.ref(server)

    def close() -> None:
        if (left := known()) is not None:
            left.close()

    atexit.register(close)
    weakref.finalize(server, atexit.unregister, close)
