"""Worlds for verifiers 0.4: a task whose tools are those of a world of its own.

A taskset's module exports its taskset and `WorldEnv`:

>>> class Writing(WorldTaskset):
...     task = Write  # a WorldTask with rewards
...     def rows(self): return [{"prompt": "Write 4 into a.txt."}]
>>> __all__ = ["Writing", "WorldEnv"]

A rollout whose world failed has the error `SandboxError` and no reward, so that `--env.retries.rules`
can play it again in another world.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Self

from . import _adapters, client
from .errors import Invalid, WorldFailed
from .world import Timeouts, World

try:
    import verifiers.v1 as vf
    from pydantic import SerializeAsAny
    from typing_extensions import TypeVar
except ImportError as error:
    raise _adapters.missing("verifiers 0.4", "verifiers", error) from error

__all__ = ["WorldConfig", "WorldData", "WorldEnv", "WorldTask", "WorldTaskset", "WorldTasksetConfig", "WorldTools"]


class WorldConfig(vf.TaskConfig):
    """Where worlds are opened and what they are like: `--env.taskset.task.*`."""

    url: str | None = None
    """The gateway's URL; by default `TINE_URL`, or this machine's. Its token is that of `TINE_TOKEN`."""
    servers: list[str] | None = None
    """The servers of a world; by default all of the gateway's config."""
    template: str | None = None
    """The snapshot that worlds begin with."""
    labels: dict[str, str] = {}
    timeouts: Timeouts = "drop"
    """Whether a call that takes too long fails the world (`drop`), or counts as the policy's (`score`)."""
    tools: vf.ToolsetConfig = vf.ToolsetConfig()
    """Set for each rollout: the URL of its world."""


class WorldData(vf.TaskData):
    """A task's own data; what it has takes precedence over the config."""

    servers: list[str] | None = None
    template: str | None = None
    labels: dict[str, str] = {}


DataT = TypeVar("DataT", bound=WorldData, default=WorldData)
StateT = TypeVar("StateT", bound=vf.State, default=vf.State)
ConfigT = TypeVar("ConfigT", bound=WorldConfig, default=WorldConfig)


class WorldTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    """The tools of a world, by their own names."""

    TOOL_PREFIX = None


class WorldTask(vf.Task[DataT, StateT, ConfigT], Generic[DataT, StateT, ConfigT]):
    """A task that is played in a world. `setup`, `finalize` and rewards use it as `self.world`."""

    _world: World | None = None
    _asked = False

    @property
    def world(self) -> World:
        if self._world is None:
            raise Invalid(f"{type(self).__name__} has no world; export WorldEnv in the taskset's module, or set --env.id")
        return self._world

    def in_world(self, world: World) -> Self:
        """This task with the tools of a world."""
        clone = copy.copy(self)
        tools = self.config.tools.model_copy(update={"url": _adapters.url_with_token(world)})
        clone.config = self.config.model_copy(update={"tools": tools})
        clone._world, clone._asked = world, False
        return clone

    @classmethod
    def data_type(cls) -> type[WorldData]:
        found = super().data_type()
        return found if issubclass(found, WorldData) else WorldData

    @classmethod
    def config_type(cls) -> type[WorldConfig]:
        found = super().config_type()
        return found if issubclass(found, WorldConfig) else WorldConfig

    @classmethod
    def toolsets(cls, config: ConfigT) -> list[vf.Toolset]:
        return [WorldTools(config.tools)] if config.tools.url else []

    async def finalize(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Raises `SandboxError` if the world failed. A task with a finalizer of its own awaits this one."""
        await self._whole()

    async def score(self, trace: vf.Trace, runtime: vf.Runtime | None = None) -> None:
        if self._world is not None and not self._asked:
            await self._whole()
        try:
            await super().score(trace, runtime)
        except vf.TaskError as error:
            if isinstance(error.__cause__, WorldFailed):
                raise _sandbox_error(error.__cause__) from error
            raise

    async def _whole(self) -> None:
        try:
            await self.world.check()
        except WorldFailed as error:
            raise _sandbox_error(error) from error
        self._asked = True


class WorldTasksetConfig(vf.TasksetConfig):
    task: SerializeAsAny[WorldConfig] = WorldConfig()


class WorldTaskset(vf.Taskset[WorldTask, WorldTasksetConfig]):
    """Tasks that are played in worlds, one for each of `rows`. A taskset with a config of its own
    derives from `vf.Taskset[MyTask, MyConfig]`, too."""

    task: ClassVar[type[WorldTask]] = WorldTask
    """The class of its tasks."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, Any]]:
        """The data of the tasks."""

    def load(self) -> Iterable[WorldTask]:
        for row in self.rows():
            yield self.task(self.task.data_type()(**row), self.config.task)

    @classmethod
    def task_type(cls) -> type[WorldTask]:
        return cls.task


class WorldEnv(vf.SingleAgentEnv):
    """Opens a world for each episode and closes it at its end."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if not isinstance(self.taskset.config.task, WorldConfig):
            raise TypeError(f"WorldEnv plays tasks whose config is a WorldConfig; {type(self.taskset).__name__} has {type(self.taskset.config.task).__name__}")
        retries = config.agent.retries
        if retries.max_retries or any(rule.max_retries for rule in retries.rules):
            raise ValueError("env.agent.retries would play again in the world that the first attempt changed; use env.retries, which opens another one")
        self._tine: client.Tine | None = None

    async def start(self) -> None:
        await super().start()
        self._tine = await client.connect(self.taskset.config.task.url)

    async def stop(self) -> None:
        tine, self._tine = self._tine, None
        if tine is not None:
            await tine.close()
        await super().stop()

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        if not isinstance(task, WorldTask):
            raise TypeError(f"WorldEnv plays instances of WorldTask, not {type(task).__name__}")
        if self._tine is None:
            raise RuntimeError("WorldEnv runs inside `async with env.serving()`")
        config, data = task.config, task.data
        servers = data.servers if data.servers is not None else config.servers
        opening = self._tine.open(
            servers=servers, template=data.template or config.template, labels=config.labels | data.labels, timeouts=config.timeouts
        )
        try:
            async with opening as world:
                trace = await agents.agent.run(task.in_world(world))
                if not trace.ok and all(error.type != "SandboxError" for error in trace.errors):
                    await world.check()  # what the harness died of may be the world's failure
        except WorldFailed as error:
            raise _sandbox_error(error) from error


def _sandbox_error(error: WorldFailed) -> vf.SandboxError:
    return vf.SandboxError(f"the world failed ({error.kind}): {error}")
