"""How a server is reached."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Seconds = timedelta | float
_LINE = 200  # characters of a command in a message


def seconds(time: Seconds) -> float:
    """A time in seconds, of a timedelta or of a number."""
    value = time.total_seconds() if isinstance(time, timedelta) else float(time)
    if value <= 0:
        raise ValueError(f"a timeout is {value:g} s; it must be more than 0")
    return value


@dataclass
class MCPHttpParams:
    """A server at a URL: streamable HTTP, or SSE where the path ends in `/sse`.

    `timeout` bounds each call. `sse_read_timeout` is how long a stream may be silent. `auth` is an
    `httpx.Auth`, such as the `OAuthClientProvider` of the package mcp. Without it, and without a
    header Authorization, the variable MCP_TOKEN is the bearer token: over https and to this
    machine, nowhere else.
    """

    url: str
    headers: Mapping[str, str] | None = None
    timeout: Seconds = timedelta(seconds=30)
    sse_read_timeout: Seconds = timedelta(seconds=300)
    terminate_on_close: bool = True
    auth: Any = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is no URL of a server; write one such as https://example.org/mcp")
        seconds(self.timeout)
        seconds(self.sse_read_timeout)

    @property
    def sse(self) -> bool:
        return urlsplit(self.url).path.rstrip("/").endswith("/sse")

    def sent_headers(self) -> dict[str, str]:
        """The headers of each request."""
        headers = dict(self.headers or {})
        token = os.environ.get("MCP_TOKEN")
        if token and self.auth is None and not any(name.lower() == "authorization" for name in headers) and self._private():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _private(self) -> bool:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        return parts.scheme == "https" or host in ("localhost", "::1") or _is_loopback(host)

    def describe(self) -> str:
        """The URL, without what may be secret."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _is_loopback(host: str) -> bool:
    numbers = host.split(".")
    return len(numbers) == 4 and numbers[0] == "127" and all(number.isdigit() for number in numbers)


@dataclass
class MCPStdioParams:
    """A program that speaks MCP on its standard input and output. `timeout` bounds each call.

    `env` is added to the few variables that programs need (PATH, HOME and the like).
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    cwd: str | Path | None = None
    timeout: Seconds = timedelta(seconds=30)

    def __post_init__(self) -> None:
        seconds(self.timeout)

    def describe(self) -> str:
        """The command with its arguments, in one line that is not too long."""
        line = " ".join(shlex.join([self.command, *self.args]).split())
        return f'command "{line if len(line) <= _LINE else line[:_LINE] + "..."}"'


Params = MCPHttpParams | MCPStdioParams
