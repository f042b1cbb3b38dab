"""What all that a world does has in common."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from .errors import Invalid, Lost, WorldClosed, WorldFailed

if TYPE_CHECKING:
    from .client import Tine

T = TypeVar("T")


class Base:
    """A session of a gateway, which may be closed, here or by others."""

    def __init__(self, tine: Tine, id: str) -> None:
        self._tine = tine
        #: The id of the session.
        self.id = id
        #: Whether this program has closed it.
        self.closed = False
        #: The first failure of this world; None as long as there was none.
        self.failed: WorldFailed | None = None

    def _usable(self) -> None:
        if self.closed:
            raise WorldClosed(f"world {self.id} is closed, by the end of its block or by close(); open another one")

    def _fail(self, error: WorldFailed) -> WorldFailed:
        if self.failed is None:
            self.failed = error
        return error

    async def _ours(self, work: Awaitable[T]) -> T:
        """Waits for a request about this world. If the world is gone, it is lost, and not the
        request wrong."""
        try:
            return await work
        except Invalid as error:
            if error.status not in (404, 410) or self.id not in error.message:
                raise
            raise self._fail(Lost(f"world {self.id} is gone: {error}", status=error.status)) from None
        except Lost as error:
            self._fail(error)
            raise
