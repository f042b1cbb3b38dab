"""Runs of agents, each the real program agent_worker.py."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
from aiohttp import web

import tineworld
from tineworld import runs, sync

HERE = Path(__file__).parent
WORKER = {
    "description": "Does what its prompt says.",
    "executor": "command",
    "executor_config": {"command": sys.executable, "args": ["-I", "-S", str(HERE / "agent_worker.py")]},
}
BLUEPRINTS: dict[str, dict[str, Any]] = {
    "worker": WORKER
    | {"parameters": {"type": "object", "properties": {"prompt": {"type": "string"}, "n": {"type": "integer"}}, "required": ["prompt"]}},
    "guarded": WORKER | {"hooks": {"on_run_start": {"command": "/bin/echo", "args": ['{"refuse": "not today"}']}}},
    "picky": WORKER | {"demands": {"tags": ["gpu"]}},
    "boss": {
        "executor": "command",
        "executor_config": {"command": sys.executable, "args": [str(HERE / "agent_boss.py")]},
        "mcp_servers": {"orchestrator": {}},
        "agents": ["worker"],
    },
}


def agents_gateway(folder: Path) -> rig.Gateway:
    for name, blueprint in BLUEPRINTS.items():
        (folder / "agents" / name).mkdir(parents=True)
        (folder / "agents" / name / "agent.json").write_text(json.dumps(blueprint))
    return rig.Gateway(folder, {"servers": {"files": {"builtin": "files"}, "orchestrator": {"builtin": "orchestrator"}}})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Gateway]:
    one = agents_gateway(tmp_path_factory.mktemp("agents"))
    one.start()
    yield one
    one.stop()


@pytest.fixture
async def t(gateway: rig.Gateway) -> AsyncIterator[tineworld.Tine]:
    async with tineworld.connect(gateway.url) as one:
        yield one


async def test_a_result(t: tineworld.Tine, tmp_path: Path) -> None:
    result = await t.run_agent("worker", "hello").result()
    assert result.text == "hello" and result.data["mode"] == "start"
    run = await t.run_agent("worker", params={"prompt": "hello", "n": 2**60}, project_dir=tmp_path, labels={"of": "result"})
    assert not run.ended
    assert (await run.result()).data == {"mode": "start", "folder": str(tmp_path), "prompt": "hello", "n": 2**60}
    assert run.ended and run.last["labels"] == {"of": "result"} and (await t.attach_run(run.id)).state == "completed"
    assert [one.id for one in await t.runs(agent="worker", session=run.session, state="completed")] == [run.id]
    assert [one.id for one in await t.runs(limit=2)] == [run.id, result.run]
    assert [one.id for one in await t.runs(after=run.id, limit=1)] == [result.run] and await t.runs(state=["pending", "stopping"]) == []
    assert (await (await t.attach(run.session)).info())["id"] == run.session


async def test_a_run_that_fails(t: tineworld.Tine) -> None:
    for prompt, why in (("fail no luck", "no luck"), ("exit the file", "the executor exited with status 1: the file is not there")):
        run = await t.run_agent("worker", prompt)
        with pytest.raises(tineworld.RunFailed, match=f"run {run.id} of agent worker has failed: {why}") as failed:
            await run.result()
        again = pickle.loads(pickle.dumps(failed.value))
        for error in (failed.value, again):
            assert (error.run, error.session, error.agent, error.state) == (run.id, run.session, "worker", "failed")
            assert (error.kind, error.reason) == ("tool", why) and str(error) == str(failed.value)
        assert await run.wait() == "failed"


async def test_a_run_that_is_refused(t: tineworld.Tine) -> None:
    with pytest.raises(tineworld.Refused, match="not today"):
        await t.run_agent("guarded", "hello")
    with pytest.raises(tineworld.Invalid, match="agent worker: the parameters do not fit") as wrong:
        await t.run_agent("worker", params={"prompt": 3, "n": "x"})
    assert wrong.value.code == "parameter_validation_failed"
    assert [(one["path"], one["schema_path"]) for one in wrong.value.errors] == [("/n", "/properties/n/type"), ("/prompt", "/properties/prompt/type")]
    with pytest.raises(tineworld.Invalid, match='did you mean "worker"') as wrong:
        await t.run_agent("wrker", "hello")
    assert wrong.value.status == 404 and wrong.value.errors == []
    assert await t.runs(agent="guarded") == []
    for timeout in (0, -1, float("inf")):
        with pytest.raises(tineworld.Invalid, match="timeout must be"):
            await t.run_agent("worker", "hello").result(timeout=timeout)


async def test_stop(t: tineworld.Tine) -> None:
    run = await t.run_agent("worker", "hang")
    assert await run.stop() in ("stopping", "stopped")
    with pytest.raises(tineworld.RunStopped, match=f"run {run.id} of agent worker was stopped by") as stopped:
        await run.result()
    assert stopped.value.state == "stopped" and stopped.value.kind == "refused"
    over = await t.run_agent("worker", "hello")
    await over.wait()
    assert await over.stop() == "completed"


async def test_a_tree_that_its_agent_has_started(t: tineworld.Tine) -> None:
    async with t.run_agent("boss", "go") as boss:
        text = await anext(event.text async for event in boss.events() if event.type == "text")
        first, _, other = text.partition(" ")
        assert first == "below" and (await t.attach_run(other)).state in ("claimed", "running")
        assert {one["id"] for one in (await boss.tree())["children"]} == {one.id for one in await t.runs(parent=boss.session)}
        await boss.stop(tree=True)
        assert await boss.wait() == "stopped" and await (await t.attach_run(other)).wait() == "stopped"


async def test_events(t: tineworld.Tine) -> None:
    run = await t.run_agent("worker", "steps")
    seen = [event async for event in run.events()]
    assert [event.state for event in seen if event.type == "state"] == ["pending", "claimed", "running", "completed"]
    told = [event for event in seen if event.type not in ("state", "stderr")]
    assert [(event.type, event.text) for event in told] == [("text", "one"), ("tool", ""), ("tool", "seen"), ("text", "two"), ("usage", "")]
    call, answer, usage = told[1], told[2], told[4]
    assert (call.tool, call.arguments, call.done, call.is_error) == ("look", {"at": "it"}, False, False)
    assert (answer.tool, answer.arguments, answer.done, answer.is_error) == ("look", None, True, True)
    assert usage.data == {"input_tokens": 3, "output_tokens": 2, "cost": 0.5} == (await run.result()).usage
    assert [event.text for event in seen if event.type == "stderr"] == ["a remark"]
    for follow in (True, False):
        for at in (-1, -2, 0):  # behind the last one, too, it ends
            assert [event.at for event in seen[at:]][1:] == [event.at async for event in run.events(after=seen[at].id, follow=follow)]


async def test_what_is_under_way_has_the_events_until_now(t: tineworld.Tine) -> None:
    async with t.run_agent("worker", "hang") as run:
        async for event in run.events():
            if event.text == "it hangs":
                break
        assert [event.text async for event in run.events(follow=False) if event.type == "text"] == ["it hangs"]
        assert not run.ended
    assert run.state in ("stopping", "stopped")


async def test_a_gateway_that_is_killed(tmp_path: Path) -> None:
    one = agents_gateway(tmp_path)
    one.start()
    try:
        async with tineworld.connect(one.url) as t:
            run = await t.run_agent("worker", f"steps {tmp_path / 'go'}")
            waiting = asyncio.create_task(run.result())
            events = []
            async for event in run.events():
                events.append(event)
                if event.type == "tool" and event.done:
                    await asyncio.to_thread(one.kill)
                    starting = asyncio.create_task(asyncio.to_thread(one.start))
                    (tmp_path / "go").touch()
            await starting
            assert [event.text for event in events if event.type in ("text", "tool")] == ["one", "", "seen", "two"]
            assert len({event.id for event in events}) == len(events) and events[-1].state == "completed"
            assert (await waiting).usage["output_tokens"] == 2
    finally:
        one.stop()


async def test_events_that_are_not_kept() -> None:
    """The end of a run may be among them. A gateway deletes events only with their run, or when its database is restored."""
    told = [{"id": "run_1", "session": "ses_1", "agent": "worker", "state": state} for state in ("running", "running", "completed")]
    asked: list[str] = []

    async def run(_: web.Request) -> web.StreamResponse:
        return web.json_response(told.pop(0) if len(told) > 1 else told[0])

    async def events(request: web.Request) -> web.StreamResponse:
        asked.append(request.query["after"] + " " + request.query["follow"])
        lines = [{"id": "a"}, {"id": "b", "type": "gap", "lost": "session"}] if len(asked) == 1 else [{"id": "c", "type": "run.text", "data": {"text": "x"}}]
        return web.Response(text="".join(json.dumps(line) + "\n" for line in lines), content_type="application/x-ndjson")

    async with rig.Scripted({"GET /v1/runs/{run}": run, "GET /v1/events": events}) as gateway, tineworld.connect(gateway.url) as t:
        seen = [event async for event in (await t.attach_run("run_1")).events()]
    assert [(event.type, event.text, event.data.get("lost")) for event in seen] == [("gap", "", "session"), ("text", "x", None)]
    assert asked == ["start true", "b false"]


async def test_connections_that_break(gateway: rig.Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_QUIET", 0.3)
    monkeypatch.setattr(runs, "_LONG", 0.3)
    async with asyncio.timeout(rig.PATIENCE), rig.Relay(gateway.url) as relay, tineworld.connect(relay.url) as t:
        for harm in (relay.cut, relay.freeze):
            run = await t.run_agent("worker", f"steps {tmp_path / harm.__name__}")
            relay.asked.clear()
            waiting = asyncio.create_task(run.result())

            async def waits() -> bool:
                return any(b"wait=" in asked for asked in relay.asked)

            await rig.eventually("the result is waited for", waits)
            texts = []
            async for event in run.events():
                texts.append(event.text)
                if event.text == "seen":
                    harm()
                    (tmp_path / harm.__name__).touch()
            assert [text for text in texts if text and text != "a remark"] == ["one", "seen", "two"]
            assert (await waiting).usage["output_tokens"] == 2


async def test_a_request_whose_answer_is_lost_starts_one_run(gateway: rig.Gateway) -> None:
    async with rig.Relay(gateway.url) as relay, tineworld.connect(relay.url) as t:
        relay.lose[b"POST /v1/runs "] = 2
        result = await t.run_agent("worker", "hello", labels={"of": "lost"}).result()
        assert result.text == "hello" and relay.lose == {b"POST /v1/runs ": 0}
        assert [run.id for run in await t.runs(limit=20) if run.last.get("labels") == {"of": "lost"}] == [result.run]
        # A key of the caller's own gives the same run to another program as well.
        one, other = [await t.run_agent("worker", "hello", key="k" * 20) for _ in range(2)]
        assert one.id == other.id != result.run
        with pytest.raises(tineworld.Invalid, match="was used for another request"):
            await t.run_agent("worker", "other", key="k" * 20)


async def test_many_at_once(gateway: rig.Gateway) -> None:
    async with tineworld.connect(gateway.url, connections=6) as t:  # fewer than runs
        results = await asyncio.gather(*(t.run_agent("worker", f"number {i}").result() for i in range(20)))
    assert [result.text for result in results] == [f"number {i}" for i in range(20)]
    assert len({result.session for result in results}) == 20


async def test_runs_that_are_waited_for_keep_no_request_waiting(gateway: rig.Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_SOON", 600)
    async with asyncio.timeout(rig.PATIENCE), tineworld.connect(gateway.url, connections=1) as t:
        started = [await t.run_agent("worker", "hang") for _ in range(3)]
        waiting = [asyncio.create_task(run.wait()) for run in started]
        for run in started:
            await run.stop()
        assert await asyncio.gather(*waiting) == ["stopped"] * 3


async def test_a_wait_that_takes_too_long(t: tineworld.Tine) -> None:
    with pytest.raises(tineworld.RunTimeout, match="has not ended within 0.2 s and goes on") as late:
        await t.run_agent("worker", "hang").result(timeout=0.2)
    assert isinstance(late.value, tineworld.Timeout) and pickle.loads(pickle.dumps(late.value)).run == late.value.run
    run = await t.attach_run(late.value.run)
    assert not run.ended
    await run.stop()
    assert await run.wait(timeout=rig.PATIENCE) == "stopped"
    async with t.run_agent("picky", "hello") as run:
        with pytest.raises(tineworld.RunTimeout, match='it is pending: it waits for a runner with the tag "gpu"'):
            await run.result(timeout=0.1)


async def test_a_wait_that_is_cancelled_leaves_the_run(t: tineworld.Tine) -> None:
    run = await t.run_agent("worker", "hang")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await run.result()
    assert (await run.info())["state"] in ("claimed", "running")
    await run.stop()


async def test_a_run_that_nobody_has_the_handle_of_is_stopped(t: tineworld.Tine) -> None:
    for pause in (0, 0.001, 0.003, 0.01, 0.1):
        task = asyncio.create_task(t.run_agent("worker", "hang", labels={"of": "cancelled"}).result())
        await asyncio.sleep(pause)  # cancelled at any moment
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def none_works() -> bool:
        at_work = await t.runs(state=["pending", "claimed", "running"])
        return not [run for run in at_work if run.last.get("labels") == {"of": "cancelled"}]

    await t._cleanups.wait(rig.PATIENCE)
    await rig.eventually("no run is at work", none_works)


async def test_resume(t: tineworld.Tine) -> None:
    run = await t.run_agent("worker", "steps")
    # It waits for the run's end; the agent would be busy.
    after = await run.send("more")
    assert run.ended and after.session == run.session and after.id != run.id
    assert (await after.result()).data == {"mode": "resume", "folder": None, "prompt": "more"}
    again = await after.resume(params={"prompt": "x", "n": 1}).result()
    assert again.data["n"] == 1 and again.session == run.session
    assert [one.id for one in await t.runs(session=run.session)] == [again.run, after.id, run.id]
    with pytest.raises(tineworld.Invalid, match="there is no agent session ses_0"):
        await t.run_agent(session="ses_0", prompt="x")


async def test_blueprints(t: tineworld.Tine) -> None:
    assert {"worker", "boss", "guarded", "picky"} == {agent["name"] for agent in await t.agents()}
    assert (await t.agent("worker"))["parameters"]["required"] == ["prompt"]
    put = await t.put_agent("mine", WORKER)
    assert put["name"] == "mine" and not put.get("problems") and await t.blueprint("mine") == WORKER
    assert (await t.run_agent("mine", "hello").result()).text == "hello"
    with pytest.raises(tineworld.Invalid, match="executer"):
        await t.put_agent("mine", {"executer": "command"})
    await t.delete_agent("mine")
    with pytest.raises(tineworld.Invalid) as gone:
        await t.run_agent("mine", "hello")
    assert gone.value.status == 404


async def test_a_result_that_the_caller_may_not_read() -> None:
    async def run(_: web.Request) -> web.StreamResponse:
        return web.json_response({"id": "run_1", "session": "ses_1", "agent": "worker", "state": "completed", "withheld": True})

    async with rig.Scripted({"GET /v1/runs/{run}": run}) as gateway, tineworld.connect(gateway.url) as t:
        with pytest.raises(tineworld.Refused, match="only its owner and operators read its result"):
            await (await t.attach_run("run_1")).result()
        with pytest.raises(tineworld.MissingFeature, match="no POST /v1/runs"):
            await t.run_agent("worker", "hello")


async def test_local_has_a_folder_of_agents(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "worker.md").write_text("---\nexecutor: mine\nmcp_servers: {orchestrator: {}}\n---\nYou work.\n")
    mine = {"agents": {"executors": {"mine": WORKER["executor_config"]}}, "servers": {"orchestrator": {"builtin": "orchestrator"}}}
    async with tineworld.local(mine, agents=tmp_path / "agents", binary=rig.tine_binary()) as t:
        assert (await t.run_agent("worker", "hello").result()).text == "hello"
    async with tineworld.local(agents=tmp_path / "agents", binary=rig.tine_binary()) as t:
        [agent] = await t.agents()
        assert agent["servers"] == ["orchestrator"] and "mine" in agent["problems"][0]
    file = tmp_path / "tine.yaml"
    file.write_text("servers: {files: {builtin: files}}\n")
    for config in (file, {"agents": {"dir": "agents"}}):
        with pytest.raises(tineworld.Invalid, match="leave agents out"):
            await tineworld.local(config, agents=tmp_path / "agents")
    with pytest.raises(tineworld.Invalid, match="there is no folder .*/none"):
        await tineworld.local(agents=tmp_path / "none")


def test_without_await(gateway: rig.Gateway) -> None:
    with sync.connect(gateway.url) as t:
        run = t.run_agent("worker", "steps")
        assert [event.text for event in run.events() if event.type == "text"] == ["one", "two"]
        assert run.result().usage["input_tokens"] == 3 and run.state == "completed" and run.ended and run.last["id"] == run.id
        assert run.send("more").result().text == "more" == run.resume("more").result().text
        with t.run_agent("worker", "hang") as hangs:
            with pytest.raises(tineworld.RunTimeout):
                hangs.result(timeout=0.1)
        assert hangs.wait() == "stopped" == t.attach_run(hangs.id).state and hangs.stop() == "stopped"
        assert hangs.info()["id"] == hangs.tree()["id"] == hangs.id and repr(hangs) == f"<Run {hangs.id} of worker stopped>"
        assert t.runs(limit=1, agent="worker")[0].id == hangs.id
        t.put_agent("plain", WORKER)
        assert t.blueprint("plain") == WORKER and t.agent("plain") in t.agents()
        t.delete_agent("plain")
