"""Worlds for NeMo Gym 0.4: a resources server whose tools are those of a world.

>>> class Writing(WorldResourcesServer):
...     async def reward(self, world, body): return float(await world.get("workspace/a.txt") == b"4")

`/seed_session` opens a world, `POST /{tool}` calls its tools, and `/verify` scores and closes it. If the
world failed, `/verify` answers 503: the rollout fails, and has no reward.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from . import _adapters, _json, client, messages
from .errors import WorldFailed
from .world import Timeouts, World

try:
    from fastapi import FastAPI, HTTPException, Request, Response
    from nemo_gym.base_resources_server import (
        BaseResourcesServerConfig,
        BaseSeedSessionRequest,
        BaseSeedSessionResponse,
        BaseVerifyRequest,
        BaseVerifyResponse,
        SimpleResourcesServer,
    )
    from nemo_gym.server_utils import SESSION_ID_KEY
    from pydantic import ConfigDict, PrivateAttr
except ImportError as error:
    raise _adapters.missing("nemo-gym 0.4 (Python 3.12 or newer)", "nemo", error) from error

__all__ = ["WorldResourcesServer", "WorldServerConfig", "WorldVerifyRequest", "response_tools"]


class WorldServerConfig(BaseResourcesServerConfig):
    """Where worlds are opened and what they are like."""

    url: str | None = None
    servers: list[str] | None = None
    template: str | None = None
    labels: dict[str, str] = {}
    idle: str | None = "1h"
    """A world that is not used for so long is closed, such as that of a rollout that never comes to `/verify`."""
    timeouts: Timeouts = "drop"


class WorldSeedRequest(BaseSeedSessionRequest):
    """A row of the dataset."""

    model_config = ConfigDict(extra="allow")


class WorldVerifyRequest(BaseVerifyRequest):
    """A row of the dataset, with what the model made of it."""

    model_config = ConfigDict(extra="allow")


class WorldVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class WorldResourcesServer(SimpleResourcesServer):
    """A resources server with a world for each session. It keeps them in memory: run it with one worker."""

    config: WorldServerConfig
    _stack: AsyncExitStack = PrivateAttr(default_factory=AsyncExitStack)
    _tine: client.Tine | None = PrivateAttr(default=None)
    _worlds: dict[str, World] = PrivateAttr(default_factory=dict)
    _names: dict[str, str] | None = PrivateAttr(default=None)

    @abstractmethod
    async def reward(self, world: World, body: WorldVerifyRequest) -> float:
        """Scores a rollout. A failure of the world in it is not the policy's."""

    async def setup(self, world: World, body: WorldSeedRequest) -> None:
        """Prepares a new world for a row."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/{tool}")(self.call_tool)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(of: FastAPI) -> AsyncIterator[Any]:
            async with self._stack, inner(of) as state:
                yield state

        app.router.lifespan_context = lifespan
        return app

    async def seed_session(self, request: Request, body: WorldSeedRequest) -> BaseSeedSessionResponse:
        config = self.config
        async with _failing():
            if self._tine is None:
                self._tine = await self._stack.enter_async_context(_adapters.shared(config.url))
            world = await self._tine.open(
                servers=config.servers, template=config.template, labels=config.labels, idle=config.idle, timeouts=config.timeouts
            )
            await self._close(self._worlds.pop(self._key(request), None))
            self._worlds[self._key(request)] = world
            if self._names is None:
                listed = await world.tools("mcp")
                self._names = {model: own for own, model in messages.model_names([tool["name"] for tool in listed]).items()}
            await self.setup(world, body)
        return BaseSeedSessionResponse()

    async def call_tool(self, tool: str, request: Request) -> Response:
        """Calls a tool. What the world's failure says is an answer here, too: agents show it to the model and
        go on, until `/verify` fails."""
        world = self._world(request)
        try:
            given = _json.loads(await request.body())
        except ValueError as error:
            return Response(f"the arguments of {tool} are not JSON: {error}", media_type="text/plain")
        own = (self._names or {}).get(tool, tool)
        if not isinstance(given, dict):
            return Response(f"the arguments of {tool} are not an object", media_type="text/plain")
        async with _failing():
            if world.failed is not None:
                raise world.failed
            result = await world.call(own, args=given)
        return Response(messages.as_text(result), media_type="text/plain")

    async def verify(self, request: Request, body: WorldVerifyRequest) -> WorldVerifyResponse:
        world = self._world(request)
        try:
            async with _failing():
                await world.check()
                reward = await self.reward(world, body)
        finally:
            await self._close(self._worlds.pop(self._key(request), None))
        return WorldVerifyResponse(**body.model_dump(), reward=reward)

    @staticmethod
    def _key(request: Request) -> str:
        return str(request.session[SESSION_ID_KEY])

    def _world(self, request: Request) -> World:
        world = self._worlds.get(self._key(request))
        if world is None:
            raise HTTPException(503, "this session has no world: /seed_session opens one, and it is kept by the worker that opened it")
        return world

    @staticmethod
    async def _close(world: World | None) -> None:
        if world is not None:
            await world.__aexit__()


@asynccontextmanager
async def _failing() -> AsyncIterator[None]:
    try:
        yield
    except WorldFailed as error:
        raise HTTPException(503, f"the world failed ({error.kind}): {error}") from error


async def response_tools(world: World) -> list[dict[str, Any]]:
    """The tools of a world for `responses_create_params.tools` of a dataset's rows."""
    return [{"type": "function", "strict": False, **tool["function"]} for tool in await world.tools("openai")]
