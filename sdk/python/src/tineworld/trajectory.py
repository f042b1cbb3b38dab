"""The story of a world: its calls, forks, rewinds and annotations, from its first ancestor on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from . import _json, messages, result
from .errors import Invalid, TineError
from .messages import Message, MessageFormat

CALL = "tools/call"
#: Of a call's meta, or of an annotation: the turn of the model that a call belongs to.
TURN = "tineworld/turn"
#: Of an annotation of a call: what the model read as its result, where that is not its server's.
ANSWER = "tineworld/answer"
#: Of an annotation: here the rollouts of a group begin.
SETUP = "tineworld/setup"
#: Of an annotation: `run` kept this rollout.
KEPT = "tineworld/kept"
#: Of a call's meta: the call that it scores, as the reward tool of an OpenEnv environment does.
REWARD = "openenv/reward"
#: Where a conversation begins: after a group's setup, at the fork, or at the first ancestor.
Start = Literal["setup", "fork", "all"]


class Step(TypedDict, total=False):
    """One line of a trajectory. `type` is session, tools, call, annotation, network, fork, snapshot,
    rewind, damage or close; what else there is depends on it."""

    type: str
    session: str
    of: str
    at: str
    step: int
    id: str
    run: str
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
    """The tool calls of a trajectory, without those that a rewind undid and those of OpenEnv's reward tools."""
    return [s for s in steps if _is_call(s) and not s.get("undone")]


def rewards(steps: Iterable[Step]) -> list[float]:
    """The rewards of a trajectory's annotations, in their order, without those that a rewind undid."""
    return [s["reward"] for s in steps if s.get("type") == "annotation" and "reward" in s and not s.get("undone")]


def to_messages(steps: Iterable[Step], format: MessageFormat = "openai", separator: str = "__", start: Start = "setup") -> list[Message]:
    """The calls of a trajectory as a conversation: the assistant's turns, each with what the tools
    answered. Calls of one message that `World.act` made are one turn, with the message's text and
    the ids and names that the model gave; any other call is a turn of its own. The text of an
    annotation is what the assistant said with its call, or, without a call, by itself. Calls that
    a rewind undid are left out, and those of OpenEnv's reward tools."""
    if format not in ("openai", "anthropic"):
        raise Invalid(f"format {format!r} is not known; it is openai or anthropic")
    whole = list(steps)
    told = [s for s in whole[_first(whole, start) :] if not s.get("undone")]
    noted: dict[str, list[str]] = {}
    read: dict[str, str] = {}
    for s in told:
        if s.get("type") == "annotation" and s.get("call"):
            if "text" in s:
                noted.setdefault(s["call"], []).append(s["text"])
            if ANSWER in _keys(s.get("data")):
                read[s["call"]] = str(s["data"][ANSWER])
    names = _Names(whole, separator)
    turns: dict[str, _Turn] = {}
    out: list[_Turn | Message] = []
    for s in told:
        if s.get("type") == "tools":
            names.now(s)
        part = _part(s)
        if s.get("type") == "annotation" and "text" in s and not s.get("call"):
            out.append({"role": "assistant", "content": s["text"]})
        if part is None and not _is_call(s):
            continue
        key = str(part["turn"]) if part is not None else s["id"]
        if key not in turns:
            turns[key] = _Turn(s["id"], int(part["of"]) if part is not None else 1)
            out.append(turns[key])
        turns[key].add(s, part, names, noted.get(s["id"], []), read.get(s["id"]))
    return [message for one in out for message in (one.messages(format) if isinstance(one, _Turn) else [one])]


def _first(steps: Sequence[Step], start: Start) -> int:
    """Where a conversation begins."""
    match start:
        case "all":
            return 0
        case "fork":
            begins = [i for i, s in enumerate(steps) if s.get("type") == "session"]
        case "setup":  # a rewind in a rollout may undo the mark, but not the setup before it
            begins = [i for i, s in enumerate(steps) if s.get("type") == "annotation" and SETUP in _keys(s.get("data"))]
        case _:
            raise Invalid(f"start {start!r} is not known; it is setup, fork or all")
    return begins[-1] + 1 if begins else 0


def is_kept(steps: Iterable[Step]) -> bool:
    """Whether a trajectory is that of a rollout that `run` kept."""
    return any(s.get("type") == "annotation" and s.get("session") == s.get("of") and KEPT in _keys(s.get("data")) for s in steps)


