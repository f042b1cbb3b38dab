"""Worlds for inspect-ai: a solver whose tools are those of a world, and a sandbox.

>>> Task(dataset=..., solver=in_world(generate(), spec=Spec(servers=["files"])), scorer=..., fail_on_error=False)

A sample whose world failed has an error and no score. A mistake of the model is a tool's error, which
the model sees.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from pathlib import PurePosixPath
from typing import Any, Literal, overload

from . import _adapters, messages
from ._session import Spec
from .errors import Invalid, UnusableFiles
from .result import Result
from .world import Timeouts, World

try:
    from inspect_ai.model import ContentImage, ContentText
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.tool import Tool, ToolDef, ToolError, ToolParams, ToolSource
    from inspect_ai.util import ExecResult, OutputLimitExceededError, SandboxEnvironment, SandboxEnvironmentLimits, SandboxUserUnsupportedError, sandboxenv
    from inspect_ai.util import sandbox as _sandbox
    from pydantic import BaseModel, ConfigDict
except ImportError as error:
    raise _adapters.missing("inspect-ai 0.3", "inspect", error) from error

__all__ = ["WorldSandbox", "WorldSandboxConfig", "in_world", "sample_world", "tools_of", "world_tools"]

# Exits with the number of the system's error for a file ($2, in $3), to which someone lacks a right ($1).
_CAUSE = 'if [ -d "$2" ]; then exit 21; elif [ -e "$2" ]; then [ "$1" "$2" ]; else [ "$1" "$3" ]; fi || exit 13'

_current: ContextVar[World | None] = ContextVar("tineworld_inspect", default=None)
Hook = Callable[[World, TaskState], Awaitable[None]]


@solver
def in_world(
    *inner: Solver,
    spec: Spec | Callable[[TaskState], Spec] = Spec(),
    url: str | None = None,
    setup: Hook | None = None,
    after: Hook | None = None,
    timeouts: Timeouts = "drop",
) -> Solver:
    """Opens a world for each sample, gives its tools to the model and solves with `inner`, by default
    `generate()`. `setup` gets the world before that, and `after` when it is done: scorers run when the
    world is closed, so put what they need into `state.store`. In a sample with a `WorldSandbox` the
    solver uses the sandbox's world, which scorers can still use."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        async with AsyncExitStack() as stack:
            world = _found()
            if world is None:
                tine = await stack.enter_async_context(_adapters.shared(url))
                wanted = spec(state) if callable(spec) else spec
                world = await stack.enter_async_context(tine.open_spec(wanted, timeouts=timeouts))
            token = _current.set(world)
            stack.callback(_current.reset, token)
            if setup is not None:
                await setup(world, state)
            state.tools.extend(await tools_of(world))
            for one in inner or (_generate,):
                state = await one(state, generate)
                if state.completed:
                    break
            await world.check()
            if after is not None:
                await after(world, state)
        return state

    return solve


async def _generate(state: TaskState, generate: Generate) -> TaskState:
    return await generate(state)


def sample_world() -> World:
    """The world of the sample that runs, of `in_world` or of its sandbox."""
    world = _found()
    if world is None:
        raise Invalid("this sample has no world; use in_world() as the solver, or the sandbox `tine`")
    return world


def _found() -> World | None:
    if (world := _current.get()) is not None:
        return world
    try:
        found: World = _sandbox().as_type(WorldSandbox).world
    except (LookupError, ProcessLookupError, TypeError):  # the sample has no sandbox, or another one
        return None
    return found


class _WorldTools(ToolSource):
    async def tools(self) -> list[Tool]:
        return await tools_of(sample_world())


def world_tools() -> ToolSource:
    """The tools of the sample's world, for agents: `in_world(as_solver(react(tools=[world_tools()])))`."""
    return _WorldTools()


async def tools_of(world: World) -> list[Tool]:
    """The tools of a world. A call that fails the world fails the sample."""
    listed = await world.tools("mcp")
    names = messages.model_names([tool["name"] for tool in listed])
    return [_tool(world, names[tool["name"]], tool) for tool in listed]


