"""Worlds for TRL 1.16: an `environment_factory` whose tools are those of a world.

>>> with tineworld.sync.connect() as t:
...     factory = environment_factory(t, Spec(servers=["files"]), reward=lambda world, row: ...)
...     GRPOTrainer(model, environment_factory=factory, train_dataset=rows).train()

A rollout whose world failed has the reward None. TRL masks a row only if all its rewards are None:
wrap your own reward functions with `masked`.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Optional

from . import _adapters, messages, sync
from ._session import Spec
from .errors import Invalid, WorldClosed, WorldFailed
from .world import Timeouts

try:
    import trl as _trl
except ImportError as error:
    raise _adapters.missing("trl 1.16", "trl", error) from error

__all__ = ["Environment", "environment_factory", "masked"]

log = logging.getLogger("tineworld")
Row = dict[str, Any]
_OURS = ("reset", "get_reward", "world", "failed", "row")  # names that no tool gets
_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class Environment:
    """The base of the classes that `environment_factory` makes. Each instance has one world at a time.
    TRL takes every public function of the class for a tool, so that the others here are private, or
    properties."""

    _tine: sync.Tine
    _spec: Spec | Callable[[Row], Spec]
    _timeouts: Timeouts
    _setup: Callable[[sync.World, Row], str | None] | None
    _reward: Callable[[sync.World, Row], float | None] | None

    def __init__(self) -> None:
        self._world: sync.World | None = None
        self._failure: WorldFailed | None = None
        #: The row of the dataset that is played.
        self.row: Row = {}

    @property
    def world(self) -> sync.World:
        """The world of the rollout. Raises if it failed."""
        if self._failure is not None:
            raise self._failure
        if self._world is None:
            raise WorldClosed("this environment has no world yet; reset() opens one")
        return self._world

    @property
    def failed(self) -> WorldFailed | None:
        """Why the world failed, so far as this program knows; None as long as it did not."""
        return self._failure or (self._world.failed if self._world is not None else None)

    def reset(self, **row: Any) -> str | None:
        """Opens a world for a row, and closes the last one. A world that can't be opened does not end
        the training: its rollout is masked."""
        last, self._world, self._failure, self.row = self._world, None, None, row
        if last is not None:
            last.__exit__()
        spec = self._spec(row) if callable(self._spec) else self._spec
        try:
            self._world = self._tine.open_spec(spec, timeouts=self._timeouts)
            return self._setup(self._world, row) if self._setup is not None else None
        except WorldFailed as error:
            self._fail(error)
            return None

    def _fail(self, error: WorldFailed) -> None:
        if self._failure is None:
            log.warning("a rollout is masked, since its world failed (%s): %s", error.kind, error)
            self._failure = error

    def _whole(self) -> bool:
        """Asks the gateway whether the world is whole."""
        if self._failure is None:
            try:
                self.world.check()
            except WorldFailed as error:
                self._fail(error)
        return self._failure is None

    def _score(self) -> float | None:
        if not self._whole():
            return None
        assert self._reward is not None
        try:
            return self._reward(self.world, self.row)
        except WorldFailed as error:
            self._fail(error)
            return None

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        try:
            return messages.as_text(self.world.call(tool, args=arguments))
        except WorldFailed as error:
            self._fail(error)
            raise


def environment_factory(
    tine: sync.Tine,
    spec: Spec | Callable[[Row], Spec] = Spec(),
    *,
    reward: Callable[[sync.World, Row], float | None] | None = None,
    setup: Callable[[sync.World, Row], str | None] | None = None,
    timeouts: Timeouts = "drop",
) -> type[Environment]:
    """A class for `GRPOTrainer(environment_factory=...)`, with a method for each tool of a world.

    `spec` says what worlds are like, or is a function that says it of a row; the tools are those of an
    empty row. `setup` is called with each new world and its row; a string that it returns is appended to
    the prompt. With `reward` the environment scores its rollouts itself, beside `reward_funcs`.
    """
    with tine.open_spec(spec({}) if callable(spec) else spec) as probe:
        listed = probe.tools("mcp")
    names = _adapters.identifiers([tool["name"] for tool in listed], _OURS)
    members: dict[str, Any] = {names[tool["name"]]: _method(names[tool["name"]], tool) for tool in listed}
    members |= {"_tine": tine, "_spec": spec if isinstance(spec, Spec) else staticmethod(spec), "_timeouts": timeouts}
    members["_setup"] = None if setup is None else staticmethod(setup)
    members["_reward"] = None if reward is None else staticmethod(reward)
    if reward is not None:
        members["get_reward"] = _get_reward
    return type("World", (Environment,), members)


def _get_reward(self: Environment) -> float | None:
    return self._score()


def _method(name: str, tool: Mapping[str, Any]) -> Callable[..., str]:
    """A method with the signature and the docstring that TRL makes the tool's schema of."""
    own = tool["name"]
    schema = tool.get("inputSchema") or {}
    properties: Mapping[str, Any] = schema.get("properties") or {}
    arguments = _adapters.identifiers(list(properties), ("self",))
    back = {identifier: argument for argument, identifier in arguments.items()}

    def method(self: Environment, /, **given: Any) -> str:
        return self._call(own, {back.get(key, key): value for key, value in given.items()})

    required = set(schema.get("required") or ())
    parameters, lines = [], []
    for argument in sorted(properties, key=lambda one: one not in required):
        about = properties[argument] if isinstance(properties[argument], Mapping) else {}
        default = inspect.Parameter.empty if argument in required else about.get("default")
        hint = _hint(about)
        parameters.append(inspect.Parameter(arguments[argument], inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        lines.append(f"    {arguments[argument]}: {_about(argument, about)}")
    method.__name__ = method.__qualname__ = name
    method.__doc__ = _line(tool.get("description") or own) + ("\n\nArgs:\n" + "\n".join(lines) if lines else "")
    method.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": str}
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = inspect.Signature([itself, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    return method


def _hint(schema: Mapping[str, Any]) -> Any:
    """The type of an argument, as far as type hints say it. An argument that may be null is optional."""
    kind = schema.get("type")
    choices = [one for one in schema.get("anyOf") or schema.get("oneOf") or () if isinstance(one, Mapping)]
    if isinstance(kind, list):
        choices = [{**schema, "type": one} for one in kind]
    if choices:
        left = [one for one in choices if one.get("type") != "null"]
        inner = _hint(left[0]) if len(left) == 1 else Any
        return Optional[inner] if len(left) < len(choices) and inner is not Any else inner
    if kind == "array" and isinstance(items := schema.get("items"), Mapping):
        inner = _hint(items)
        return list if inner is Any else list[inner]  # type: ignore[valid-type]
    return _TYPES.get(str(kind), Any)


def _about(argument: str, schema: Mapping[str, Any]) -> str:
    """The description of an argument. What its type hint can't say is in it as a schema."""
    text = _line(str(schema.get("description") or argument))
    kept = {key: value for key, value in schema.items() if key not in ("description", "title", "default", "type", "enum")}
    if set(kept) - {"items"} or _nested(kept.get("items")):
        text += " JSON schema: " + json.dumps({"type": schema["type"], **kept} if "type" in schema else kept)
    if choices := schema.get("enum"):
        text += f" (choices: {json.dumps(choices)})"
    return text


def _nested(items: Any) -> bool:
    return isinstance(items, Mapping) and bool(set(items) - {"type", "description"})


def _line(text: str) -> str:
    """Text on one line, without what a docstring's parser takes for a heading."""
    return re.sub(r"\b(Args|Returns|Raises):", r"\1 -", " ".join(text.split()))


def masked(reward_func: Callable[..., Any]) -> Callable[..., Any]:
    """A reward function that returns None for rollouts whose world failed. Yours gets the others alone;
    if a world fails under it, it is called again without that one.

    >>> GRPOTrainer(model, reward_funcs=[masked(short), masked(polite)], environment_factory=factory)
    """
    if not callable(reward_func) or hasattr(reward_func, "forward"):
        raise Invalid(f"masked() takes a reward function, not {type(reward_func).__name__}; call a reward model in a function")
    if _is_async(reward_func):

        @functools.wraps(reward_func)
        async def later(**given: Any) -> list[float | None]:
            environments = _environments(given)
            while True:
                whole = [at for at, one in enumerate(environments) if one._whole()]
                try:
                    return _spread(await reward_func(**_rows(given, whole)) if whole else [], whole, len(environments))
                except WorldFailed:
                    if all(environments[at]._whole() for at in whole):
                        raise  # it is none of these worlds

        return later

    @functools.wraps(reward_func)
    def now(**given: Any) -> list[float | None]:
        environments = _environments(given)
        while True:
            whole = [at for at, one in enumerate(environments) if one._whole()]
            try:
                return _spread(reward_func(**_rows(given, whole)) if whole else [], whole, len(environments))
            except WorldFailed:
                if all(environments[at]._whole() for at in whole):
                    raise  # it is none of these worlds

    return now


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def _environments(given: Mapping[str, Any]) -> list[Environment]:
    environments = given.get("environments")
    if not environments or not all(isinstance(one, Environment) for one in environments):
        raise Invalid("masked() is for trainers whose environment_factory is one of tineworld.trl")
    return list(environments)


def _rows(given: Mapping[str, Any], whole: list[int]) -> Row:
    """What TRL gives a reward function, of some rows: lists have an item for each."""
    count = len(given["environments"])
    out = {key: [value[at] for at in whole] if isinstance(value, list) and len(value) == count else value for key, value in given.items()}
    if callable(extra := given.get("log_extra")):
        out["log_extra"] = lambda column, values: extra(column, _spread(values, whole, count))
    return out


def _spread(values: Any, whole: list[int], count: int) -> list[Any]:
    values = list(values)
    if len(values) != len(whole):
        raise ValueError(f"the reward function returned {len(values)} values for {len(whole)} rollouts")
    out: list[Any] = [None] * count
    for at, value in zip(whole, values):
        out[at] = value
    return out
