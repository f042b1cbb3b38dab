"""Whatever a model writes is a result that it sees, and ends neither the run nor the world."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rig
from pydantic import BaseModel

import tineworld
from tineworld import _json, messages, trajectory

LIST = "files__list_directory"


def nested(levels: int) -> Any:
    value: Any = "."
    for _ in range(levels):
        value = [value]
    return value


DEEP = '{"path": ' + "[" * 15_000 + "]" * 15_000 + "}"
UNUSABLE = {
    "unclosed": "[" * 3000,
    "deep": DEEP,
    "just too deep": json.dumps({"path": nested(_json.DEEPEST)}),
    "many digits": '{"path": ' + "1" * 5000 + "}",
    "no number": '{"path": 1e400}',
    "a list": "[1]",
}


def openai(*arguments: Any) -> dict[str, Any]:
    functions = [{"name": LIST, "arguments": given} for given in arguments]
    return {"role": "assistant", "content": None, "tool_calls": [{"id": str(i), "type": "function", "function": f} for i, f in enumerate(functions)]}


class Block(BaseModel):
    """As the objects of Anthropic's client are."""

    type: str = "tool_use"
    id: str = "0"
    name: str = LIST
    input: object = None


class Message(BaseModel):
    role: str = "assistant"
    content: list[Block]


async def test_arguments_that_cannot_be_read_or_written(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        answers = await w.act(openai(*UNUSABLE.values(), '{"path": "."}'))
        for why, answer in zip(UNUSABLE, answers, strict=False):
            assert f"the arguments of {LIST} are" in answer["content"], why
        assert answers[-1]["content"] == ""
        told = await w.to_messages()
        assert [call["function"]["arguments"] for call in told[0]["tool_calls"]] == [*UNUSABLE.values(), '{"path": "."}']
        assert told[1:] == answers
        assert len(await w.to_messages("anthropic")) == 2
        assert w.failed is None


@pytest.mark.parametrize("levels", [_json.DEEPEST, 900, 100_000])
async def test_an_input_that_is_nested_too_deep(t: tineworld.Tine, levels: int) -> None:
    given = {"path": nested(levels)}
    block = {"type": "tool_use", "id": "0", "name": LIST, "input": given}
    async with t.open(servers=["files"]) as w:
        for message in ({"role": "assistant", "content": [block]}, Message(content=[Block(input=given)])):
            [answer] = await w.act(message)
            [result] = answer["content"]
            assert result["is_error"] and f"the arguments of {LIST} are" in result["content"][0]["text"]
        for result in (await w.call(LIST, args=given), (await t.call_many([(w, LIST, given), (w, LIST, {"path": "."})]))[0]):
            assert isinstance(result, tineworld.Result) and result.kind == "invalid"
        assert w.failed is None and len(await w.to_messages()) == 4 + 2


async def test_arguments_as_deep_as_they_may_be_are_sent(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        given = {"path": nested(_json.DEEPEST - 1)}
        assert "must be a string" in (await w.act(openai(json.dumps(given))))[0]["content"]
        assert trajectory.calls(await w.trajectory())[0]["arguments"] == given
        assert json.loads((await w.to_messages())[0]["tool_calls"][0]["function"]["arguments"]) == given


async def test_a_run_goes_on(t: tineworld.Tine) -> None:
    async def play(w: tineworld.World, given: str) -> list[tineworld.Message]:
        return await w.act(openai(given))

    groups = [tineworld.Group(given, size=2, servers=["files"]) for given in UNUSABLE.values()]
    done = await t.run(groups, play)
    assert len(done.kept) == 2 * len(groups) and not done.dropped


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[tineworld.Tine]:
    """A connection to a gateway with low limits."""
    limits = {"body": "64KiB", "message": "64KiB"}
    one = rig.Gateway(tmp_path, {"limits": limits, "servers": {"files": {"builtin": "files"}, "fault": rig.fault_server()}})
    one.start()
    async with tineworld.connect(one.url) as t:
        yield t
    one.stop()


async def test_arguments_that_are_too_large(narrow: tineworld.Tine) -> None:
    given = {"path": "x" * (1 << 17)}
    async with narrow.open(servers=["files"]) as w:
        answers = await w.act(openai(json.dumps(given), '{"path": "."}'))
        assert "too large" in answers[0]["content"] and "65536 bytes; limits.body" in answers[0]["content"] and answers[1]["content"] == ""
        called, [many] = await w.call(LIST, args=given), await narrow.call_many([(w, LIST, given)])
        for result in (called, many):
            assert isinstance(result, tineworld.Result) and result.kind == "invalid" and "limits.body" in result.text
        await w.check()


async def test_a_call_that_was_too_large_is_in_the_trajectory(t: tineworld.Tine) -> None:
    given = json.dumps({"path": "x" * (17 << 20)})
    async with t.open(servers=["files"]) as w:
        answers = await w.act(openai(given, '{"path": "."}'))
        asked, *answered = await w.to_messages()
        assert answered == answers
        kept = asked["tool_calls"][0]["function"]["arguments"]
        assert kept.startswith(given[:1000]) and kept.endswith(f"... ({len(given)} characters)") and len(kept) < 1 << 20


async def test_a_result_that_is_too_large_names_the_limit(narrow: tineworld.Tine) -> None:
    async with narrow.open(servers=["fault"]) as w:
        with pytest.raises(tineworld.Infrastructure, match="larger than the limit of 64 KiB; limits.message can raise that"):
            await w.call("fault__big", bytes=1 << 17)


def test_what_a_server_sends_may_be_nested_as_it_likes() -> None:
    with pytest.raises(tineworld.TineError, match="is not JSON"):
        tineworld.Result("t", [{"type": "text", "text": DEEP}]).json()
    assert messages.as_text(tineworld.Result("t", data=nested(900))).startswith("[[")
    assert messages.as_text(tineworld.Result("t", data=nested(100_000)))
    deep: Any = SimpleNamespace(role="user", content=nested(100_000))
    for wrong in ({"role": "user", "content": nested(100_000)}, {"role": "assistant", "tool_calls": [{"function": nested(100_000)}]}, deep):
        with pytest.raises(tineworld.Invalid):
            messages.tool_calls(wrong)


async def test_calls_of_other_clients_that_are_nested_too_deep_make_no_message(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        steps = [{"type": "call", "method": "tools/call", "id": "c", "server": "files", "name": "list", "arguments": {"a": nested(500)}, "result": {"content": []}}]
        with pytest.raises(tineworld.TineError, match="nested deeper than 200 levels"):
            trajectory.to_messages(steps)  # type: ignore[arg-type]
        assert w.failed is None