def _tool(world: World, name: str, tool: Mapping[str, Any]) -> Tool:
    own = tool["name"]

    async def execute(**given: Any) -> Any:
        result = await world.call(own, args=given)
        if result.is_error:
            raise ToolError(messages.as_text(result))
        return _content(result)

    schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
    parameters = ToolParams.model_validate({"properties": {}, "required": []} | dict(schema))
    for argument, about in parameters.properties.items():  # inspect-ai wants a description of each
        about.description = about.description or argument
    return ToolDef(execute, name=name, description=tool.get("description") or own, parameters=parameters).as_tool()


def _content(result: Result) -> Any:
    if not any(item.get("type") == "image" for item in result.content):
        return messages.as_text(result)
    return [
        ContentImage(image=f"data:{item.get('mimeType')};base64,{item.get('data')}")
        if item.get("type") == "image"
        else ContentText(text=messages.as_text(Result(result.tool, [item])))
        for item in result.content
    ]


class WorldSandboxConfig(BaseModel):
    """What `sandbox=("tine", WorldSandboxConfig(server="box"))` takes."""

    model_config = ConfigDict(frozen=True)

    server: str
    """The server beside which commands run, and whose files are read and written."""
    servers: tuple[str, ...] | None = None
    """The servers of the world; by default all of the gateway's config."""
    template: str | None = None
    url: str | None = None
    workdir: str = "/tmp"
    """Where commands run, and what relative paths start from."""


@sandboxenv(name="tine")
class WorldSandbox(SandboxEnvironment):
    """A world as the sandbox of a sample: commands run beside one of its servers."""

    def __init__(self, world: World, config: WorldSandboxConfig, stack: AsyncExitStack) -> None:
        super().__init__()
        self.world = world
        self._config = config
        self._stack = stack

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        if not isinstance(config, WorldSandboxConfig):
            raise Invalid('the sandbox `tine` needs to know the server: sandbox=("tine", WorldSandboxConfig(server="..."))')
        async with AsyncExitStack() as stack:
            tine = await stack.enter_async_context(_adapters.shared(config.url))
            world = await stack.enter_async_context(tine.open(servers=config.servers, template=config.template))
            return {"default": cls(world, config, stack.pop_all())}

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool) -> None:
        for one in environments.values():
            if isinstance(one, WorldSandbox):
                await one._stack.aclose()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return WorldSandboxConfig.model_validate(config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command. One that takes too long is the model's, and raises `TimeoutError`."""
        argv = ["/bin/sh", "-c", 'exec "$@"', "sh", *cmd]  # a program that does not exist is a result
        try:
            ran = await self.world.exec(
                self._config.server, argv, stdin=input or b"", cwd=self._path(cwd or "."), env=env, user=user, timeout=timeout
            )
        except Invalid as error:
            if user is None:
                raise
            raise SandboxUserUnsupportedError(str(error)) from error
        if ran.timed_out:
            raise TimeoutError(f"{' '.join(cmd)[:200]}: not done within {timeout} s")
        for output in (ran.out, ran.err):
            if len(output) > SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, None)
        code = ran.exit if ran.exit is not None else 128
        return ExecResult(success=ran.ok, returncode=code, stdout=ran.stdout, stderr=ran.stderr + (f"ended by signal {ran.signal}" if ran.signal else ""))

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._path(file)
        made = await self.world.exec(self._config.server, ["mkdir", "-p", str(PurePosixPath(path).parent)])
        if not made.ok:
            raise PermissionError(made.stderr.strip())
        try:
            await self.world.put(self._config.server + path, contents)
        except (Invalid, UnusableFiles) as error:
            raise await self._cause("w", path) or error from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        path = self._path(file)
        try:
            data, folder = await self.world.read(self._config.server + path)
        except (Invalid, UnusableFiles) as error:
            if error.status == 404:
                raise FileNotFoundError(2, "no such file", path) from error
            if error.status == 413:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
            raise await self._cause("r", path) or error from error
        if folder:
            raise IsADirectoryError(21, "is a folder", path)
        if len(data) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    async def _cause(self, right: Literal["r", "w"], path: str) -> OSError | None:
        """Why the model's file can't be read or written, where that is the model's mistake."""
        ran = await self.world.exec(self._config.server, ["/bin/sh", "-c", _CAUSE, "sh", f"-{right}", path, str(PurePosixPath(path).parent)])
        match ran.exit:
            case 21:
                return IsADirectoryError(21, "is a folder", path)
            case 13:
                return PermissionError(13, "permission denied", path)
        return None

    def _path(self, path: str) -> str:
        return str(PurePosixPath(self._config.workdir) / path)
