"""The end of a server that has clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

App = Callable[[Any, Any, Any], Awaitable[None]]


class Ending:
    """A web application whose requests end with the server: streams on which a client waits for news
    at once, and calls after some time. Their answers end as others do, so that nothing is logged."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self._over = asyncio.Event()

    def end(self, grace: float) -> None:
        """Ends the requests, from any thread. Calls have so many seconds."""
        if self._loop is None or self._loop.is_closed():
            return

        def end(loop: asyncio.AbstractEventLoop) -> None:
            self._closing.set()
            loop.call_later(grace, self._over.set)

        self._loop.call_soon_threadsafe(end, self._loop)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._loop = asyncio.get_running_loop()
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = done = False

        async def pass_on(message: Any) -> None:
            nonlocal started, done
            started = True
            done = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        work = asyncio.ensure_future(self._app(scope, receive, pass_on))
        ending = asyncio.create_task((self._closing if scope["method"] == "GET" else self._over).wait())
        try:
            await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            work.cancel()
            await asyncio.wait({work})
            if not started:
                await send({"type": "http.response.start", "status": 503, "headers": []})
            if not done:
                await send({"type": "http.response.body", "body": b""})
        finally:
            ending.cancel()
            if not work.done():
                work.cancel()
