"""The story of a world: its calls, forks, rewinds and annotations, from its first ancestor on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypedDict

from . import messages, result
from .errors import Invalid, TineError
from .messages import Message, MessageFormat

CALL = "tools/call"


class Step(TypedDict, total=False):
    """One line of a trajectory. `type` is session, tools, call, annotation, network, fork, snapshot,
    rewind, damage or close; what else there is depends on it."""

    type: str
    session: str
    of: str
    at: str
    step: int
    id: str
    server: str
    method: str
    name: str
    arguments: Any
    result: Any
    meta: dict[str, Any]
    ms: float
    outcome: str
    error: str
    journal: str
    note: str
    undone: bool
    call: str
    reward: float
    text: str
    token_ids: list[int]
    logprobs: list[float | None]
    data: Any
    tools: list[dict[str, Any]]
    parent: str
    children: list[str]
    snapshot: str
    labels: dict[str, str]
    reason: str
    kept: str
    words: str


def calls(steps: Iterable[Step]) -> list[Step]:
    """The tool calls of a trajectory, without those that a rewind undid."""
    return [s for s in steps if s.get("type") == "call" and s.get("method") == CALL and not s.get("undone")]


def rewards(steps: Iterable[Step]) -> list[float]:
    """The rewards of a trajectory's annotations, in their order, without those that a rewind undid."""
    return [s["reward"] for s in steps if s.get("type") == "annotation" and "reward" in s and not s.get("undone")]


def to_messages(steps: Iterable[Step], format: MessageFormat = "openai", separator: str = "__") -> list[Message]:
    """The calls of a trajectory as a conversation: the assistant's tool calls, each with what the
    tool answered. The text of an annotation is what the assistant said with its call, or, without
    a call, by itself. Calls that a rewind undid are left out."""
    if format not in ("openai", "anthropic"):
        raise Invalid(f"format {format!r} is not known; it is openai or anthropic")
    told = [s for s in steps if not s.get("undone")]
    said = {s["call"]: s["text"] for s in told if s.get("type") == "annotation" and s.get("call") and "text" in s}
    names = messages.model_names(sorted({_name(s, separator) for s in calls(told)}))
    out: list[Message] = []
    for s in told:
        if s.get("type") == "annotation" and "text" in s and not s.get("call"):
            out.append({"role": "assistant", "content": s["text"]})
        elif s.get("type") == "call" and s.get("method") == CALL:
            asked = messages.ToolCall(s["id"], names[_name(s, separator)], _arguments(s))
            out.append(_asked(format, asked, said.get(s["id"], "")))
            out.extend(messages.answers(format, [(s["id"], _answer(s, asked.name))]))
    return out


def _name(s: Step, separator: str) -> str:
    return s["server"] + separator + s["name"] if s.get("server") else s["name"]


def _arguments(s: Step) -> dict[str, Any]:
    if s.get("journal") == "meta":
        raise _incomplete(s, "arguments", "the journal keeps only that it was made")
    return dict(s.get("arguments") or {})


def _answer(s: Step, name: str) -> result.Result:
    answer = s.get("result")
    if isinstance(answer, dict) and ("content" in answer or "structuredContent" in answer):
        return result.from_wire(name, answer, s["id"])
    if s.get("outcome") in ("invalid", "tool", "timeout"):  # an error of the protocol
        words = answer.get("message") if isinstance(answer, dict) else None
        return result.failed(name, s["outcome"], words or s.get("error") or s["outcome"])
    raise _incomplete(s, "result", s.get("error") or s.get("outcome") or "unknown")


def _incomplete(s: Step, what: str, why: str) -> TineError:
    mend = "drop the rollout, or set journal: full for the server"
    return TineError(f"call {s['id']} of {s['name']!r} has no {what} in the trajectory ({s.get('note') or why}) and makes no message; {mend}")


def _asked(format: MessageFormat, call: messages.ToolCall, text: str) -> Message:
    if format == "openai":
        function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
        tool_call = {"id": call.id, "type": "function", "function": function}
        return {"role": "assistant", "content": text or None, "tool_calls": [tool_call]}
    use = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
    return {"role": "assistant", "content": [*([{"type": "text", "text": text}] if text else []), use]}
