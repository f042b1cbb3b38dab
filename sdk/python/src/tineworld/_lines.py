"""Streams of JSON lines, each of any length."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from . import _json
from .errors import Infrastructure


async def split(chunks: AsyncIterator[bytes], longest: int) -> AsyncIterator[bytes]:
    """Yields the lines of a stream without empty ones. A last line without a line break counts."""
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = b"".join([*held, piece]).strip()
            held.clear()
            size = 0
            if line:
                yield line
        if rest:
            held.append(rest)
            size += len(rest)
        if size > longest:
            raise Infrastructure(f"a line of the answer is longer than {longest} bytes; set max_body of connect() higher")
    if line := b"".join(held).strip():
        yield line


def decode(line: bytes, what: str) -> dict[str, Any]:
    """Reads one line, which must be an object."""
    try:
        value = _json.loads(line)
    except ValueError as error:
        raise Infrastructure(f"{what}: a line of the answer is not JSON ({error}); check the URL") from None
    if not isinstance(value, dict):
        raise Infrastructure(f"{what}: a line of the answer is not an object; check the URL")
    return value
