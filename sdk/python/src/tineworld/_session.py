"""The body of a request that opens a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import Invalid


@dataclass(frozen=True)
class Spec:
    """What a new world is like: the arguments of `Tine.open`."""

    servers: Sequence[str] | None = None
    template: str | None = None
    labels: Mapping[str, str] | None = None
    ttl: str | None = None
    idle: str | None = None
    eager: bool = False
    members: Mapping[str, Any] | None = None
    wait: str | None = None

    def body(self) -> dict[str, Any]:
        if isinstance(self.servers, str):
            raise Invalid(f"servers is a list, such as [{self.servers!r}]")
        given = {
            "servers": None if self.servers is None else list(self.servers),
            "from": self.template,
            "labels": {k: str(v) for k, v in self.labels.items()} if self.labels else None,
            "ttl": self.ttl,
            "idle": self.idle,
            "eager": self.eager or None,
            "members": dict(self.members) if self.members else None,
            "wait": self.wait,
        }
        return {k: v for k, v in given.items() if v is not None}
