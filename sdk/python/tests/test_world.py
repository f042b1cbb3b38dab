"""Worlds of a real gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import rig

import tineworld
from tineworld import trajectory


async def test_call_gives_text_data_and_error(t: tineworld.Tine) -> None:
    async with t.open(servers=["files", "fault"], labels={"run": "call"}) as w:
        assert w.labels == {"run": "call"} and w.token and w.url.endswith(f"/s/{w.id}/mcp")
        wrote = await w.call("files__write_file", path="a.txt", content="é 1\n")
        assert not wrote.is_error and wrote.kind == ""
        assert (await w.call("files__read_text_file", args={"path": "a.txt"})).text == "é 1\n"
        counted = await w.call("fault__count")
        assert counted.data["calls"] == 1 and counted.json() == 1
        own = await w.call("fault__fail")
        assert (own.is_error, own.kind, own.text) == (True, "tool", "the tool's own error")
        assert w.failed is None


async def test_arguments_that_have_the_names_of_parameters(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        wrong = await w.call("files__read_text_file", args={"timeout": 1, "args": 2, "tool": 3, "self": 4}, path="nowhere")
        assert wrong.is_error
        given = trajectory.calls(await w.trajectory())[0]["arguments"]
        assert given == {"timeout": 1, "args": 2, "tool": 3, "self": 4, "path": "nowhere"}
        with pytest.raises(tineworld.Invalid, match="path is given twice"):
            await w.call("files__read_text_file", args={"path": "a"}, path="b")


@pytest.mark.parametrize("tool", ["files__invented", "invented", "nowhere__read", "fault__break.off"])
async def test_a_mistake_is_a_result(t: tineworld.Tine, tool: str) -> None:
    async with t.open(servers=["files", "fault"]) as w:
        wrong = await w.call(tool)
        assert wrong.is_error and wrong.text
        assert wrong.kind == ("tool" if tool == "fault__break.off" else "invalid")
        assert w.failed is None
        [again] = await t.call_many([(w, tool, {})])
        assert isinstance(again, tineworld.Result) and again.call != wrong.call
        for result in (wrong, again):
            await w.annotate(call=result, reward=-1)
        steps = await w.trajectory()
        assert [s["call"] for s in steps if s["type"] == "annotation"] == [s["id"] for s in steps if s["type"] == "call"] == [wrong.call, again.call]


async def test_invented_tools_are_in_the_messages(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        read = [(await w.call(name, args={"a": 1})).text for name in ("invented", "nowhere__invented")]
        told = await w.to_messages()
        assert [m["content"] for m in told if m["role"] == "tool"] == read
        assert [m["tool_calls"][0]["function"]["arguments"] for m in told if m["role"] == "assistant"] == ['{"a": 1}'] * 2


async def test_forks_are_apart_and_closed_by_their_block(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        await w.call("files__write_file", path="a.txt", content="root")
        async with w.fork(3, labels={"branch": "yes"}) as ws:
            assert len({x.id for x in ws}) == 3 and all(x.labels == {"branch": "yes"} for x in ws)
            await asyncio.gather(*(x.call("files__write_file", path="a.txt", content=str(i)) for i, x in enumerate(ws)))
            assert [(await x.call("files__read_text_file", path="a.txt")).text for x in ws] == ["0", "1", "2"]
        assert (await w.call("files__read_text_file", path="a.txt")).text == "root"
        with pytest.raises(tineworld.WorldClosed, match=ws[0].id):
            await ws[0].call("files__read_text_file", path="a.txt")
        assert not {x.id for x in ws} & {s["id"] for s in await t.sessions()}


async def test_snapshot_rewind_and_template(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        await w.call("files__write_file", path="a.txt", content="before")
        snapshot = await w.snapshot("start")
        await w.call("files__write_file", path="a.txt", content="after")
        await w.rewind()
        assert (await w.call("files__read_text_file", path="a.txt")).text == "before"
        undone = [s.get("undone", False) for s in await w.trajectory() if s["type"] == "call"]
        assert undone == [False, True, False]
        assert len(trajectory.calls(await w.trajectory())) == 2
    async with t.open(template="start") as w:
        assert (await w.call("files__read_text_file", path="a.txt")).text == "before"
    await t.delete_snapshot(snapshot)
    with pytest.raises(tineworld.Invalid, match="start"):
        await t.open(template="start")


@pytest.mark.parametrize("format", ["openai", "anthropic"])
async def test_act_and_to_messages(t: tineworld.Tine, format: tineworld.MessageFormat) -> None:
    async with t.open(servers=["files", "fault"]) as w:
        names = {tool["function"]["name"] if format == "openai" else tool["name"] for tool in await w.tools(format)}
        assert {"files__write_file", "fault__break_off"} <= names, "a dot is refused by the model APIs"
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("files__write_file", {"path": "a.txt", "content": "1"}),
            ("fault__break_off", {}),
            ("fault__picture", {}),
            ("files__invented", {}),
        ]
        answers = await w.act(_message(format, wanted))
        if format == "openai":
            assert [a["tool_call_id"] for a in answers] == ["0", "1", "2", "3"]
            assert [a["content"] for a in answers][:3] == ["Successfully wrote to a.txt", "the server's own trouble", "[image image/png]\na picture"]
            assert "files__invented" in answers[3]["content"]
        else:
            blocks = answers[0]["content"]
            assert [b["tool_use_id"] for b in blocks] == ["0", "1", "2", "3"]
            assert [b.get("is_error", False) for b in blocks] == [False, True, False, True]
            assert [c["type"] for c in blocks[2]["content"]] == ["image", "text"]
        assert await w.act({"role": "assistant", "content": "I am done"}) == []
        told = await w.to_messages(format)
        assert [m["role"] for m in told] == (["assistant", *["tool"] * 4] if format == "openai" else ["assistant", "user"])
        assert told[1]["content"] == answers[0]["content"] if format == "openai" else told[1]["content"][0]["content"] == blocks[0]["content"]


def _message(format: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    if format == "openai":
        functions = [{"name": name, "arguments": json.dumps(given)} for name, given in calls]
        return {"role": "assistant", "content": None, "tool_calls": [{"id": str(i), "type": "function", "function": f} for i, f in enumerate(functions)]}
    uses = [{"type": "tool_use", "id": str(i), "name": name, "input": given} for i, (name, given) in enumerate(calls)]
    return {"role": "assistant", "content": [{"type": "text", "text": "I begin"}, *uses]}


async def test_a_fork_knows_the_names_that_its_parent_gave_the_model(t: tineworld.Tine) -> None:
    async with t.open(servers=["fault"]) as w:
        await w.tools()
        async with w.fork(1) as (fork,):
            answers = await fork.act(_message("openai", [("fault__break_off", {})]))
            assert answers[0]["content"] == "the server's own trouble"


async def test_arguments_that_are_not_json_are_the_models_mistake(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        for given in ('{"path": ', "[1]", '{"path": NaN}'):
            function = {"name": "files__read_text_file", "arguments": given}
            answers = await w.act({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]})
            assert "files__read_text_file" in answers[0]["content"] and "JSON" in answers[0]["content"] or "object" in answers[0]["content"]
        assert trajectory.calls(await w.trajectory()) == []


async def test_tools_as_listed(t: tineworld.Tine) -> None:
    async with t.open(servers=["fault"]) as w:
        listed = {tool["name"]: tool for tool in await w.tools("mcp")}
        assert listed["fault__count"]["inputSchema"] == {"type": "object", "properties": {}}
        assert "fault__break.off" in listed


async def test_tools_of_a_server_that_is_away_fail_the_world(t: tineworld.Tine) -> None:
    async with t.open(servers=["files", "gone"]) as w:
        with pytest.raises(tineworld.WorldFailed, match="'gone'") as failed:
            await w.tools()
        assert failed.value.server == "gone" and w.failed is failed.value


async def test_a_world_is_attached_by_its_id_and_stays(t: tineworld.Tine, gateway: rig.Gateway) -> None:
    async with t.open(servers=["files"]) as w:
        await w.call("files__write_file", path="a.txt", content="1")
        async with tineworld.connect(gateway.url, w.token) as other:
            same = await other.attach(w.id)
            assert (await same.call("files__read_text_file", path="a.txt")).text == "1"
        assert (await w.call("files__read_text_file", path="a.txt")).text == "1"


async def test_large_arguments(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        assert not (await w.call("files__write_file", path="big.txt", content="x" * (8 << 20))).is_error
        assert len((await w.call("files__read_text_file", path="big.txt")).text) == 8 << 20
        larger = await w.call("files__write_file", path="big.txt", content="x" * (20 << 20))
        assert larger.kind == "invalid" and "limits.body" in larger.text and w.failed is None


async def test_twenty_megabytes(t: tineworld.Tine, gateway: rig.Gateway) -> None:
    async with t.open(servers=["fault"]) as w:
        big = await w.call("fault__big", bytes=20 << 20)
        assert len(big.text) == 20 << 20
        step = trajectory.calls(await w.trajectory())[0]
        assert len(step["result"]["content"][0]["text"]) == 20 << 20
    async with tineworld.connect(gateway.url, max_body=1 << 20) as small, small.open(servers=["fault"]) as w:
        with pytest.raises(tineworld.Infrastructure, match="larger than 1048576 bytes; set max_body"):
            await w.call("fault__big", bytes=20 << 20)
        assert (await w.call("fault__count")).data["calls"] == 2, "the next call is not disturbed"
