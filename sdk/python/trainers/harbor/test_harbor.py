"""Harbor runs trials in worlds, with its oracle as the agent."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
import support
import yaml

import tineworld


@pytest.fixture
def box_gateway(tmp_path: Path) -> Iterator[rig.Gateway]:
    """A gateway whose server `box` has a root with Harbor's folders, as docs/trainers.md makes it."""
    shutil.copy(rig.ROOT / "sdk/python/tests/fault_server.py", tmp_path / "server.py")
    subprocess.run(["bash", "-euc", support.example("harbor", "bash")], cwd=tmp_path, check=True)
    config = yaml.safe_load(support.example("harbor", "yaml"))
    config["servers"]["plain"] = rig.fault_server(sandbox=True)
    one = rig.Gateway(tmp_path, config)
    one.start()
    yield one
    one.stop()


TOML = """
version = "1.0"
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 60.0
[environment]
build_timeout_sec = 60.0
docker_image = "none"
workdir = "/tmp"
"""


def task(folder: Path, solution: str) -> Path:
    """A task: write 4 into a.txt."""
    files = {
        "task.toml": TOML,
        "instruction.md": "Write 4 into a.txt.",
        "environment/given.txt": "given",
        "solution/solve.sh": "#!/bin/bash\n" + solution,
        "tests/test.sh": '#!/bin/bash\nif [ "$(cat /tmp/a.txt)" = 4 ] && [ "$(cat /tmp/given.txt)" = given ]; then r=1; else r=0; fi\necho $r >/logs/verifier/reward.txt\n',
    }
    for path, text in files.items():
        (folder / "task" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "task" / path).write_text(text)
    return folder / "task"


async def run(folder: Path, solution: str, gateway: rig.Gateway, **world: Any) -> Any:
    scope: dict[str, Any] = {}
    exec(support.example("harbor"), scope)
    return await scope["trial"](task(folder, solution), folder / "trials", url=gateway.url, **world)


@pytest.mark.parametrize("solution,reward", [("echo 4 >/tmp/a.txt", 1), ("echo 5 >/tmp/a.txt; exit 3", 0)])
async def test_the_example(box_gateway: rig.Gateway, tmp_path: Path, solution: str, reward: int) -> None:
    result = await run(tmp_path, solution, box_gateway)
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": reward}
    async with tineworld.connect(box_gateway.url) as t:
        assert await t.sessions() == [], "a world is left open"


async def test_a_world_that_failed_is_not_scored(box_gateway: rig.Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The world is closed under the agent, which goes on without a word."""
    from harbor.agents.oracle import OracleAgent

    async def act(self: Any, instruction: str, environment: Any, context: Any) -> None:
        assert (await environment.exec("echo 4 >/tmp/a.txt")).return_code == 0
        async with tineworld.connect(box_gateway.url) as t:
            await (await t.attach(environment.world.id)).close()
        with pytest.raises(tineworld.Lost):
            await environment.exec("true")

    monkeypatch.setattr(OracleAgent, "run", act)
    result = await run(tmp_path, "", box_gateway)
    assert result.verifier_result is None and result.exception_info.exception_type == "Lost"


async def test_what_it_needs(box_gateway: rig.Gateway, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="--ek server=NAME"):
        await run(tmp_path, "", box_gateway, server="")
    result = await run(tmp_path, "", box_gateway, server="plain")
    assert "servers.plain.sandbox.root" in result.exception_info.exception_message


async def test_files(box_gateway: rig.Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harbor.agents.oracle import OracleAgent

    async def act(self: Any, instruction: str, environment: Any, context: Any) -> None:
        (tmp_path / "in" / "deep").mkdir(parents=True)
        (tmp_path / "in" / "deep" / "é.bin").write_bytes(b"\xff\x00")
        await environment.upload_dir(tmp_path / "in", "/tmp/made/here")
        await environment.download_dir("/tmp/made", tmp_path / "out")
        assert (tmp_path / "out" / "here" / "deep" / "é.bin").read_bytes() == b"\xff\x00"
        await environment.upload_file(tmp_path / "in" / "deep" / "é.bin", "/tmp/other/a.bin")
        await environment.download_file("/tmp/other/a.bin", tmp_path / "new" / "a.bin")
        assert (tmp_path / "new" / "a.bin").read_bytes() == b"\xff\x00"
        for path, kind in (("/tmp/none", FileNotFoundError), ("/tmp/other", IsADirectoryError)):
            with pytest.raises(kind):
                await environment.download_file(path, tmp_path / "x")
        with pytest.raises(NotADirectoryError):
            await environment.download_dir("/tmp/other/a.bin", tmp_path / "x")
        ran = await environment.exec("cat; echo $A; pwd; echo no >&2; exit 3", env={"A": "1"}, cwd="/tmp/other")
        assert (ran.stdout, ran.stderr, ran.return_code) == ("1\n/tmp/other\n", "no\n", 3)
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await environment.exec("sleep 60", timeout_sec=1)
        assert (await environment.exec("echo 4 >/tmp/a.txt")).return_code == 0

    monkeypatch.setattr(OracleAgent, "run", act)
    result = await run(tmp_path, "", box_gateway)
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1}
