"""Where a gateway is, and how to be let in."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from .errors import Invalid

DEFAULT_URL = "http://127.0.0.1:8463"


@dataclass(frozen=True)
class Address:
    """The base URL of a gateway, without secrets, and the token that is sent to it."""

    base: str
    token: str
    loopback: bool

    def at(self, path: Iterable[str]) -> str:
        """The URL of a path, whose elements may hold any character."""
        return self.base + "".join("/" + _element(p) for p in path)


def _element(text: str) -> str:
    # Dots are escaped where they would make the path climb.
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def address(url: str | None, token: str | None) -> Address:
    """Reads a URL: the argument, else TINE_URL, else the default; likewise the token, TINE_TOKEN.
    A password in the URL is the token."""
    given = url or os.environ.get("TINE_URL") or DEFAULT_URL
    try:
        parts = urlsplit(given.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"the gateway's URL does not parse: {error}; write it like {DEFAULT_URL}") from None
    if parts.scheme not in ("http", "https") or not host:
        shown = given if "@" not in given else "..." + given[given.rindex("@") :]
        raise Invalid(f"gateway URL {shown!r} wants a scheme and a host; write it like {DEFAULT_URL}")
    if token is None:
        token = unquote(parts.password or "") or os.environ.get("TINE_TOKEN") or ""
    if any(c in token for c in "\r\n"):
        raise Invalid("the token has a line break in it; give it as one line")
    # The address that an MCP client is given is taken, too, of all servers or one, also in a session.
    path = re.sub("(/s/[^/]+)?/mcp(/[^/]+)?$", "", parts.path.rstrip("/")).rstrip("/")
    netloc = f"[{host}]" if ":" in host else host
    if port is not None:
        netloc += f":{port}"
    return Address(urlunsplit((parts.scheme, netloc, path, "", "")), token, _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
