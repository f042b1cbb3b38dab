"""Tools, tool calls and results in the forms of the model APIs.

"openai" is the form of OpenAI's chat completions, which most servers of open models speak;
"anthropic" that of Anthropic's messages; "mcp" that of the protocol itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _json
from .errors import Invalid
from .result import Result

Format = Literal["openai", "anthropic", "mcp"]
MessageFormat = Literal["openai", "anthropic"]
Message = dict[str, Any]

_LONGEST = 64  # of a tool's name, in both APIs
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def model_names(names: Sequence[str]) -> dict[str, str]:
    """The names that a model is given for tools, by the tools' own: both APIs take letters, digits,
    dashes and underscores, 64 at most. A name that fits is left as it is."""
    out = {name: name for name in names if len(name) <= _LONGEST and not _FORBIDDEN.search(name)}
    taken = set(out)
    for name in names:
        if name in out:
            continue
        short = _FORBIDDEN.sub("_", name)
        if len(short) > _LONGEST or short in taken:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            short = f"{short[: _LONGEST - 9]}_{digest}"
        out[name] = short
        taken.add(short)
    return out


def tools(listed: Sequence[Mapping[str, Any]], names: Mapping[str, str], format: Format) -> list[dict[str, Any]]:
    """Tools as a model API takes them."""
    match format:
        case "mcp":
            return [dict(tool) for tool in listed]
        case "openai":
            return [{"type": "function", "function": _function(tool, names, "parameters")} for tool in listed]
        case "anthropic":
            return [_function(tool, names, "input_schema") for tool in listed]
    raise Invalid(f"format {format!r} is not known; it is openai, anthropic or mcp")


def _function(tool: Mapping[str, Any], names: Mapping[str, str], schema: str) -> dict[str, Any]:
    out = {"name": names[tool["name"]], schema: tool.get("inputSchema") or {"type": "object", "properties": {}}}
    if description := tool.get("description"):
        out["description"] = description
    return out


@dataclass(frozen=True)
class ToolCall:
    """One call that a model asks for."""

    id: str
    name: str
    #: The arguments, or why they can't be used.
    arguments: dict[str, Any] | str
    #: Arguments that can't be used, as the model wrote them.
    given: str = field(default="", compare=False)


def said(message: Any) -> str:
    """The text of an assistant's message, without what it thought."""
    plain = _plain(message)
    content = plain.get("content") if isinstance(plain, Mapping) else None
    if isinstance(content, str):
        return content
    blocks = [_plain(block) for block in content] if isinstance(content, (list, tuple)) else []
    texts = [block.get("text") for block in blocks if isinstance(block, Mapping) and block.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def tool_calls(message: Any) -> tuple[MessageFormat, list[ToolCall]]:
    """The tool calls of an assistant's message, and which form the message has. The message is a
    dict, or the object that a model's client returned."""
    plain = _plain(message)
    if not isinstance(plain, Mapping) or plain.get("role", "assistant") != "assistant":
        raise Invalid(f"act() takes an assistant's message of OpenAI's or Anthropic's API, not {_shown(plain)}")
    content = plain.get("content")
    asked = plain.get("tool_calls")
    if asked:
        return "openai", [_openai_call(_plain(call)) for call in asked]
    blocks = [_plain(block) for block in content] if isinstance(content, (list, tuple)) else []
    uses = [block for block in blocks if isinstance(block, Mapping) and block.get("type") == "tool_use"]
    if uses:
        return "anthropic", [_tool_call(str(use["id"]), str(use["name"]), use.get("input")) for use in uses]
    if "content" not in plain and "tool_calls" not in plain:
        raise Invalid("the message has neither content nor tool_calls; give act() the assistant's message, not the whole response")
    return ("anthropic" if blocks else "openai"), []


def _plain(value: Any) -> Any:
    """A model of pydantic as a dict; anything else as it is."""
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    try:
        return dump()
    except (ValueError, RecursionError):  # something in it is nested too deep
        return dict(value)


def _shown(value: Any) -> str:
    try:
        return str(value)[:200]
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deep"


def _openai_call(call: Any) -> ToolCall:
    function = _plain(call.get("function")) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise Invalid(f"a tool call without a function can't be made: {_shown(call)}")
    id, name, given = str(call.get("id")), str(function.get("name")), function.get("arguments")
    if not isinstance(given, str):
        return _tool_call(id, name, given)
    try:
        arguments = _object(_json.loads(given) if given.strip() else {}, name)
    except ValueError as error:
        arguments = f"the arguments of {name} are not JSON: {error}"
    return ToolCall(id, name, arguments, given if isinstance(arguments, str) else "")


def _tool_call(id: str, name: str, given: Any) -> ToolCall:
    arguments = _object(given, name)
    return ToolCall(id, name, arguments, "" if isinstance(arguments, dict) else _written(given))


def _written(given: Any) -> str:
    """A value as JSON, or as near to it as can be."""
    try:
        return _json.dumps(given)
    except (TypeError, ValueError):
        return _shown(given)


def _object(given: Any, name: str) -> dict[str, Any] | str:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return f"the arguments of {name} are not an object"
    return unfit(name, given) or dict(given)


def unfit(name: str, arguments: Mapping[str, Any]) -> str:
    """Why arguments that a model wrote can't be sent; empty where they can. Values of other types than JSON
    has are not the model's."""
    try:
        _json.dumps(arguments, allow_nan=False)
    except ValueError as error:
        return f"the arguments of {name} are not JSON: {error}"
    except TypeError:
        return ""
    return f"the arguments of {name} are nested deeper than {_json.DEEPEST} levels" if _json.too_deep(arguments) else ""


def answers(format: MessageFormat, results: Sequence[tuple[str, Result]]) -> list[Message]:
    """The messages to append to a conversation: the results by the ids of their calls."""
    if not results:
        return []
    if format == "openai":
        return [{"role": "tool", "tool_call_id": id, "content": as_text(result)} for id, result in results]
    blocks: list[dict[str, Any]] = []
    for id, result in results:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id, "content": _blocks(result)}
        if result.is_error:
            block["is_error"] = True
        blocks.append(block)
    return [{"role": "user", "content": blocks}]


def as_text(result: Result) -> str:
    """A result for a model that reads text alone. What is not text is named in brackets."""
    parts = [_item_text(item) for item in result.content]
    if not parts and result.data is not None:
        return _written(result.data)
    return "\n".join(parts)


def _item_text(item: Mapping[str, Any]) -> str:
    kind = item.get("type")
    if kind == "text":
        return str(item.get("text", ""))
    if kind == "resource" and isinstance(resource := item.get("resource"), Mapping):
        if isinstance(text := resource.get("text"), str):
            return text
        return f"[resource {resource.get('uri', '')} {resource.get('mimeType', '')}]"
    if kind == "resource_link":
        return f"[resource {item.get('uri', '')}]"
    return f"[{kind} {item.get('mimeType', '')}]"


def _blocks(result: Result) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for item in result.content:
        if item.get("type") == "image":
            source = {"type": "base64", "media_type": item.get("mimeType"), "data": item.get("data")}
            blocks.append({"type": "image", "source": source})
        elif text := _item_text(item):  # a block of no text is refused
            blocks.append({"type": "text", "text": text})
    if not result.content and result.data is not None:
        blocks.append({"type": "text", "text": as_text(result)})
    return blocks
