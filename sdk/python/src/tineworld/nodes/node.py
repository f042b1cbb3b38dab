"""Nodes: something that has a name, a description, parameters, and can be invoked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class ToolInfo:
    """What a language model is told about a node. `parameters` is a JSON Schema."""

    name: str
    detail: str
    parameters: Mapping[str, Any]


class Node:
    """A node is a class. `prepare_tool` gives it arguments, and `invoke` runs it.

    >>> translate.prepare_tool(text="Hello", target="es").invoke()
    """

    _info: ClassVar[ToolInfo]

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = dict(arguments)

    @classmethod
    def name(cls) -> str:
        return cls._info.name

    @classmethod
    def tool_info(cls) -> ToolInfo:
        return cls._info

    @classmethod
    def prepare_tool(cls, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Takes the arguments as a dict, as keywords, or both."""
        return cls({**(arguments or {}), **more})

    @classmethod
    def renamed(cls, name: str) -> type[Self]:
        """The same node by another name, such as where two servers have a tool of one name."""
        info = ToolInfo(name, cls._info.detail, cls._info.parameters)
        return type(name, (cls,), {"_info": info, "__doc__": cls.__doc__})

    def invoke(self) -> Any:
        """Runs the node and returns its value."""
        raise NotImplementedError
