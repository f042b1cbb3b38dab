"""Gateways that the package starts itself."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import rig

import tineworld

PROGRAM = """
import asyncio, os, sys, tineworld
async def main():
    t = await tineworld.local(state=sys.argv[1])
    w = await t.open(servers=["files"])
    await w.call("files__write_file", path="a", content="1")
    print(t.url, flush=True)
    if sys.argv[2] == "exit":
        return
    await asyncio.Event().wait()
asyncio.run(main())
"""

# Its gateway is killed, and then it ends, in one of three ways.
KILLED = """
import asyncio, json, os, signal, sys, tineworld
from pathlib import Path
async def main():
    async with tineworld.local(json.loads(sys.argv[1]), patience=1) as t:
        async with t.open() as w:
            for fork in [w, *await w.fork(1)]:
                await fork.call("fault__count")
                if "box" in sys.argv[1]:
                    await fork.call("box__rlm_exec", code="1")
            [record] = Path(os.environ["TMPDIR"]).glob("tineworld-*/state/gateway.json")
            gateway = json.loads(record.read_bytes())["pid"]
            watch = int(Path(f"/proc/{gateway}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(gateway, signal.SIGKILL)
            print("killed", flush=True)
            sys.stdin.readline()
            if sys.argv[2] == "shell":
                os.kill(watch, signal.SIGKILL)
            if sys.argv[2] == "program":
                os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def _serves(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/readyz", timeout=5):
            return True
    except OSError:
        return False


async def test_it_serves_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tine.yaml").write_text("servers: {other: {builtin: files}}")
    async with tineworld.local(binary=rig.tine_binary()) as t:
        async with t.open(servers=["files", "sqlite"]) as w:
            assert not (await w.call("files__list_directory", path=".")).is_error
        url = t.url
    assert not _serves(url)


async def test_its_config_is_a_dict_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tine.yaml"
    file.write_text("servers: {mine: {builtin: files}}\n")
    for config in ({"servers": {"mine": {"builtin": "files"}}}, file, str(file)):
        async with tineworld.local(config, binary=rig.tine_binary(), state=tmp_path / "state") as t, t.open() as w:
            assert {tool["name"].split("__")[0] for tool in await w.tools("anthropic")} == {"mine"}
    assert (tmp_path / "state" / "tine.db").exists(), "a state folder of the caller's stays"


async def test_its_config_is_read_as_it_is_written(tmp_path: Path) -> None:
    odd = "a\u2028é\U0001f600\x85\x7f\\n: # {"
    config = {"servers": {"fault": rig.fault_server(env={"ODD": odd})}}
    async with tineworld.local(config, binary=rig.tine_binary()) as t, t.open() as w:
        await w.call("fault__count")
        assert (await w.exec("fault", ["printenv", "ODD"])).stdout == odd + "\n"
    async with tineworld.local({}, binary=rig.tine_binary()):
        pass


async def test_a_config_or_a_program_that_does_not_work(tmp_path: Path) -> None:
    program = {"command": "true", "args": ["a\u2028é\U0001f600\x85"]}
    for config, why in (
        ({"nonsense": 1}, 'unknown key "nonsense"'),
        ({"servers": {"x": program | {"sandbx": True}}}, 'unknown key "sandbx" in servers.x; did you mean "sandbox"'),
        ({"servers": {"x": {"comand": "true"}}}, 'unknown key "comand" in servers.x; did you mean "command"'),
        ({"servers": {"x": {"builtin": "fles"}}}, 'servers.x.builtin: got "fles"'),
        ({"servers": {"x": {"command": Path("true")}}}, "is not JSON: .*PosixPath"),
        ({"listen": float("nan")}, "is not JSON"),
        ({"listen": "\ud800"}, "is not JSON"),
    ):
        with pytest.raises(tineworld.Invalid, match=why) as error:
            await tineworld.local(config, binary=rig.tine_binary())
        assert "tine.yaml" not in str(error.value) and "/tmp" not in str(error.value), "the file is gone"
    (tmp_path / "mine.yaml").write_text("servers:\n  x: {sandbx: true}\n")
    with pytest.raises(tineworld.Invalid, match='mine.yaml:2:.*"sandbx"'):
        await tineworld.local(tmp_path / "mine.yaml", binary=rig.tine_binary())
    (tmp_path / "state").write_text("no folder")
    with pytest.raises(tineworld.Infrastructure, match="(?s)ended with exit code"):
        await tineworld.local(state=tmp_path / "state", binary=rig.tine_binary())
    with pytest.raises(tineworld.Invalid, match="there is no config .*absent.yaml"):
        await tineworld.local(tmp_path / "absent.yaml", binary=rig.tine_binary())
    with pytest.raises(tineworld.Invalid, match="absent is not a program.*TINE_BIN"):
        await tineworld.local(binary=tmp_path / "absent")


@pytest.mark.parametrize("how", ["exit", "kill"])
async def test_it_ends_with_the_program(tmp_path: Path, how: str) -> None:
    """Also where the program is killed, or ends without closing anything."""
    argv = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "state"), how]
    temporary = tmp_path / "a temporary folder"
    temporary.mkdir()
    environment = os.environ | {"TINE_BIN": rig.tine_binary(), "TMPDIR": str(temporary)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None
        url = program.stdout.readline().decode().strip()
        assert url.startswith("http://")
        if how == "kill":
            assert _serves(url) and any(temporary.iterdir())
            program.kill()

    async def gone() -> bool:
        return not _serves(url) and not any(temporary.iterdir())

    await rig.eventually("the gateway is gone, and its temporary folder", gone)
    assert (tmp_path / "state").is_dir(), "a state folder of the caller's stays"


@pytest.mark.parametrize("ends", ["block", "program", "shell"])
async def test_a_gateway_that_was_killed_leaves_nothing(tmp_path: Path, ends: str) -> None:
    """Neither servers nor sandboxes nor the folder, also where the program is killed after it, or the shell between them."""
    if not sys.platform.startswith("linux"):
        rig.lacking("processes are counted in /proc")
    config = json.dumps({"servers": {"fault": rig.fault_server()} | rig.boxed_server()})
    environment = os.environ | {"TINE_BIN": rig.tine_binary(), "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", KILLED, config, ends]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None and program.stdout.readline() == b"killed\n"
        [folder] = tmp_path.glob("tineworld-*")
        for server in ("fault", *rig.boxed_server()):
            left = [rig.holders(one) for one in (folder / "state" / "instances").glob(f"{server}-*")]
            assert sum(map(bool, left)) == 2, f"two instances of {server} outlive the gateway"
        program.communicate(b"\n")
    assert program.returncode == (-signal.SIGKILL if ends == "program" else 0)

    async def gone() -> bool:
        return rig.holders(folder) == [] and not folder.exists()

    await rig.eventually("nothing is left", gone)


async def test_what_a_killed_gateway_left_and_can_not_be_ended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = tmp_path / "mine.yaml"
    right = json.dumps({"listen": "127.0.0.1:0", "servers": {"fault": rig.fault_server()}})
    config.write_text(right)
    t = await tineworld.local(config, binary=rig.tine_binary(), patience=0.1)
    await (await t.open()).call("fault__count")
    [folder] = tmp_path.glob("tineworld-*")
    record = folder / "state" / "gateway.json"
    os.kill(json.loads(record.read_bytes())["pid"], signal.SIGKILL)
    config.write_text("nonsense: 1")
    await t.close()
    assert rig.holders(folder / "state"), "its server runs on"
    told = caplog.messages[-1]
    assert 'unknown key "nonsense"' in told and f"remove {folder}: " in told
    config.write_text(right)
    with subprocess.Popen(shlex.split(told.rpartition(f"remove {folder}: ")[2]), stdout=subprocess.DEVNULL) as again:

        async def serves() -> bool:
            return bool(json.loads(record.read_bytes())["pid"] == again.pid)

        await rig.eventually("the command of the warning serves", serves)
        again.terminate()
    assert rig.holders(folder) == []
