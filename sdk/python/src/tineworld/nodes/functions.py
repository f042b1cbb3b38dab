"""Functions as nodes."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar, Self, overload

import pydantic

from ._versions import Tool
from .node import Node, ToolInfo


class FunctionNode(Node):
    """A node that calls a function, which `function` is. Called itself, it is the function."""

    function: ClassVar[Callable[..., Any]]
    _checked: ClassVar[Callable[..., Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.function(*args, **kwargs)

    @classmethod
    def prepare_tool(cls, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        made = object.__new__(cls)
        Node.__init__(made, {**(arguments or {}), **more})
        return made

    def invoke(self) -> Any:
        """Calls the function. Wrong arguments are a RuntimeError; what the function raises is raised."""
        try:
            value = type(self)._checked(**self.arguments)
        except pydantic.ValidationError as error:
            raise RuntimeError(f'node "{self.name()}" got wrong arguments: {error}') from error
        return _finish(value) if inspect.iscoroutine(value) else value


@overload
def function_node(function: Callable[..., Any], /, *, name: str | None = None, description: str | None = None) -> type[FunctionNode]: ...
@overload
def function_node(*, name: str | None = None, description: str | None = None) -> Callable[[Callable[..., Any]], type[FunctionNode]]: ...
def function_node(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
) -> type[FunctionNode] | Callable[[Callable[..., Any]], type[FunctionNode]]:
    """Makes a node of a function, by its annotations and its docstring. A decorator, also with arguments.
    The node can still be called as the function.

    >>> @function_node
    ... def add(a: int, b: int = 1) -> int:
    ...     "Return a + b."
    ...     return a + b
    >>> add.prepare_tool(a=2, b=3).invoke(), add(2)
    (5, 3)
    """
    if function is None:
        return functools.partial(_make, name=name, description=description)
    return _make(function, name=name, description=description)


def _make(function: Callable[..., Any], *, name: str | None, description: str | None) -> type[FunctionNode]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f'parameter "{parameter}" of {function} can\'t be given by name; a node has named parameters only')
    tool = Tool.from_function(function, name=name, description=description or inspect.getdoc(function) or "")
    attributes = {
        "_info": ToolInfo(tool.name, tool.description, {**tool.parameters, "additionalProperties": False}),
        "_checked": staticmethod(pydantic.validate_call(function)),
        "function": staticmethod(function),
        "__doc__": function.__doc__,
        "__module__": function.__module__,
    }
    return type(tool.name, (FunctionNode,), attributes)


def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    """Waits for a coroutine, also where an event loop runs already."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(work))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="tineworld-node", daemon=True).start()
    return done.result()
