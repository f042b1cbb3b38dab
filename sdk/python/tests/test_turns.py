"""What a policy played, as the conversation that it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rig

import tineworld
from tineworld import Group, Message, World, trajectory
from tineworld.trajectory import Step

WRITE = {"path": "a.txt", "content": "1"}


def _openai(text: str | None, *calls: tuple[str, str, str]) -> Message:
    asked = [{"id": id, "type": "function", "function": {"name": name, "arguments": given}} for id, name, given in calls]
    return {"role": "assistant", "content": text, "tool_calls": asked}


async def test_an_openai_conversation_comes_back_as_it_was(t: tineworld.Tine) -> None:
    turns = [
        _openai("I write.", ("call_a", "files__write_file", json.dumps(WRITE)), ("call_b", "fault__break_off", "{}")),
        _openai(None, ("call_a", "files__read_text_file", '{"path": ')),
        _openai("Again.", ("call_c", "invented", "{}"), ("call_f", "files__invented", "{}"), ("call_d", "files__list_directory", "[1]"), ("call_e", "files__list_directory", '{"path": "."}')),
    ]
    async with t.open(servers=["files", "fault"]) as w:
        await w.tools()
        conversation = [message for turn in turns for message in [turn, *await w.act(turn)]]
        await w.annotate(text="I am done.")
        assert len(conversation) == 10
        assert await w.to_messages() == [*conversation, {"role": "assistant", "content": "I am done."}]


async def test_an_anthropic_conversation_comes_back_as_it_was(t: tineworld.Tine) -> None:
    def use(id: str, name: str, given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": name, "input": given}

    turns = [
        {"role": "assistant", "content": [{"type": "text", "text": "I write."}, use("1", "files__write_file", WRITE), use("2", "fault__picture", {})]},
        {"role": "assistant", "content": [use("3", "files__read_text_file", [1]), use("4", "files__read_text_file", {"path": "a.txt"})]},
    ]
    async with t.open(servers=["files", "fault"]) as w:
        conversation = [message for turn in turns for message in [turn, *await w.act(turn)]]
        assert await w.to_messages("anthropic") == conversation


async def test_the_text_of_an_annotation_is_what_counts(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        await w.act(_openai("cut off", ("1", "files__write_file", json.dumps(WRITE))))
        await w.annotate(call=trajectory.calls(await w.trajectory())[0]["id"], text="the whole text")
        assert (await w.to_messages())[0]["content"] == "the whole text"


def test_a_turn_that_lacks_a_call_makes_no_messages() -> None:
    part = {"turn": "t", "at": 0, "of": 2, "id": "1", "name": "s__n"}
    base = {"type": "call", "method": "tools/call", "id": "c1", "server": "s", "name": "n", "arguments": {}, "journal": "full", "outcome": "ok"}
    step: Step = base | {"result": {"content": []}, "meta": {trajectory.TURN: part}}  # type: ignore[assignment]
    with pytest.raises(tineworld.TineError, match="c1 has 1 of its 2 calls"):
        trajectory.to_messages([step])


async def test_a_rollout_begins_after_the_setup(t: tineworld.Tine) -> None:
    async def setup(w: World, template: str | None) -> None:
        await w.call("files__write_file", path="task.txt", content="setup")
        await w.annotate(text="a note of the setup")
        await w.snapshot()

    async def episode(w: World, _: Any) -> list[str]:
        await w.call("files__write_file", path="a.txt", content="policy")
        async with w.fork(1) as (branch,):  # a tree search: what was played before belongs to it
            await branch.call("files__write_file", path="a.txt", content="branch")
        return [branch.id]

    def wrote(told: list[Message]) -> list[str]:
        assert {m["role"] for m in told} <= {"assistant", "tool"}
        return [json.loads(m["tool_calls"][0]["function"]["arguments"])["content"] if "tool_calls" in m else m["content"] for m in told if m["role"] == "assistant"]

    async with t.open(servers=["files"]) as base:
        await base.call("files__write_file", path="base.txt", content="template")
        made = await base.snapshot("turns-base")
    groups: list[Group[Any]] = [Group(0, 1, ["files"], setup=setup), Group(1, 1, template="turns-base"), Group(2, 1, ["files"])]
    done = await t.run(groups, episode)
    for kept in done.kept:
        w = await t.attach(kept.session)
        assert wrote(await w.to_messages()) == ["policy"]
        branch = await t.attach(kept.value[0])
        assert wrote(await branch.to_messages()) == ["policy", "branch"]
        assert wrote(await branch.to_messages(start="fork")) == ["branch"]
    all_of = [wrote(await (await t.attach(kept.session)).to_messages(start="all")) for kept in done.kept]
    assert all_of == [["setup", "a note of the setup", "policy"], ["policy"], ["policy"]]
    with pytest.raises(tineworld.Invalid, match="setup, fork or all"):
        await w.to_messages(start="begin")  # type: ignore[arg-type]
    await t.delete_snapshot(made)


async def test_tools_are_named_as_they_were_listed() -> None:
    async with tineworld.local({"servers": {"rlm": {"builtin": "rlm"}}}, binary=rig.tine_binary()) as t, t.open() as w:
        assert "rlm_vars" in {tool["function"]["name"] for tool in await w.tools()}
        await w.act(_openai(None, ("1", "rlm_vars", "{}")))
        await w.call("rlm__rlm_vars")
        assert [m["tool_calls"][0]["function"]["name"] for m in await w.to_messages() if m["role"] == "assistant"] == ["rlm_vars"] * 2


def test_names_that_models_take_are_those_of_the_list() -> None:
    def call(id: str, name: str) -> Step:
        base = {"type": "call", "method": "tools/call", "id": id, "server": "s", "name": name, "arguments": {}, "journal": "full", "outcome": "ok"}
        step: Step = base | {"result": {"content": []}}  # type: ignore[assignment]
        return step

    steps: list[Step] = [
        {"type": "tools", "tools": [{"name": "s__a_b"}, {"name": "s__a.b"}, {"name": "bare"}]},
        {"type": "tools", "server": "s", "tools": [{"name": "a.b"}]},
        call("1", "a.b"),
        call("2", "bare"),
        call("3", "other"),
    ]
    given = tineworld.messages.model_names(["s__a_b", "s__a.b"])["s__a.b"]
    told = [m["tool_calls"][0]["function"]["name"] for m in trajectory.to_messages(steps) if m["role"] == "assistant"]
    assert told == [given, "bare", "s__other"] and given != "s__a_b"
