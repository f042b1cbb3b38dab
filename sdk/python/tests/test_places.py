"""Annotations, files and programs of worlds."""

from __future__ import annotations

import io
import json
import math
import posixpath
import tarfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import rig
from aiohttp import web

import tineworld
from tineworld import trajectory

FILES = "GET /v1/sessions/{session}/files/{place}/{path}"


async def test_annotations_are_in_the_trajectory(t: tineworld.Tine) -> None:
    rig.need(t, "POST /v1/sessions/{session}/annotations")
    async with t.open(servers=["files"]) as w:
        wrote = await w.call("files__write_file", path="a.txt", content="1")
        await w.annotate(call=wrote, text="I write", token_ids=[1, 2], logprobs=[-0.5, None], reward=0.5)
    await w.annotate(reward=1, data={"why": "done"})
    steps = await w.trajectory()
    assert trajectory.rewards(steps) == [0.5, 1]
    noted = [s for s in steps if s["type"] == "annotation"]
    assert noted[0]["call"] == wrote.call and noted[0]["token_ids"] == [1, 2] and noted[0]["logprobs"] == [-0.5, None]
    assert noted[1]["data"] == {"why": "done"} and "call" not in noted[1]
    assert (await w.to_messages())[0]["content"] == "I write"
    with pytest.raises(tineworld.Invalid):
        await w.annotate()


async def test_numbers_that_are_not_of_json(t: tineworld.Tine) -> None:
    half: Any = Fraction(1, 2)  # as numbers of NumPy are, and tensors
    async with t.open(servers=["files"]) as w:
        await w.annotate(reward=half, token_ids=[True], logprobs=[half])
        (noted,) = [s for s in await w.trajectory() if s["type"] == "annotation"]
        assert (noted["reward"], noted["token_ids"], noted["logprobs"]) == (0.5, [1], [0.5])
        with pytest.raises(tineworld.Invalid, match=r"logprobs\[1\] is -inf.*give None"):
            await w.annotate(token_ids=[1, 2], logprobs=[-0.5, -math.inf])
        with pytest.raises(tineworld.Invalid, match="reward is nan"):
            await w.annotate(reward=math.nan)
        with pytest.raises(tineworld.Invalid, match="not JSON"):
            await w.call("files__write_file", path="a", content=half)
        none = await w.call("files__write_file", path="a", content=math.nan)  # as a model may have written it
        assert none.kind == "invalid" and "not JSON" in none.text