def _keys(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_call(s: Step) -> bool:
    return s.get("type") == "call" and s.get("method") == CALL and REWARD not in _keys(s.get("meta"))


def _part(s: Step) -> Mapping[str, Any] | None:
    """What `World.act` wrote of the turn that a call belongs to."""
    kept = s.get("meta") if _is_call(s) else s.get("data") if s.get("type") == "annotation" else None
    part = _keys(kept).get(TURN)
    return part if isinstance(part, Mapping) and {"turn", "at", "of", "id", "name"} <= part.keys() else None


class _Names:
    """The names of tools as `World.tools` gives them: by the list that was given last, or where
    none was given yet, by the first. A tool that no list has is named with its server."""

    def __init__(self, steps: Sequence[Step], separator: str) -> None:
        self._separator = separator
        self._others = sorted({self._full(s) for s in calls(steps)})
        self._given: dict[str, str] = {}
        self._set([])
        for s in steps:
            if s.get("type") == "tools" and self.now(s):
                break

    def now(self, s: Step) -> bool:
        if s.get("server") or not s.get("tools"):  # the list of one server's own endpoint, or one that was left out
            return False
        self._set([tool["name"] for tool in s["tools"]])
        return True

    def _set(self, listed: list[str]) -> None:
        self._given = messages.model_names([*listed, *(name for name in self._others if name not in listed)])
        self._listed = set(listed)

    def _full(self, s: Step) -> str:
        return s["server"] + self._separator + s["name"] if s.get("server") else s["name"]

    def of(self, s: Step) -> str:
        full = self._full(s)
        return self._given[s["name"] if full not in self._listed and s["name"] in self._listed else full]


class _Turn:
    """One message of the assistant, and the answers to its calls."""

    def __init__(self, id: str, of: int) -> None:
        self._id = id
        self._of = of
        self._said: list[str] = []
        self._noted: list[str] = []
        self._calls: list[tuple[int, messages.ToolCall, result.Result]] = []

    def add(self, s: Step, part: Mapping[str, Any] | None, names: _Names, noted: list[str], read: str | None) -> None:
        self._noted += noted
        if part is None:
            name = names.of(s)
            self._calls.append((0, messages.ToolCall(s["id"], name, _arguments(s)), _answer(s, name)))
            return
        self._said += [str(part["text"])] if part.get("text") else []
        name, at = str(part["name"]), int(part["at"])
        if _is_call(s):
            answer = _answer(s, name) if read is None else result.failed(name, s.get("outcome", ""), read)
            self._calls.append((at, messages.ToolCall(str(part["id"]), name, _arguments(s)), answer))
        else:
            answer = result.failed(name, "invalid", str(part.get("answer")))
            self._calls.append((at, messages.ToolCall(str(part["id"]), name, str(part.get("arguments"))), answer))

    def messages(self, format: MessageFormat) -> list[Message]:
        if len(self._calls) != self._of:
            raise TineError(
                f"the turn that begins with {self._id} has {len(self._calls)} of its {self._of} calls in the trajectory and makes no message; drop the rollout"
            )
        self._calls.sort(key=lambda one: one[0])
        asked = _asked(format, [call for _, call, _ in self._calls], "\n".join(self._noted or self._said))
        return [asked, *messages.answers(format, [(call.id, answer) for _, call, answer in self._calls])]


def _arguments(s: Step) -> dict[str, Any]:
    if s.get("journal") == "meta":
        raise _incomplete(s, "arguments", "the journal keeps only that it was made")
    arguments = dict(s.get("arguments") or {})
    if _json.too_deep(arguments):
        raise TineError(f"the arguments of call {s['id']} of {s['name']!r} are nested deeper than {_json.DEEPEST} levels and make no message; drop the rollout")
    return arguments


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


def _asked(format: MessageFormat, calls: Sequence[messages.ToolCall], text: str) -> Message:
    if format == "openai":
        return {"role": "assistant", "content": text or None, "tool_calls": [_openai(call) for call in calls]}
    said = [{"type": "text", "text": text}] if text else []
    return {"role": "assistant", "content": [*said, *(_anthropic(call) for call in calls)]}


def _openai(call: messages.ToolCall) -> dict[str, Any]:
    given = call.arguments if isinstance(call.arguments, str) else _json.dumps(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": given}}


def _anthropic(call: messages.ToolCall) -> dict[str, Any]:
    given: Any = call.arguments
    if isinstance(given, str):  # unusable ones, as JSON where they are
        with contextlib.suppress(ValueError):
            given = _json.loads(given)
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}
