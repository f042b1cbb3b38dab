"""The parts that need no gateway."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hatchling.build
import pytest

import tineworld
from tineworld import _address, _lines, _tar, messages, result, trajectory
from tineworld.trajectory import Step


def test_addresses() -> None:
    for given, base, token in [
        ("http://h:1", "http://h:1", ""),
        ("https://h/tine/", "https://h/tine", ""),
        ("http://h:1/mcp", "http://h:1", ""),
        ("http://h:1/tine/mcp/files/", "http://h:1/tine", ""),
        ("http://h:1/s/ses_1/mcp/orchestrator", "http://h:1", ""),
        ("http://h:1/s/mcp/x/y", "http://h:1/s/mcp/x/y", ""),
        ("http://u:p%40ss@h:1?x=1#y", "http://h:1", "p@ss"),
        ("http://[::1]:8463", "http://[::1]:8463", ""),
    ]:
        found = _address.address(given, None)
        assert (found.base, found.token) == (base, token)
    assert _address.address("http://u:p@h", "mine").token == "mine"
    assert [_address.address(u, None).loopback for u in ("http://localhost", "http://127.9.9.9", "http://[::1]", "http://10.0.0.1", "http://h")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert _address.address("http://h", None).at(["v1", "a/b c", ".."]) == "http://h/v1/a%2Fb%20c/%2E%2E"
    with pytest.raises(tineworld.Invalid, match="line break"):
        _address.address("http://h", "a\nb")


def test_the_environment_says_where_and_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINE_URL", raising=False)
    monkeypatch.delenv("TINE_TOKEN", raising=False)
    assert _address.address(None, None) == _address.Address("http://127.0.0.1:8463", "", True)
    monkeypatch.setenv("TINE_URL", "http://there:1")
    monkeypatch.setenv("TINE_TOKEN", "secret")
    assert _address.address(None, None) == _address.Address("http://there:1", "secret", False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_lines_of_any_length_in_any_pieces(size: int) -> None:
    lines = [b'{"a": 1}', b'{"b": "' + b"x" * 200_000 + b'"}', b'{"c": 3}'] if size > 3 else [b'{"a": 1}', b"{}", b'{"c": 3}']
    whole = b"\n" + b"\n\n".join(lines)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(whole), size):
            yield whole[at : at + size]

    assert [line async for line in _lines.split(pieces(), 1 << 20)] == lines
    with pytest.raises(tineworld.Infrastructure, match="max_body"):
        _ = [line async for line in _lines.split(pieces(), 4)]


def test_names_that_models_take() -> None:
    names = ["files__read", "rlm__exec.py", "rlm__exec/py", "rlm__exec_py", "a" * 80, "a" * 79 + "b"]
    given = messages.model_names(names)
    assert given["files__read"] == "files__read" and given["rlm__exec_py"] == "rlm__exec_py"
    assert len(set(given.values())) == len(names)
    assert all(len(name) <= 64 and not messages._FORBIDDEN.search(name) for name in given.values())
    assert given == messages.model_names(names), "the names are the same every time"


def test_objects_of_the_model_clients_are_read() -> None:
    class Model(SimpleNamespace):
        def model_dump(self) -> dict[str, Any]:
            return dict(vars(self))

    call = Model(id="1", type="function", function={"name": "f", "arguments": '{"a": 1}'})
    assert messages.tool_calls(Model(role="assistant", content=None, tool_calls=[call])) == ("openai", [messages.ToolCall("1", "f", {"a": 1})])
    use = Model(type="tool_use", id="2", name="g", input={"b": 2})
    assert messages.tool_calls(Model(role="assistant", content=[use])) == ("anthropic", [messages.ToolCall("2", "g", {"b": 2})])
    assert messages.tool_calls({"role": "assistant", "content": "done", "tool_calls": None}) == ("openai", [])


def test_a_result_that_says_that_the_world_failed_is_raised() -> None:
    def answer(kind: str) -> dict[str, Any]:
        return {"content": [], "isError": True, "_meta": {"tine/error": {"kind": kind, "message": "m", "server": "s"}}}

    for kind, cls in {"lost": tineworld.Lost, "timeout": tineworld.Timeout, "refused": tineworld.Refused, "new": tineworld.Infrastructure}.items():
        with pytest.raises(cls):
            result.from_wire("t", answer(kind))
    assert result.from_wire("t", answer("invalid")).kind == "invalid"
    wrong: list[Any] = [None, [], {"content": "text"}, {"content": ["text"]}]
    for broken in wrong:
        with pytest.raises(tineworld.Infrastructure):
            result.from_wire("t", broken)


def test_structured_content_is_shown_where_there_is_nothing_else() -> None:
    only = result.from_wire("t", {"structuredContent": {"é": 1}})
    assert messages.answers("openai", [("1", only)])[0]["content"] == '{"é": 1}'
    assert messages.answers("anthropic", [("1", only)])[0]["content"][0]["content"] == [{"type": "text", "text": '{"é": 1}'}]
    empty = result.from_wire("t", {"content": [{"type": "text", "text": ""}]})
    assert messages.answers("anthropic", [("1", empty)])[0]["content"][0]["content"] == []
    with pytest.raises(tineworld.TineError, match="the answer of t is not JSON"):
        empty.json()


def _call(id: str, **more: Any) -> Step:
    base = {"type": "call", "method": "tools/call", "id": id, "server": "s", "name": "n", "arguments": {"a": id}, "journal": "full"}
    step: Step = base | more  # type: ignore[assignment]
    return step


def test_messages_of_a_trajectory() -> None:
    text = {"content": [{"type": "text", "text": "ok"}]}
    steps: list[Step] = [
        {"type": "session", "session": "ses_1"},
        _call("c1", result=text, outcome="ok", undone=True),
        _call("c2", result=text, outcome="ok"),
        _call("r2", result=text, outcome="ok", server="grader", meta={"openenv/reward": "c2"}),
        {"type": "annotation", "id": "a1", "call": "c2", "text": "I try", "reward": 0.5},
        _call("c3", result={"code": -32602, "message": "no tool n"}, outcome="invalid", error="no tool n"),
        {"type": "annotation", "id": "a2", "text": "I am done", "reward": 1.0},
        {"type": "annotation", "id": "a3", "reward": 9.0, "undone": True},
    ]
    openai = trajectory.to_messages(steps)
    assert [m["role"] for m in openai] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert openai[0]["content"] == "I try" and openai[0]["tool_calls"][0]["function"] == {"name": "s__n", "arguments": json.dumps({"a": "c2"})}
    assert openai[1] == {"role": "tool", "tool_call_id": "c2", "content": "ok"}
    assert openai[3]["content"] == "no tool n" and openai[4] == {"role": "assistant", "content": "I am done"}
    anthropic = trajectory.to_messages(steps, "anthropic")
    assert [b["type"] for b in anthropic[0]["content"]] == ["text", "tool_use"]
    assert anthropic[3]["content"][0]["is_error"] is True
    assert trajectory.rewards(steps) == [0.5, 1.0]


def test_a_trajectory_that_lacks_something_makes_no_messages() -> None:
    for step, what in [
        (_call("c1", outcome="infrastructure", error="it died"), "has no result in the trajectory .it died."),
        (_call("c1", journal="meta", outcome="ok"), "has no arguments"),
        (_call("c1", note="dropped", outcome="ok"), "dropped"),
    ]:
        with pytest.raises(tineworld.TineError, match=what):
            trajectory.to_messages([step])


def test_folders_travel_whole_and_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_bytes(b"\x00\xff")
    (tmp_path / "a" / "run.sh").write_text("x")
    (tmp_path / "a" / "run.sh").chmod(0o755)
    _tar.unpack(io.BytesIO(_tar.pack(tmp_path / "a")), tmp_path / "z")
    assert (tmp_path / "z" / "b" / "c.txt").read_bytes() == b"\x00\xff"
    assert (tmp_path / "z" / "run.sh").stat().st_mode & 0o111


def _tar_of(*members: tuple[str, bytes, str]) -> bytes:
    """A tar file of names, types, and contents or the targets of links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, what in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o6777
            if kind == tarfile.REGTYPE:
                info.size = len(what)
            elif kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = what
            tar.addfile(info, io.BytesIO(what.encode()))
    return out.getvalue()