async def test_a_call_without_an_id_is_not_taken_for_the_whole_world(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        invented = await w.call("invented")
        for call in ("", tineworld.Result("invented")):
            with pytest.raises(tineworld.Invalid, match=r"trajectory\(\)"):
                await w.annotate(call=call, reward=-1)
        assert trajectory.rewards(await w.trajectory()) == []
        await w.annotate(call=trajectory.calls(await w.trajectory())[0]["id"], reward=-1)
        assert invented.is_error and trajectory.rewards(await w.trajectory()) == [-1]


async def test_trajectories_of_many_worlds(t: tineworld.Tine) -> None:
    rig.need(t, "GET /v1/trajectories")
    async with t.open(servers=["files"], labels={"run": "export"}) as w, w.fork(3) as ws:
        for x in ws:
            await x.call("files__write_file", path="a.txt", content=x.id)
    found: dict[str, list[trajectory.Step]] = {}
    async for step in t.trajectories(labels={"run": "export"}):
        found.setdefault(step["of"], []).append(step)
    assert found.keys() == {w.id, *(x.id for x in ws)}
    for x in ws:
        assert [s["arguments"]["content"] for s in trajectory.calls(found[x.id])] == [x.id]


async def test_trajectories_that_break_off_are_an_error() -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        await answer.write(json.dumps({"type": "session", "of": "ses_1"}).encode() + b"\n")
        return answer

    async with rig.Scripted({"GET /v1/trajectories": half}) as server, tineworld.connect(server.url, lease=None) as t:
        with pytest.raises(tineworld.Infrastructure, match="broke off"):
            async for step in t.trajectories():
                assert step["of"] == "ses_1"


async def test_files_go_in_and_out(t: tineworld.Tine, tmp_path: Path) -> None:
    rig.need(t, FILES)
    async with t.open(servers=["files"]) as w:
        await w.put("workspace/a.txt", "one")
        assert (await w.call("files__read_text_file", path="a.txt")).text == "one"
        before = await w.snapshot()
        await w.call("files__create_directory", path="b c")
        await w.call("files__write_file", path="b c/d#?%.txt", content="two")
        assert await w.get("workspace/b c/d#?%.txt") == b"two"
        assert {file["path"] for file in await w.files()} == {"a.txt", "b c"}
        assert {file["path"] for file in await w.files(recursive=True)} == {"a.txt", "b c", "b c/d#?%.txt"}
        assert {file["path"] for file in await w.files(snapshot=before)} == {"a.txt"}
        (tmp_path / "in" / "deep").mkdir(parents=True)
        (tmp_path / "in" / "deep" / "c.bin").write_bytes(b"\x00\xff")
        await w.put("workspace/folder", tmp_path / "in")
        await w.put("workspace/run.sh", _script(tmp_path / "run.sh"))
        await w.get("workspace/folder", tmp_path / "out")
        await w.get("workspace/folder/deep/c.bin", tmp_path / "c.bin")
        assert (tmp_path / "out" / "deep" / "c.bin").read_bytes() == (tmp_path / "c.bin").read_bytes() == b"\x00\xff"
        assert [file["mode"] for file in await w.files("workspace/run.sh")] == ["0755"]
        with pytest.raises(tineworld.Invalid):
            await w.get("workspace/absent")
        assert w.failed is None
        await t.delete_snapshot(before)


async def test_what_a_policy_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    entry = rig.fault_server()
    config = {"workspace": True, "servers": {"fault": entry | {"args": [*entry["args"], "${workspace}"], "fork": "files"}}}
    cases = {
        "mkfifo ff": "files",
        "mkfifo ff && true": "get",
        "mkfifo ff; true": "diff",
        "ln -s /etc shown": "shown",
        "mkdir shown": "put",
        "ln -s /etc out; ln -s ../.. up; echo 1 > a; ln a b": "fine",
    }

    async def episode(w: tineworld.World, leave: str) -> str:
        await w.call("fault__count")
        before = await w.snapshot()
        assert (await w.exec("fault", ["sh", "-c", f"mkdir -p /workspace/in; cd /workspace/in; {leave}"])).ok
        match cases[leave]:
            case "files":
                async with w.fork() as [fork]:
                    return ",".join(f["type"] for f in await w.files("workspace/in") + await fork.files("workspace/in"))
            case "get":
                try:
                    await w.get("workspace/in/ff")
                except tineworld.UnusableFiles:
                    return "scored"
            case "diff":
                return ",".join(f["path"] + " " + f["type"] for f in (await w.diff(before))["files"])
            case "shown":
                await w.get("workspace/in/shown")
            case "put":
                await w.put("workspace/in/shown", "1")
            case "fine":
                await w.get("workspace/in", tmp_path / "fine")
                return ",".join(sorted(p.name for p in (tmp_path / "fine").iterdir()))
        return "nothing was wrong"

    async with tineworld.local(config, binary=rig.tine_binary()) as t:
        rig.need(t, FILES, "POST /v1/sessions/{session}/exec")
        done = await t.run([tineworld.Group(leave, size=1) for leave in cases], episode)
    assert [(cases[k.task], k.value) for k in done.kept] == [
        ("files", "other,other"),
        ("get", "scored"),
        ("diff", "in directory,in/ff other"),
        ("fine", "a,b"),
    ]
    assert [(cases[d.task], d.kind, type(d.error)) for d in done.dropped] == [(c, "refused", tineworld.UnusableFiles) for c in ("shown", "put")]


async def test_what_is_large_does_not_end_the_run_or_the_world(gateway: rig.Gateway, tmp_path: Path) -> None:
    large = b"x" * (3 << 20)
    async with tineworld.connect(gateway.url, max_body=2 << 20) as t:
        rig.need(t, FILES, "POST /v1/sessions/{session}/exec")

        async def episode(w: tineworld.World, task: str) -> int:
            await w.put("workspace/d/large", large)
            match task:
                case "get":
                    return len(await w.get("workspace/d/large"))
                case "folder":
                    return len(await w.get("workspace/d", folder=True))
                case "file to":
                    await w.get("workspace/d/large", tmp_path / "large")
                    return (tmp_path / "large").stat().st_size
                case "folder to":
                    await w.get("workspace/d", tmp_path / "d")
                    return (tmp_path / "d" / "large").stat().st_size
            await w.call("fault__count")
            ran = await w.exec("fault", ["head", "-c", "100000", "/dev/zero"], max_output=70_000)
            assert (ran.too_much, ran.exit, ran.ok) == (True, None, False)
            return len(ran.out)

        tasks = ("get", "folder", "file to", "folder to", "exec")
        done = await t.run([tineworld.Group(task, size=1, servers=["files", "fault"]) for task in tasks], episode)
    assert [(k.task, k.value) for k in done.kept] == [("file to", len(large)), ("folder to", len(large)), ("exec", 70_000)]
    assert [(d.task, type(d.error)) for d in done.dropped] == [("get", tineworld.UnusableFiles), ("folder", tineworld.UnusableFiles)]
    assert all("to=" in str(d.error) and "max_body" in str(d.error) for d in done.dropped)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "large"], "nothing else is left"


