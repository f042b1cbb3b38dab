"""JSON that others wrote. Python gives up with RecursionError on what is nested too deep, which ends a
program that expects ValueError of what can't be read or written. Here it is one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

#: How deep the arguments of a call may be nested. Python reads and writes about a thousand levels, less where
#: the program itself is deep, and in a trajectory the arguments are some levels deeper.
DEEPEST = 200


def loads(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def dumps(value: Any, *, allow_nan: bool = True) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def too_deep(value: Any) -> bool:
    """Whether a value that is JSON is nested deeper than arguments may be."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one) if isinstance(inner, (Mapping, list, tuple))]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()
