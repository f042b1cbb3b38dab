"""Many operations in one request, whose answers come as each of them ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._features import Features
from ._wire import LINES, Ask, Wire, encode, new_key
from .errors import BrokenOff, Infrastructure, Invalid, Lost, Refused, TineError, from_api

ROUTE = "/v1/batch"
# Of one request: the gateway's own bound, and half of the bytes that a gateway takes by default.
_MOST, _BYTES = 10_000, 8 << 20

Outcome = Mapping[str, Any] | TineError


async def send(wire: Wire, features: Features, items: Sequence[Mapping[str, Any]], *, atomic: bool = False) -> list[Outcome]:
    """Sends items and returns what became of each, in their order.

    A request that breaks off is repeated with its key, unless calls are in it: what is not known
    of these is Lost."""
    features.need("POST", ROUTE)
    encoded = [encode(item) for item in items]
    if atomic:
        if len(items) > _MOST:
            raise Invalid(f"{len(items)} worlds can't be made all or none; {_MOST} at most, or atomic=False")
        parts = [range(len(items))] if items else []
    else:
        parts = list(_parts(encoded))
    out: list[Outcome] = []
    for part in parts:
        calls = any("call" in items[i] for i in part)
        out += await _part(wire, [encoded[i] for i in part], calls, atomic)
    return out


def _parts(encoded: Sequence[bytes]) -> Iterator[range]:
    first = size = 0
    for i, item in enumerate(encoded):
        if i > first and (i - first == _MOST or size + len(item) > _BYTES):
            yield range(first, i)
            first, size = i, 0
        size += len(item) + 1
    if first < len(encoded):
        yield range(first, len(encoded))


async def _part(wire: Wire, encoded: Sequence[bytes], calls: bool, atomic: bool) -> list[Outcome]:
    body = b'{"items":[' + b",".join(encoded) + b"]" + (b',"atomic":true}' if atomic else b"}")
    ask = Ask("POST", ("v1", "batch"), body=body, accept=LINES, key=None if calls else new_key(), repeat=not calls)
    heard: dict[int, Outcome] = {}

    async def read(answer: Any) -> None:
        async for line in wire.read_lines(ask, answer):
            if line.get("done") is True:
                return
            item = line.get("item")
            if not isinstance(item, int) or not 0 <= item < len(encoded):
                raise Infrastructure(f"the gateway answered a batch with a line of no item: {str(line)[:200]}")
            heard[item] = from_api(line["error"], line.get("status", 0), call=line.get("call", "")) if "error" in line else line
        raise BrokenOff(f"the answer to a batch of {len(encoded)} broke off; is the gateway still running?")

    try:
        await wire.exchange(ask, read)
    except Refused as error:
        if error.status != 413 or len(encoded) > 1:
            raise
        heard[0] = error  # an item that is too large by itself is refused, and not the others
    except BrokenOff as error:
        if not calls:
            raise
        for item in range(len(encoded)):
            heard.setdefault(item, Lost(f"item {item} of a batch: {error}; it may have taken effect"))
    if unheard := set(range(len(encoded))) - heard.keys():
        raise Infrastructure(f"the gateway answered a batch of {len(encoded)} without its item {min(unheard)}")
    return [heard[item] for item in range(len(encoded))]
