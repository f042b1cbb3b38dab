"""RewardKit's client, for a Tine gateway: the same methods, with one import changed.

    from tineworld.rewardkit import IntermediaryMCPClient  # instead of reward_kit.mcp.clients

The policy's mistakes are results. A failure of the world is raised as `WorldFailed`. RewardKit's pipeline
shows what a call raises to the model and goes on, so that `cleanup_session` raises the failure again: a
sample whose world failed ends with an error, and is not scored.
"""

from __future__ import annotations

import asyncio
import json
import logging
import weakref
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from . import _adapters, client, result
from ._wire import Ask, encode, new_key
from .errors import BrokenOff, Infrastructure, Invalid, Lost, TineError, ToolFailed, WorldFailed, from_api

try:
    from mcp import types
except ImportError as error:
    raise _adapters.missing("mcp", "rewardkit", error) from error

__all__ = ["IntermediaryMCPClient"]

log = logging.getLogger("tineworld")


class IntermediaryMCPClient:
    """Opens sessions with instances of the gateway's servers, and calls their tools.

    >>> async with IntermediaryMCPClient("http://127.0.0.1:8463/mcp") as client:
    ...     await client.initialize_session([{"backend_name_ref": "files", "num_instances": 1}])
    """

    def __init__(self, intermediary_server_url: str) -> None:
        if not intermediary_server_url:
            raise ValueError("intermediary_server_url must be provided.")
        self.server_url = intermediary_server_url.rstrip("/")
        parts = urlsplit(self.server_url)
        self._base = urlunsplit(parts._replace(path=parts.path.removesuffix("/rollout").removesuffix("/mcp"), query=""))
        self._stack = AsyncExitStack()
        self._tine: client.Tine | None = None
        self._open: set[str] = set()
        self._failed: dict[str, WorldFailed] = {}
        # Failures while a task listed tools. RewardKit's pipeline would play on without any.
        self._unlisted: weakref.WeakKeyDictionary[asyncio.Task[Any], WorldFailed] = weakref.WeakKeyDictionary()

    async def connect(self) -> None:
        """Connects to the gateway. It may be called twice."""
        if self._tine is None:
            self._tine = await self._stack.enter_async_context(_adapters.shared(self._base))

    async def close(self) -> None:
        """Closes the connection, and the sessions that were not cleaned up."""
        for session in list(self._open):
            try:
                await self._close_session(session)
            except TineError as error:
                log.warning("session %s was not closed: %s", session, error)
        self._tine = None
        await self._stack.aclose()

    async def __aenter__(self) -> IntermediaryMCPClient:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def initialize_session(self, backend_requests: list[dict[str, Any]]) -> dict[str, Any]:
        """Opens a session with instances of servers."""
        task = asyncio.current_task()
        if task is not None and (before := self._unlisted.pop(task, None)) is not None:
            raise before
        made = await self._listing("initialize_session", {"backends": backend_requests, "idempotency_key": new_key()})
        self._open.add(str(made["rk_session_id"]))
        return made

    async def call_backend_tool(
        self, rk_session_id: str, instance_id: str, backend_name_ref: str, tool_name: str, tool_args: dict[str, Any]
    ) -> dict[str, Any]:
        """Calls a tool of an instance, and returns the result as a dict. After a failure of the session's
        world all its calls raise it."""
        if (failed := self._failed.get(rk_session_id)) is not None:
            raise failed
        given = {
            "rk_session_id": rk_session_id,
            "instance_id": instance_id,
            "backend_name_ref": backend_name_ref,
            "tool_name": tool_name,
            "tool_args": tool_args,
        }
        try:
            answer = await self._ask("call_backend_tool", given, repeat=False)
            result.from_wire(tool_name, answer)  # raises where the answer says that the world failed
            return answer
        except (Invalid, ToolFailed) as error:
            return {"content": [{"type": "text", "text": error.message}], "isError": True}
        except BrokenOff as error:
            self._failed[rk_session_id] = Lost(f"{tool_name} in {rk_session_id}: {error}")
            raise self._failed[rk_session_id] from error
        except WorldFailed as error:
            if error.status == 413:  # the arguments are too large
                return {"content": [{"type": "text", "text": error.message}], "isError": True}
            self._failed[rk_session_id] = error
            raise

    async def list_backend_tools(self, rk_session_id: str, instance_id: str, backend_name_ref: str) -> types.ListToolsResult:
        """Lists the tools of an instance."""
        given = {"rk_session_id": rk_session_id, "instance_id": instance_id, "backend_name_ref": backend_name_ref}
        return types.ListToolsResult.model_validate(await self._listing("list_backend_tools", given))

    async def cleanup_session(self, rk_session_id: str) -> dict[str, Any]:
        """Closes a session. If its world failed, this raises the failure when it is closed."""
        answer = await self._close_session(rk_session_id)
        if (failed := self._failed.pop(rk_session_id, None)) is not None:
            raise failed
        return answer

    async def _close_session(self, session: str) -> dict[str, Any]:
        answer = await self._ask("cleanup_session", {"rk_session_id": session}, repeat=True)
        self._open.discard(session)
        return answer

    async def _listing(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._ask(tool, given, repeat=True)
        except WorldFailed as error:
            if (task := asyncio.current_task()) is not None:
                self._unlisted[task] = error
            raise

    async def _ask(self, tool: str, given: dict[str, Any], *, repeat: bool) -> dict[str, Any]:
        """Calls one of the gateway's own tools, whose answer is JSON."""
        await self.connect()
        assert self._tine is not None
        wire = self._tine.wire
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {"args": given}}}
        request = Ask("POST", ("mcp", "rollout"), body=encode(body), repeat=repeat)
        answer = await wire.exchange(request, lambda got: wire.read_json(request, got))
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            told = (answer.get("error") if isinstance(answer, dict) else None) or {}
            raise from_api((told.get("data") or {}).get("tine/error") or {"kind": "infrastructure", "message": told.get("message")}, prefix=f"{tool}: ")
        done = result.from_wire(tool, answer["result"])
        if done.is_error:  # of a tool of the gateway's own: the request is wrong
            raise Invalid(done.text)
        parsed = done.json()
        if not isinstance(parsed, dict):
            raise Infrastructure(f"{tool} answered without an object: {done.text[:200]}")
        return parsed
