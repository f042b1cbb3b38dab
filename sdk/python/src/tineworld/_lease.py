"""A lease on worlds: the gateway closes them when this program no longer renews it.

Renewals come from a thread with its own event loop, since a trainer may keep the program's loop
busy for minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ._address import Address
from ._thread import LoopThread
from ._wire import Wire
from .errors import Invalid, Lost, TineError

log = logging.getLogger("tineworld")


class Lease:
    """One lease, renewed three times in its time to live until it is ended."""

    def __init__(self, address: Address, id: str, ttl: float) -> None:
        self.id = id
        self.lost = False
        self._address = address
        self._ttl = ttl
        self._thread = LoopThread("tineworld-lease")
        self._renewing = self._thread.start(self._renew())

    @staticmethod
    async def take(wire: Wire, ttl: float, key: str, labels: Mapping[str, str] | None) -> Lease:
        body: dict[str, Any] = {"ttl": f"{int(ttl * 1000)}ms"}
        if labels:
            body["labels"] = dict(labels)
        made = await wire.json("POST", "v1", "leases", body=body, key=key)
        return Lease(wire.address, made["id"], ttl)

    async def _renew(self) -> None:
        wire = Wire(self._address, connections=1, patience=self._ttl / 3)
        try:
            pause = self._ttl / 3
            while True:
                await asyncio.sleep(pause)
                try:
                    await wire.json("PUT", "v1", "leases", self.id)
                    pause = self._ttl / 3
                except (Invalid, Lost) as error:
                    # It has run out, or was ended: its worlds are closed.
                    self.lost = True
                    log.error("lease %s is gone, and so are its worlds: %s", self.id, error)
                    return
                except TineError as error:
                    # The request took its patience already; the rest of the lease is short.
                    pause = self._ttl / 20
                    log.warning("lease %s was not renewed, and is tried again: %s", self.id, error)
        finally:
            await wire.close()

    def stop(self) -> None:
        """Stops renewing. The gateway ends the lease and its worlds after the time to live."""
        self._renewing.cancel()
        self._thread.stop()