def test_what_a_world_can_not_take_is_not_packed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("1")
    os.link(tmp_path / "a" / "one", tmp_path / "a" / "two")
    os.symlink("one", tmp_path / "a" / "link")
    os.mkfifo(tmp_path / "a" / "pipe")
    with tarfile.open(fileobj=io.BytesIO(_tar.pack(tmp_path / "a"))) as tar:
        assert {entry.name: entry.type for entry in tar} == {"link": tarfile.SYMTYPE, "one": tarfile.REGTYPE, "two": tarfile.REGTYPE}
        two = tar.extractfile("two")
        assert two is not None and two.read() == b"1"
    assert f"{tmp_path}/a/pipe was left out" in caplog.text


def test_what_leads_out_of_a_folder_is_left_out_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    to = tmp_path / "a" / "to"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept.txt").write_text("kept")
    out = "../../outside"
    wrong = [
        ("abs", tarfile.SYMTYPE, str(tmp_path / "outside")),
        ("up", tarfile.SYMTYPE, out),
        ("d/far", tarfile.SYMTYPE, "../.."),
        ("d/over", tarfile.SYMTYPE, "here/../../.."),
        ("/abs.txt", tarfile.REGTYPE, "x"),
        ("../up.txt", tarfile.REGTYPE, "x"),
        ("d/../../../up.txt", tarfile.REGTYPE, "x"),
        ("fifo", tarfile.FIFOTYPE, ""),
        ("dev", tarfile.CHRTYPE, ""),
        ("hard", tarfile.LNKTYPE, out + "/kept.txt"),
        ("loop2", tarfile.LNKTYPE, "loop"),
        ("n" * 300, tarfile.REGTYPE, "x"),
        ("d/f.txt/below", tarfile.REGTYPE, "x"),
    ]
    right = [
        ("./", tarfile.DIRTYPE, ""),
        ("loop", tarfile.SYMTYPE, "loop"),
        ("d", tarfile.DIRTYPE, ""),
        ("d/f.txt", tarfile.REGTYPE, "text"),
        ("d/here", tarfile.SYMTYPE, "."),
        ("d/root", tarfile.SYMTYPE, ".."),
        ("dangling", tarfile.SYMTYPE, "d/absent"),
        ("other", tarfile.LNKTYPE, "d/f.txt"),
    ]
    _tar.unpack(io.BytesIO(_tar_of(*right, *wrong)), to)
    assert sorted(p.relative_to(to).as_posix() for p in to.rglob("*")) == ["d", "d/f.txt", "d/here", "d/root", "dangling", "loop", "other"]
    assert [(to / name).read_text() for name in ("d/f.txt", "d/here/f.txt", "d/root/other")] == ["text"] * 3
    assert (to / "d" / "f.txt").stat().st_mode & 0o7777 == 0o755 and (to / "other").stat().st_nlink == 1
    assert len(caplog.records) == len(wrong) and all(ascii(name) in caplog.text for name, _, _ in wrong)
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["kept.txt"] and sorted(p.name for p in tmp_path.iterdir()) == ["a", "outside"]


