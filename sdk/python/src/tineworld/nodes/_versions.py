"""What differs between the versions 1 and 2 of the package mcp. Its objects are read as JSON, so that
the names of their attributes do not matter."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from .params import MCPHttpParams, MCPStdioParams, seconds

TWO = int(version("mcp").split(".")[0]) >= 2

_http: Any = importlib.import_module("httpx2" if TWO else "httpx")
_streamable: Any = importlib.import_module("mcp.client.streamable_http")
_sse: Any = importlib.import_module("mcp.client.sse")
_stdio: Any = importlib.import_module("mcp.client.stdio")
_mcp: Any = importlib.import_module("mcp")
types: Any = importlib.import_module("mcp.types")

ClientSession: Any = _mcp.ClientSession
ProtocolError: Any = _mcp.MCPError if TWO else _mcp.McpError

_server: Any = importlib.import_module("mcp.server.mcpserver" if TWO else "mcp.server.fastmcp")
_base = "mcp.server.mcpserver" if TWO else "mcp.server.fastmcp"
FastMCP: Any = _server.MCPServer if TWO else _server.FastMCP
Tool: Any = importlib.import_module(f"{_base}.tools").Tool
ToolError: Any = importlib.import_module(f"{_base}.exceptions").ToolError
CONTENT: tuple[Any, ...] = (
    *(getattr(types, name) for name in ("TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource")),
    *(value for name in ("Image", "Audio") if (value := getattr(_server, name, None)) is not None),
)

# Called with the process of a program that was started.
Started = Callable[[Any], None]
# Called with the status of an answer that refuses, and with the message in it where the server did
# not know the session.
Status = Callable[[str, str], None]


def as_json(value: Any) -> dict[str, Any]:
    """An object of the protocol as it is on the wire."""
    return dict(value.model_dump(mode="json", by_alias=True, exclude_none=True))


def is_list_change(message: Any) -> bool:
    return getattr(getattr(message, "root", message), "method", "") == "notifications/tools/list_changed"


@asynccontextmanager
async def streams(params: MCPHttpParams | MCPStdioParams, stderr: Any, status: Status, started: Started) -> AsyncIterator[tuple[Any, Any]]:
    """Connects, and yields the streams of a session. `status` hears of refusals."""
    if isinstance(params, MCPStdioParams):
        program = _mcp.StdioServerParameters(
            command=params.command,
            args=list(params.args),
            env=None if params.env is None else dict(params.env),
            cwd=None if params.cwd is None else str(params.cwd),
        )
        opened = _stdio.stdio_client(program, errlog=stderr)
        async with opened as pair:
            # The package tells of no exit code, and keeps the process to itself.
            frame = getattr(getattr(opened, "gen", None), "ag_frame", None)
            started(frame.f_locals.get("process") if frame else None)
            yield pair[0], pair[1]
        return
    headers = params.sent_headers()

    def make(headers: dict[str, str] | None = headers, timeout: Any = None, auth: Any = None) -> Any:
        return _client(params, dict(headers or {}), status)

    if params.sse:
        async with _sse.sse_client(params.url, headers=headers, httpx_client_factory=make) as pair:
            yield pair[0], pair[1]
    elif hasattr(_streamable, "streamable_http_client"):
        async with make() as client:
            async with _streamable.streamable_http_client(params.url, http_client=client, terminate_on_close=params.terminate_on_close) as got:
                yield got[0], got[1]
    else:
        wait = {"timeout": seconds(params.timeout), "sse_read_timeout": seconds(params.sse_read_timeout)}
        opening = _streamable.streamablehttp_client(
            params.url, headers=headers, terminate_on_close=params.terminate_on_close, httpx_client_factory=make, **wait
        )
        async with opening as got:
            yield got[0], got[1]


def _client(params: MCPHttpParams, headers: dict[str, str], status: Status) -> Any:
    ours = urlsplit(params.url)
    configured = params.sent_headers()

    async def stay(request: Any) -> None:
        """Headers were given for one server: a redirect to another does not take them along."""
        url = request.url
        same = (url.scheme, url.host) == (ours.scheme, ours.hostname) or (url.scheme == "https" and url.host == ours.hostname)
        if not same or url.port != _http.URL(params.url).port:
            for name in configured:
                request.headers.pop(name, None)

    async def hear(response: Any) -> None:
        """Learns of refusals. The stream that a client may open by GET is refused by many servers."""
        if response.status_code < 400 or (response.request.method != "POST" and not params.sse):
            return
        unknown = response.status_code == 404 and "mcp-session-id" in response.request.headers
        if unknown:
            await response.aread()
        status(f"{response.status_code} {response.reason_phrase}".strip(), _message(response) if unknown else "")

    return _http.AsyncClient(
        headers=headers,
        auth=params.auth,
        timeout=_http.Timeout(seconds(params.timeout), read=seconds(params.sse_read_timeout)),
        follow_redirects=True,
        event_hooks={"request": [stay], "response": [hear]},
    )


def _message(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def app(server: Any, host: str) -> Any:
    """The web application of a FastMCP server: streamable HTTP at /mcp and /streamable-http, SSE at /sse."""
    if TWO:
        both, path = (server.streamable_http_app(host=host), server.sse_app(host=host)), "/mcp"
    else:
        settings = server.settings
        guard = settings.transport_security
        if host not in ("127.0.0.1", "localhost", "::1") and guard is not None and "127.0.0.1:*" in guard.allowed_hosts:
            settings.transport_security = None  # it was made for a server of this machine alone
        both, path = (server.streamable_http_app(), server.sse_app()), settings.streamable_http_path
    web, sse = both
    (main,) = [route for route in web.routes if getattr(route, "path", "") == path]
    known = {getattr(route, "path", "") for route in web.routes}
    for alias in ("/mcp", "/streamable-http"):
        if alias not in known:
            web.router.routes.append(type(main)(alias, endpoint=main.endpoint))
    web.router.routes.extend(route for route in sse.routes if getattr(route, "path", "") not in known)
    return web
