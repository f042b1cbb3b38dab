"""A world: one session of a gateway."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _json, messages, result, trajectory
from ._features import MissingFeature
from ._opening import Opening
from ._places import Places
from ._wire import Ask, encode, new_key
from .errors import BrokenOff, Infrastructure, Invalid, Lost, Refused, SetupFailed, Timeout, ToolFailed, WorldFailed, from_api
from .messages import Format, Message, MessageFormat
from .result import Result
from .trajectory import Start, Step

if TYPE_CHECKING:
    from .client import Tine

log = logging.getLogger("tineworld")
#: What becomes of a call that takes too long: a failure of the world, or a result that is scored.
Timeouts = Literal["drop", "score"]
_GRACE = 10.0  # what the gateway may take to say that a call took too long
_NOTED = 1 << 19  # characters of arguments that could not be used, in the trajectory; an annotation has 8 MiB at most


class World(Places):
    """An isolated environment with its own instances of the gateway's servers.

    >>> async with t.open(servers=["files"]) as w:
    ...     await w.call("files__write_file", path="a.txt", content="1")
    """

    def __init__(self, tine: Tine, session: Mapping[str, Any], timeouts: Timeouts = "drop", names: Mapping[str, str] | None = None) -> None:
        super().__init__(tine, session["id"])
        #: The URL of its own MCP endpoint, for other clients.
        self.url: str = session.get("url", "")
        #: A token that is good for this session alone; empty where the world was not opened here.
        self.token: str = session.get("token", "")
        self.labels: dict[str, str] = dict(session.get("labels") or {})
        #: What becomes of a call that takes too long.
        self.timeouts: Timeouts = timeouts
        #: Whether `call` raises SetupFailed for an error result, as in the setup of a group.
        self.strict = False
        self._names = dict(names or {})  # the tools by the names that models were given

    def __repr__(self) -> str:
        return f"<World {self.id}{' closed' if self.closed else ''}>"

    async def call(self, tool: str, /, *, args: Mapping[str, Any] | None = None, timeout: float | None = None, **arguments: Any) -> Result:
        """Calls a tool. Its arguments are keywords, or `args`, for those that are called args or
        timeout. `timeout` is in seconds; without it the server's own holds.

        >>> (await w.call("files__read_text_file", path="a.txt")).text
        """
        self._usable()
        if args is not None:
            if twice := sorted(args.keys() & arguments.keys()):
                raise Invalid(f"{tool}: {', '.join(twice)} is given twice, by keyword and in args")
            arguments = {**args, **arguments}
        return self._sound(await self._play(tool, arguments, timeout))

    def _sound(self, got: Result) -> Result:
        if self.strict and got.is_error:
            raise SetupFailed(f"{got.tool} in the setup of a group: {messages.as_text(got)}; mend the call, or catch SetupFailed if this is meant")
        return got

    async def _play(self, tool: str, arguments: Mapping[str, Any], timeout: float | None, turn: Mapping[str, Any] | None = None) -> Result:
        try:
            return await self._call(tool, arguments, timeout, turn)
        except Timeout as error:
            if self.timeouts == "score":
                return result.failed(tool, error.kind, str(error), error.call)
            raise self._fail(error) from None
        except WorldFailed as error:
            raise self._fail(error) from error.__cause__

    async def _call(self, tool: str, arguments: Mapping[str, Any], timeout: float | None, turn: Mapping[str, Any] | None) -> Result:
        body = self._request(tool, arguments)
        if turn is not None and self._tine.features.takes("CallRequest", "meta"):
            body["meta"] = {trajectory.TURN: turn}
        guard = None
        if timeout is not None:
            if not 0 < timeout < math.inf:
                raise Invalid(f"timeout of {tool} must be a number of seconds above 0, not {timeout}")
            guard = timeout
            if self._tine.features.takes("CallRequest", "timeout"):
                body["timeout"] = f"{max(1, round(timeout * 1000))}ms"
                guard += _GRACE
        if why := messages.unfit(tool, arguments):
            return result.failed(tool, "invalid", why)
        ask = Ask("POST", ("v1", "call"), body=encode(body))
        sent = self._tine.wire.exchange(ask, lambda got: self._tine.wire.read_json(ask, got))
        try:
            if guard is None:
                answer = await sent
            else:
                async with asyncio.timeout(guard):
                    answer = await sent
        except TimeoutError:
            raise Timeout(f"{tool} in {self.id}: no result within {timeout:g} s; it may have taken effect") from None
        except (Invalid, ToolFailed, BrokenOff, Refused) as error:
            return self._told(tool, error)
        if not isinstance(answer, dict):
            raise Infrastructure(f"{self._tine.url} answered a call of {tool} without a result")
        return result.from_wire(tool, answer.get("result"), str(answer.get("call") or ""))

    def _request(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool": tool, "arguments": dict(arguments), "session": self.id}

    def _told(self, tool: str, error: Exception) -> Result:
        """A mistake of the policy is a result; what else a call can fail with is raised."""
        match error:
            case Invalid() if error.status in (404, 410):
                raise Lost(f"{tool}: world {self.id} is gone: {error}", status=error.status)
            case Invalid():
                return result.failed(tool, "invalid", error.message, error.call)
            case ToolFailed():
                return result.failed(tool, "tool", error.message, error.call)
            case Refused() if error.status == 413:
                return result.failed(tool, "invalid", f"the arguments of {tool} are too large: {error.message}")
            case BrokenOff():
                raise Lost(f"{tool} in {self.id}: {error}") from error
        raise error

    async def act(self, message: Any, *, timeout: float | None = None) -> list[Message]:
        """Makes the tool calls of an assistant's message, one after another, and returns the
        messages to append: one for each call in OpenAI's form, one for all in Anthropic's. A
        message without tool calls gives none.

        Each call carries the turn that it belongs to in its `_meta`, for `to_messages`: the model's
        id and name of the call, and with the first call the message's text.

        >>> conversation += [message, *await w.act(message)]
        """
        self._usable()
        form, asked = messages.tool_calls(message)
        text, turn = messages.said(message), secrets.token_hex(8)
        done: list[tuple[str, Result]] = []
        for at, call in enumerate(asked):
            part: dict[str, Any] = {"turn": turn, "at": at, "of": len(asked), "id": call.id, "name": call.name}
            if text and at == 0:
                part["text"] = text
            name = self._names.get(call.name, call.name)
            if isinstance(call.arguments, str):
                await self._unmade(part, call.given, call.arguments)
                done.append((call.id, result.failed(name, "invalid", call.arguments)))
            else:
                got = await self._play(name, call.arguments, timeout, part)
                if got.call and not got.raw:  # not its server's answer, which the trajectory has
                    await self._note(part["name"], trajectory.ANSWER, messages.as_text(got), call=got.call)
                elif got.kind == "invalid" and not got.raw:  # the trajectory does not have the call
                    await self._unmade(part, _json.dumps(call.arguments), messages.as_text(got))
                done.append((call.id, got))
        return messages.answers(form, done)

    async def _unmade(self, part: Mapping[str, Any], given: str, answer: str) -> None:
        """Writes a call that was not made into the trajectory."""
        if len(given) > _NOTED:
            given = f"{given[:_NOTED]}... ({len(given)} characters)"
        await self._note(str(part["name"]), trajectory.TURN, {**part, "arguments": given, "answer": answer})

    async def _note(self, name: str, key: str, value: Any, *, call: str | None = None) -> None:
        """Writes what the model read of a call that was not made, or was a mistake, into the trajectory."""
        try:
            await self.annotate(data={key: value}, call=call)
        except (MissingFeature, Invalid, Refused) as error:
            log.warning("what was answered to a mistaken call of %s is not in the trajectory of %s: %s", name, self.id, error)

    async def tools(self, format: Format = "openai") -> list[dict[str, Any]]:
        """The tools of this world, as a model API takes them. A name that the APIs refuse is
        replaced by one that `act` knows. A server whose tools can't be listed fails the world."""
        self._usable()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        request = Ask("POST", ("s", self.id, "mcp"), body=encode(ask), repeat=True)
        answer = await self._ours(self._tine.wire.exchange(request, lambda got: self._tine.wire.read_json(request, got)))
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            error = answer.get("error") if isinstance(answer, dict) else None
            detail = (error or {}).get("data", {}).get("tine/error") or error or {}
            raise from_api(detail, prefix=f"the tools of {self.id} can't be listed: ")
        listed = answer["result"]
        for missing in (listed.get("_meta") or {}).get("tine/missing") or ():
            if not missing.get("kind"):  # one tool, by the config: another one has its name
                log.warning("world %s lacks a tool of server %s: %s", self.id, missing.get("server"), missing.get("reason"))
                continue
            message = f"world {self.id} has no tools of server {missing.get('server')!r}: {missing.get('reason')}"
            error = from_api(missing | {"message": message})
            raise self._fail(error) if isinstance(error, WorldFailed) else error
        names = messages.model_names([tool["name"] for tool in listed["tools"]])
        self._names = {model: name for name, model in names.items()}
        return messages.tools(listed["tools"], names, format)

    def fork(self, count: int = 1, *, labels: Mapping[str, str] | None = None, ttl: str | None = None, wait: str | None = None) -> Opening[list[World]]:
        """Worlds that begin with the state of this one, all or none. Await them, or use a block
        that closes them.

        >>> async with w.fork(8) as ws: ...
        """
        given = {"labels": dict(labels) if labels else None, "ttl": ttl, "wait": wait}
        body = {"count": count} | {k: v for k, v in given.items() if v is not None}

        async def fork() -> list[World]:
            self._usable()
            path = ("v1", "sessions", self.id, "forks")
            return await self._ours(self._tine.create(path, body, self._adopt, self._tine.close_worlds))

        return Opening(fork, self._tine.leave_worlds)

    def _adopt(self, forks: Any) -> list[World]:
        return [self._tine.adopt(session, self.timeouts, self._names) for session in forks["sessions"]]

    async def snapshot(self, name: str | None = None, *, labels: Mapping[str, str] | None = None) -> str:
        """Freezes this world and returns the snapshot's id. With a name it is a template, which
        outlives this world: `t.open(template=name)`."""
        self._usable()
        body = {k: v for k, v in {"name": name, "labels": dict(labels) if labels else None}.items() if v}
        path = ("v1", "sessions", self.id, "snapshots")
        return await self._ours(self._tine.create(path, body, lambda made: str(made["id"]), self._tine.delete_snapshot))

    async def rewind(self, snapshot: str | None = None) -> None:
        """Brings this world back to one of its snapshots, by default the newest."""
        self._usable()
        body = {"snapshot": snapshot} if snapshot else {}
        await self._ours(self._tine.wire.json("POST", "v1", "sessions", self.id, "rewind", body=body))
        self.failed = None

    async def info(self) -> dict[str, Any]:
        """What the gateway knows of this world: members, labels, damage, lifetime."""
        return dict(await self._tine.wire.json("GET", "v1", "sessions", self.id))

    async def check(self) -> None:
        """Raises if this world has failed: a call in it did, also one that another client made at its
        URL, it lost a part, or it has ended. Calls to servers with `journal: off` are not seen."""
        if self.failed is not None:
            raise self.failed
        now = await self._ours(self.info())
        if now.get("closed") and not self.closed:
            raise self._fail(Lost(f"world {self.id} was closed: {now.get('reason') or 'by another caller'}"))
        for damage in now.get("damaged") or ():
            raise self._fail(Lost(f"world {self.id} is damaged: {damage}", server=str(damage.get("server", ""))))
        if (failure := await self._failed_call()) is not None:
            raise self._fail(failure)

    async def _failed_call(self) -> WorldFailed | None:
        """The failure of a call that says that the world failed, and that no rewind has undone."""
        query = {"failed": "true", "limit": "1000"}
        while True:
            page = await self._ours(self._tine.wire.json("GET", "v1", "sessions", self.id, "calls", query=query))
            if any(self._breaks(call) for call in page["calls"]):
                break
            if not page.get("next"):
                return None
            query["before"] = page["next"]
        for step in await self.trajectory():
            if step.get("session") == self.id and self._breaks(step) and not step.get("undone"):
                message = f"{step.get('name') or step.get('method')} in {self.id}: {step.get('error') or step['outcome']}"
                error = from_api({"kind": step["outcome"], "message": message, "server": step.get("server")})
                return error if isinstance(error, WorldFailed) else None
        return None

    def _breaks(self, call: Mapping[str, Any]) -> bool:
        """Whether a call of the journal failed the world. Commands and connections of servers did not."""
        if call.get("method") != trajectory.CALL:
            return False
        return call.get("outcome") not in ("ok", "tool", "invalid", "cancelled", *(("timeout",) if self.timeouts == "score" else ()))

    async def annotate(
        self,
        *,
        reward: float | None = None,
        text: str | None = None,
        token_ids: Sequence[int] | None = None,
        logprobs: Sequence[float | None] | None = None,
        data: Any = None,
        call: str | Result | None = None,
    ) -> str:
        """Writes into the trajectory what a trainer knows, of the world or of one call: a reward,
        what the model said, its tokens, any JSON. Returns the annotation's id."""
        if isinstance(call, Result):
            if not call.call:
                raise Invalid(f"this gateway gives no id with the result of {call.tool}; take the id of the call from trajectory()")
            call = call.call
        if call == "":
            raise Invalid("call is empty: this call's result has no id; take the id from trajectory(), or leave call out to annotate the whole world")
        given: dict[str, Any] = {"text": text, "data": data, "call": call}
        # Numbers of NumPy and tensors are none of JSON.
        given["reward"] = None if reward is None else _finite("reward", reward)
        given["token_ids"] = None if token_ids is None else [int(id) for id in token_ids]
        given["logprobs"] = None if logprobs is None else [None if p is None else _finite(f"logprobs[{i}]", p) for i, p in enumerate(logprobs)]
        path = "/v1/sessions/{session}/annotations"
        self._tine.features.need("POST", path)
        key = new_key() if self._tine.features.keyed("POST", path) else None
        body = {k: v for k, v in given.items() if v is not None}
        made = await self._tine.wire.json("POST", "v1", "sessions", self.id, "annotations", body=body, key=key)
        return str(made["id"])

    async def trajectory(self) -> list[Step]:
        """Every step from the first ancestor to this world, with arguments and results. It can be
        read after the world is closed, too."""
        return await self._tine.trajectory(self.id)

    async def to_messages(self, format: MessageFormat = "openai", *, start: Start = "setup") -> list[Message]:
        """The trajectory as a conversation. It begins after the setup of the group that this world is
        a rollout of; with `start="fork"` where this world was forked, with "all" at its first
        ancestor."""
        return trajectory.to_messages(await self.trajectory(), format, start=start)

    async def close(self) -> None:
        """Closes this world and what it owns. It may be called twice."""
        await self._tine.close_worlds([self])

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tine.leave_worlds([self])


def _finite(name: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise Invalid(f"{name} is {number}, which JSON does not have; give None")
    return number
