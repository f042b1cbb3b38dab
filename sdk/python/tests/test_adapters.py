"""What the adapters for trainers share. Each adapter itself is tested with its library, by `make trainers`."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import rig

import tineworld
from tineworld import _adapters

LIBRARIES = {"verifiers": "verifiers", "trl": "trl", "inspect": "inspect_ai", "harbor": "harbor", "rewardkit": "mcp", "nemo": "nemo_gym"}


@pytest.mark.parametrize("module,library", LIBRARIES.items())
def test_without_its_library_an_adapter_says_what_to_install(module: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"tineworld.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"tineworld.{module} needs .*pip install 'tineworld\[{module}\]'"):
        importlib.import_module(f"tineworld.{module}")


def test_identifiers_do_not_collide() -> None:
    names = ["a.b", "a_b", "a-b", "a_b_2", "class", "_x", "1st", "reset", "é", ".", "-"]
    given = _adapters.identifiers(names, ("reset",))
    assert given["a_b"] == "a_b" and given["a_b_2"] == "a_b_2" and given["reset"] != "reset"
    assert set(given) == set(names) and len(set(given.values())) == len(names)
    assert all(one.isidentifier() and not one.startswith("_") for one in given.values())


async def _elsewhere(w: tineworld.World, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call of a client that has the world's URL and token in one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession() as session, session.post(_adapters.url_with_token(w), json=body, headers=headers) as answer:
        assert answer.status == 200
        return dict(await answer.json())


@pytest.fixture
def hasty(tmp_path: Path) -> Any:
    """A gateway whose server takes too long for it."""
    one = rig.Gateway(tmp_path, {"servers": {"files": {"builtin": "files"}, "fault": rig.fault_server(timeout="1s")}})
    one.start()
    yield one
    one.stop()


async def test_a_check_sees_the_calls_of_other_clients(hasty: rig.Gateway) -> None:
    async with tineworld.connect(hasty.url) as t:
        async with t.open(timeouts="drop") as w:
            await _elsewhere(w, "fault__fail")
            await _elsewhere(w, "files__read_text_file", path="absent")
            await _elsewhere(w, "invented")
            await w.check()
            start = await w.snapshot()
            assert (await _elsewhere(w, "fault__hang"))["result"]["isError"]
            with pytest.raises(tineworld.Timeout, match="hang"):
                await w.check()
            assert isinstance(w.failed, tineworld.Timeout)
            await w.rewind(start)
            await w.check()
        async with t.open(timeouts="score") as w:
            await _elsewhere(w, "fault__hang")
            await w.check()


async def test_a_shared_connection_ends_with_its_last_user(gateway: rig.Gateway) -> None:
    async with _adapters.shared(gateway.url) as one:
        async with _adapters.shared(gateway.url) as other:
            assert one is other
        assert await one.sessions() is not None
    with pytest.raises(tineworld.Invalid, match="is closed"):
        await one.sessions()
    users = [_use(gateway.url) for _ in range(5)]
    assert len(set(map(id, await asyncio.gather(*users)))) == 1


async def _use(url: str) -> tineworld.Tine:
    async with _adapters.shared(url) as one:
        await one.sessions()
        return one
