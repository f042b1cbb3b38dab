"""What the gateway offers, as its own description of its API says."""

from __future__ import annotations

from typing import Any

from ._wire import Wire
from .errors import Infrastructure, TineError


class Features:
    """The routes of a gateway. An older gateway has fewer of them."""

    def __init__(self, document: Any, base: str) -> None:
        paths = document.get("paths") if isinstance(document, dict) else None
        if not isinstance(paths, dict):
            raise Infrastructure(f"{base} does not look like a Tine gateway: its /v1/openapi.json has no paths; check the URL")
        self._base = base
        self._paths: dict[str, dict[str, Any]] = paths
        self._schemas: dict[str, Any] = document.get("components", {}).get("schemas", {})

    def has(self, method: str, path: str) -> bool:
        return method.lower() in self._paths.get(path, {})

    def need(self, method: str, path: str) -> None:
        """Refuses what the gateway does not have yet."""
        if not self.has(method, path):
            raise MissingFeature(f"the gateway at {self._base} has no {method} {path}: it is older than this package; update the gateway")

    def keyed(self, method: str, path: str) -> bool:
        """Whether a route takes an idempotency key."""
        operation = self._paths.get(path, {}).get(method.lower(), {})
        return any(p.get("name") == "Idempotency-Key" for p in operation.get("parameters", ()))

    def takes(self, schema: str, member: str) -> bool:
        """Whether a request's body may have a member: bodies are read strictly."""
        return member in self._schemas.get(schema, {}).get("properties", {})


class MissingFeature(TineError):
    """The gateway is too old for what was asked of it."""


async def read(wire: Wire) -> Features:
    """Asks the gateway what it offers."""
    return Features(await wire.json("GET", "v1", "openapi.json"), wire.address.base)
