"""Nodes as the tools of an MCP server."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Iterable
from concurrent.futures import Future, wait
from functools import wraps
from typing import Any, Literal

from .._thread import LoopThread
from . import _versions
from .functions import FunctionNode
from .node import Node
from .server import MCPToolNode

Transport = Literal["streamable-http", "sse", "stdio"]
_GRACE = 2  # seconds that open streams have when a server is closed


def create_mcp_server(nodes: Iterable[type[Node]], server_name: str = "MCP Server", fastmcp: Any = None) -> NodeServer:
    """Makes a server whose tools are nodes: functions, tools of other servers, or your own.

    `fastmcp` is a server of the package mcp (`FastMCP`; `MCPServer` in its version 2) to add them to.

    >>> create_mcp_server([add]).run(port=8080)
    """
    server = fastmcp if fastmcp is not None else _versions.FastMCP(server_name, log_level="WARNING")
    taken = {tool.name for tool in server._tool_manager.list_tools()}
    for node in nodes:
        if node.name() in taken:
            raise ValueError(f'two nodes are called "{node.name()}"; give one of them another name with node.renamed(...)')
        taken.add(node.name())
        _add(server, node)
    return NodeServer(server)


class NodeServer:
    """A server of nodes: streamable HTTP at `/mcp` and `/streamable-http`, SSE at `/sse`, or stdio."""

    def __init__(self, fastmcp: Any) -> None:
        self.fastmcp = fastmcp
        self._serving: Any = None
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
        settings = uvicorn.Config(_versions.app(self.fastmcp, host), log_level="warning", timeout_graceful_shutdown=_GRACE)
        self._serving = uvicorn.Server(settings)
        self._thread = LoopThread("tineworld-nodes")
        self._done = self._thread.start(self._serving.serve(sockets=[listening]))
        address, number = listening.getsockname()[:2]
        return f"http://{f'[{address}]' if ':' in address else address}:{number}/mcp"

    def close(self) -> None:
        """Ends a server that was started. It may be called twice."""
        if self._serving is None or self._thread is None or self._done is None:
            return
        self._serving.should_exit = True
        try:
            self._done.result(timeout=_GRACE + 10)
        finally:
            self._thread.stop()

    def __enter__(self) -> NodeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _add(server: Any, node: type[Node]) -> None:
    info = node.tool_info()
    if issubclass(node, FunctionNode):
        server.add_tool(_served(node), name=info.name, description=info.detail)
        return
    # Its schema is given, and made of no function, which the public interface can't say.
    tool = _SchemaTool.from_function(_nothing, name=info.name, description=info.detail, structured_output=False)
    tool.parameters = dict(info.parameters)
    tool._node = node
    server._tool_manager._tools[info.name] = tool


def _served(node: type[FunctionNode]) -> Any:
    """The function with the signature that it has, for a server: other calls go on meanwhile."""

    @wraps(node.function)
    async def call(**arguments: Any) -> Any:
        try:
            if inspect.iscoroutinefunction(node.function):
                return await node.function(**arguments)
            return await asyncio.to_thread(node.function, **arguments)
        except Exception as error:
            raise _versions.ToolError(f"{type(error).__name__}: {error}") from error

    return call


def _nothing() -> None:
    """Stands for a function."""


class _SchemaTool(_versions.Tool):  # type: ignore[misc]
    """A tool with a JSON Schema of its own."""

    _node: type[Node]

    @property
    def output_schema(self) -> Any:
        return self._node._tool.get("outputSchema") if issubclass(self._node, MCPToolNode) else None

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        made = self._node.prepare_tool(arguments)
        try:
            if isinstance(made, MCPToolNode):
                return _versions.types.CallToolResult.model_validate(await asyncio.to_thread(made.result))
            value = await asyncio.to_thread(made.invoke)
        except Exception as error:
            raise _versions.ToolError(str(error)) from error
        return self.fn_metadata.convert_result(value) if convert_result else value