async def test_a_folder_is_read_where_it_is_asked_for(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        await w.put("workspace/d/a.txt", "1")
        with pytest.raises(tineworld.UnusableFiles, match="workspace/d is a folder; to= of get.. unpacks it, and folder=True"):
            await w.get("workspace/d")
        with pytest.raises(tineworld.UnusableFiles, match="is a file"):
            await w.get("workspace/d/a.txt", folder=True)
        with tarfile.open(fileobj=io.BytesIO(await w.get("workspace/d", folder=True))) as tar:
            assert "a.txt" in [posixpath.normpath(name) for name in tar.getnames()]
        assert w.failed is None


async def test_names_that_are_not_utf8(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        for name in ("workspace/b\udcffd", "workspace/b\ufffdd"):
            with pytest.raises(tineworld.UnusableFiles, match="UTF-8"):
                await w.get(name)
        with pytest.raises(tineworld.UnusableFiles, match="UTF-8"):
            await w.put("workspace/b\udcffd", "1")


def _script(path: Path) -> Path:
    path.write_text("true")
    path.chmod(0o755)
    return path


async def test_what_changed_since_a_snapshot(t: tineworld.Tine) -> None:
    rig.need(t, "GET /v1/sessions/{session}/diff")
    async with t.open(servers=["files", "memory"]) as w:
        await w.call("files__write_file", path="a.txt", content="one")
        before = await w.snapshot()
        steps = len(await w.trajectory())
        assert (await w.diff(before))["files"] == []
        assert len(await w.trajectory()) == steps, "reading is no step"
        await w.call("files__write_file", path="b.txt", content="two")
        await w.call("memory__create_entities", entities=[{"name": "n", "entityType": "t", "observations": []}])
        changed = await w.diff(before)
        assert [(file["path"], file["change"]) for file in changed["files"]] == [("b.txt", "added")]
        assert [(part["kind"], part["change"]) for part in changed["graph"]] == [("entity", "added")]
        assert changed["tables"] == [] and "other" not in changed
        await t.delete_snapshot(before)


async def test_programs_run_beside_servers(t: tineworld.Tine) -> None:
    rig.need(t, "POST /v1/sessions/{session}/exec")
    async with t.open(servers=["fault"]) as w:
        await w.call("fault__count")
        ran = await w.exec("fault", ["sh", "-c", "cat; echo no >&2; exit 3"], stdin="é")
        assert (ran.stdout, ran.stderr, ran.exit, ran.ok) == ("é", "no\n", 3, False)
        assert (await w.exec("fault", ["printf", "\\377"])).out == b"\xff"
        assert (await w.exec("fault", ["sleep", "60"], timeout=0.2)).timed_out
        with pytest.raises(tineworld.Invalid, match="as a list"):
            await w.exec("fault", "ls")


async def test_a_program_whose_answer_breaks_off_is_lost() -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        await answer.write(b'{"stdout": "half"}\n')
        return answer

    async def session(_: web.Request) -> web.StreamResponse:
        return web.json_response({"id": "ses_1"})

    routes = {"POST /v1/sessions/{session}/exec": half, "GET /v1/sessions/{session}": session}
    async with rig.Scripted(routes) as server, tineworld.connect(server.url, lease=None) as t:
        with pytest.raises(tineworld.Lost, match="may still run"):
            await (await t.attach("ses_1")).exec("a", ["b"])