def test_what_the_gateway_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        root = tarfile.TarInfo("./")
        root.type, root.pax_headers = tarfile.DIRTYPE, {"TINE.left-out": '["a/ff"]'}
        tar.addfile(root)
    _tar.unpack(out, tmp_path)
    assert "'a/ff' was not written" in caplog.text and "neither a file" in caplog.text


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f.txt").write_text("kept")
    to = tmp_path / "to"
    to.mkdir()
    (to / "folder").symlink_to("../outside")
    (to / "file").symlink_to("../outside/f.txt")
    # Also if the tar file has the link before what goes through it.
    through = [("folder/f.txt", tarfile.REGTYPE, "x"), ("link", tarfile.SYMTYPE, "d"), ("link/new", tarfile.REGTYPE, "x")]
    _tar.unpack(io.BytesIO(_tar_of(*through, ("file", tarfile.REGTYPE, "new"), ("folder", tarfile.DIRTYPE, ""))), to)
    assert [(p.name, p.read_text()) for p in (tmp_path / "outside").iterdir()] == [("f.txt", "kept")]
    assert (to / "file").read_text() == "new" and not (to / "file").is_symlink()


def test_a_file_in_the_place_of_a_folder_is_the_worlds(tmp_path: Path) -> None:
    with pytest.raises(tineworld.UnusableFiles, match="is a folder"):
        _tar.write(io.BytesIO(b"x"), tmp_path)
    (tmp_path / "f").write_text("kept")
    with pytest.raises(tineworld.UnusableFiles, match="is a file"):
        _tar.unpack(io.BytesIO(_tar_of()), tmp_path / "f")
    assert (tmp_path / "f").read_text() == "kept"
    with pytest.raises(tineworld.Infrastructure, match="can't be read"):
        _tar.unpack(io.BytesIO(b"no tar file"), tmp_path / "g")


def test_modules_are_small() -> None:
    for file in (Path(__file__).parents[1]).rglob("*.py"):
        lines = file.read_text().count("\n")
        assert lines <= 400, f"{file} has {lines} lines; it is about more than one thing"


def test_the_wheel_takes_no_name_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tine` is another project's import and command."""
    monkeypatch.chdir(Path(__file__).parents[1])
    with zipfile.ZipFile(tmp_path / hatchling.build.build_wheel(str(tmp_path))) as wheel:
        names = wheel.namelist()
        assert {name.split("/")[0].split("-")[0] for name in names} == {"tineworld"}
        assert "tineworld/py.typed" in names
        scripts = [wheel.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    for line in "".join(scripts).splitlines():
        assert "=" not in line or line.split("=")[0].strip() == "tineworld"
