"""Many operations in one request, whose answers come as each of them ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._features import Features
from ._wire import LINES, Ask, Wire, encode, new_key
from .errors import BrokenOff, Infrastructure, Lost, TineError, from_api

ROUTE = "/v1/batch"
MOST = 10_000  # items of one request

Outcome = Mapping[str, Any] | TineError


async def send(
    wire: Wire, features: Features, items: Sequence[Mapping[str, Any]], *, atomic: bool = False, told: Callable[[int, Outcome], None] | None = None
) -> list[Outcome]:
    """Sends items and returns what became of each, in their order. `told` hears of each as it
    comes, once.

    A request that breaks off is repeated with its key, unless calls are in it: what is not known
    of these is Lost."""
    features.need("POST", ROUTE)
    out: dict[int, Outcome] = {}
    for first in range(0, len(items), MOST):
        part = items[first : first + MOST]

        def tell(item: int, outcome: Outcome, first: int = first) -> None:
            if first + item not in out:
                out[first + item] = outcome
                if told is not None:
                    told(first + item, outcome)

        await _part(wire, part, atomic, tell)
    return [out[i] for i in range(len(items))]


async def _part(wire: Wire, items: Sequence[Mapping[str, Any]], atomic: bool, tell: Callable[[int, Outcome], None]) -> None:
    calls = any("call" in item for item in items)
    body: dict[str, Any] = {"items": list(items)}
    if atomic:
        body["atomic"] = True
    ask = Ask("POST", ("v1", "batch"), body=encode(body), accept=LINES, key=None if calls else new_key(), repeat=not calls)
    heard: set[int] = set()

    async def read(answer: Any) -> None:
        async for line in wire.read_lines(ask, answer):
            if line.get("done") is True:
                return
            item = line.get("item")
            if not isinstance(item, int) or not 0 <= item < len(items):
                raise Infrastructure(f"the gateway answered a batch with a line of no item: {str(line)[:200]}")
            heard.add(item)
            tell(item, from_api(line["error"], line.get("status", 0)) if "error" in line else line)
        raise BrokenOff(f"the answer to a batch of {len(items)} broke off; is the gateway still running?")

    try:
        await wire.exchange(ask, read)
    except BrokenOff as error:
        if not calls:
            raise
        for item in set(range(len(items))) - heard:
            tell(item, Lost(f"item {item} of a batch: {error}; it may have taken effect"))
        return
    if unheard := set(range(len(items))) - heard:
        raise Infrastructure(f"the gateway answered a batch of {len(items)} without its item {min(unheard)}")
