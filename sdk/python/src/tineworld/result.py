"""The result of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _json
from .errors import Infrastructure, TineError, from_api


@dataclass(frozen=True)
class Result:
    """What a tool answered.

    `is_error` means that the answer is an error that the policy should see: the tool's own
    (`kind` is "tool"), or the policy's own mistake, such as an invented tool or wrong arguments
    (`kind` is "invalid"). With `timeouts="score"` a call that took too long is a result, too
    (`kind` is "timeout"). A failed world is never a result: it raises `WorldFailed`.
    """

    tool: str
    #: The items of the answer, as the server sent them.
    content: list[dict[str, Any]] = field(default_factory=list)
    #: The structured content of the answer; None where there is none.
    data: Any = None
    is_error: bool = False
    #: Empty, "tool", "invalid" or "timeout".
    kind: str = ""
    #: The whole answer, as it came; empty where the gateway gave none.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: The id of the call in the trajectory, where the gateway gives it.
    call: str = ""

    @property
    def text(self) -> str:
        """The text of the answer: its text items, a line break between them."""
        return "\n".join(item["text"] for item in self.content if item.get("type") == "text" and isinstance(item.get("text"), str))

    def json(self) -> Any:
        """The text, read as JSON."""
        try:
            return _json.loads(self.text)
        except ValueError as error:
            raise TineError(f"the answer of {self.tool} is not JSON ({error}): {self.text[:200]!r}") from None


def failed(tool: str, kind: str, message: str, call: str = "") -> Result:
    """An error as a result."""
    return Result(tool, content=[{"type": "text", "text": message}], is_error=True, kind=kind, call=call)


def from_wire(tool: str, answer: Any, call: str = "") -> Result:
    """Reads a CallToolResult. One that says that the world failed is raised."""
    if not isinstance(answer, dict):
        raise Infrastructure(f"the gateway answered a call of {tool} without a result")
    content = answer.get("content") or []
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise Infrastructure(f"the answer of {tool} has no list of content: its server does not keep to the protocol")
    error = answer.get("isError") is True
    kind = "tool" if error else ""
    meta = answer.get("_meta")
    if error and isinstance(meta, dict) and isinstance(meta.get("tine/error"), dict):
        failure = from_api(meta["tine/error"])
        kind = str(meta["tine/error"].get("kind"))
        if kind not in ("tool", "invalid"):
            raise failure
    return Result(tool, content, answer.get("structuredContent"), error, kind, answer, call)
