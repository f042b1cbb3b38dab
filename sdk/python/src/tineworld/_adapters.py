"""What the adapters for trainers share."""

from __future__ import annotations

import asyncio
import keyword
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit, urlunsplit

from . import client
from .world import World


def missing(library: str, extra: str, error: ImportError) -> ImportError:
    """What an adapter raises where its library can't be imported."""
    return ImportError(f"tineworld.{extra} needs {library}, which can't be imported ({error}); pip install 'tineworld[{extra}]'")


def url_with_token(world: World) -> str:
    """The URL of a world's MCP endpoint for clients that take no headers: the session's token, which
    is good for this world alone, is the password in it."""
    if not world.token:
        return world.url
    parts = urlsplit(world.url)
    return urlunsplit(parts._replace(netloc=f"world:{quote(world.token, safe='')}@{parts.netloc}"))


def identifiers(names: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Python identifiers for names, by the names, no two alike, none of `taken`, none private. A name
    that is one is left as it is."""
    out = {name: name for name in names if _fits(name) and name not in taken}
    used = {*out.values(), *taken}
    for name in names:
        if name in out:
            continue
        base = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "tool"
        if not _fits(base):
            base = f"tool_{base}"
        one, count = base, 1
        while one in used:
            count += 1
            one = f"{base}_{count}"
        out[name] = one
        used.add(one)
    return out


def _fits(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


class _Held:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.tine: client.Tine | None = None


_held: dict[tuple[asyncio.AbstractEventLoop, str | None], _Held] = {}


@asynccontextmanager
async def shared(url: str | None) -> AsyncIterator[client.Tine]:
    """A connection that all blocks of one event loop share. The last one closes it."""
    key = (asyncio.get_running_loop(), url)
    held = _held.setdefault(key, _Held())
    held.users += 1
    try:
        async with held.lock:
            if held.tine is None:
                held.tine = await client.connect(url)
        yield held.tine
    finally:
        held.users -= 1
        if held.users == 0:
            if _held.get(key) is held:
                del _held[key]
            if held.tine is not None:
                await held.tine.close()
