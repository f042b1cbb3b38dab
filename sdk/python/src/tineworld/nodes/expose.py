"""Nodes as the tools of an MCP server."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial, wraps
from typing import Any, Literal

from .._thread import LoopThread
from . import _ending, _values, _versions
from .functions import FunctionNode
from .node import Node
from .server import MCPToolNode

Transport = Literal["streamable-http", "sse", "stdio"]
_GRACE = 2  # seconds that calls have when a server is closed
_THREADS = 256  # plain functions of a server that run at once


def create_mcp_server(nodes: Iterable[type[Node]], server_name: str = "MCP Server", fastmcp: Any = None) -> NodeServer:
    """Makes a server whose tools are nodes: functions, tools of other servers, or your own.

    `fastmcp` is a server of the package mcp (`FastMCP`; `MCPServer` in its version 2) to add them to.

    >>> create_mcp_server([add]).run(port=8080)
    """
    server = fastmcp if fastmcp is not None else _versions.FastMCP(server_name, log_level="WARNING")
    threads = ThreadPoolExecutor(_THREADS, "tineworld-node")
    taken = {tool.name for tool in server._tool_manager.list_tools()}
    for node in nodes:
        if node.name() in taken:
            raise ValueError(f'two nodes are called "{node.name()}"; give one of them another name with node.renamed(...)')
        taken.add(node.name())
        _add(server, node, threads)
    return NodeServer(server)


class NodeServer:
    """A server of nodes: streamable HTTP at `/mcp` and `/streamable-http`, SSE at `/sse`, or stdio."""

    def __init__(self, fastmcp: Any) -> None:
        self.fastmcp = fastmcp
        self._serving: Any = None
        self._app: _ending.Ending
        self._thread: LoopThread | None = None
        self._done: Future[Any] | None = None

    def run(self, host: str = "127.0.0.1", port: int = 8000, transport: Transport = "streamable-http") -> None:
        """Serves until it is interrupted, or `close` is called from another thread. Both transports over
        HTTP are served, whichever is named."""
        if transport == "stdio":
            self.fastmcp.run("stdio")
            return
        if transport not in ("streamable-http", "sse"):
            raise ValueError(f'there is no transport "{transport}"; use streamable-http, sse or stdio')
        self.start(host, port)
        assert self._done is not None
        try:
            while not self._done.done():
                wait([self._done], timeout=0.5)  # on Windows, Ctrl-C is seen in between
        finally:
            self.close()

    def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serves in the background, as a notebook wants it, and returns the URL. Port 0 is any free one."""
        if self._serving is not None:
            raise RuntimeError("this server was started before; create another with create_mcp_server")
        import uvicorn

        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise OSError(error.errno, f"can't listen on {host} port {port}: {error.strerror}") from error
        self._app = _ending.Ending(_versions.app(self.fastmcp, host))
        settings = uvicorn.Config(self._app, log_level="warning", timeout_graceful_shutdown=_GRACE + 5)
        self._serving = uvicorn.Server(settings)
        self._thread = LoopThread("tineworld-nodes")
        self._done = self._thread.start(self._serving.serve(sockets=[listening]))
        address, number = listening.getsockname()[:2]
        return f"http://{f'[{address}]' if ':' in address else address}:{number}/mcp"

    def close(self) -> None:
        """Ends a server that was started. It may be called twice."""
        if self._serving is None or self._thread is None or self._done is None:
            return
        self._app.end(_GRACE)
        self._serving.should_exit = True
        try:
            self._done.result(timeout=_GRACE + 10)
        finally:
            self._thread.stop()

    def __enter__(self) -> NodeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _add(server: Any, node: type[Node], threads: ThreadPoolExecutor) -> None:
    info = node.tool_info()
    if issubclass(node, FunctionNode):
        tool = _NodeTool.from_function(_served(node, threads), name=info.name, description=info.detail)
    else:
        # Its schema is given, and made of no function, which the public interface can't say.
        tool = _NodeTool.from_function(_nothing, name=info.name, description=info.detail, structured_output=False)
    tool.parameters = dict(info.parameters)
    tool._node = node
    tool._threads = threads
    server._tool_manager._tools[info.name] = tool


def _served(node: type[FunctionNode], threads: ThreadPoolExecutor) -> Any:
    """The function with the signature that it has, for a server: other calls go on meanwhile."""

    @wraps(node.function)
    async def call(**arguments: Any) -> Any:
        try:
            if inspect.iscoroutinefunction(node.function):
                return await node.function(**arguments)
            return await _beside(threads, partial(node.function, **arguments))
        except Exception as error:
            raise _versions.ToolError(f"{type(error).__name__}: {error}") from error

    return call


async def _beside(threads: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(threads, contextvars.copy_context().run, work)


def _nothing() -> None:
    """Stands for a function."""


class _NodeTool(_versions.Tool):  # type: ignore[misc]
    """A node as a tool. Its results give the values that the node has, and its schema may be its own."""

    _node: type[Node]
    _threads: ThreadPoolExecutor

    @property
    def output_schema(self) -> Any:
        return self._node._tool.get("outputSchema") if issubclass(self._node, MCPToolNode) else self.fn_metadata.output_schema

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        if issubclass(self._node, FunctionNode):
            self._check_names(arguments)
            value = await super().run(arguments, context)
        else:
            made = self._node.prepare_tool(arguments)
            try:
                if isinstance(made, MCPToolNode):
                    return _versions.types.CallToolResult.model_validate(await _beside(self._threads, made.result))
                value = await _beside(self._threads, made.invoke)
            except Exception as error:
                raise _versions.ToolError(str(error)) from error
        if not convert_result:
            return value
        try:
            return _values.as_result(self.name, value, self.fn_metadata)
        except _values.Unfit as error:
            raise _versions.ToolError(str(error)) from error

    def _check_names(self, arguments: dict[str, Any]) -> None:
        """The package mcp leaves arguments out that a function does not have."""
        known = self.parameters.get("properties") or {}
        if unknown := [name for name in arguments if name not in known]:
            has = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
            raise _versions.ToolError(f'node "{self.name}" got wrong arguments: it does not know {", ".join(unknown)}; {has}')
