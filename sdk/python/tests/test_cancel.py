"""Programs that stop in the middle leave nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import rig

import tineworld


async def _open_ids(t: tineworld.Tine, label: str) -> list[str]:
    return [s["id"] for s in await t.sessions(labels={"run": label})]


async def test_cancelled_opens_and_forks_are_closed(t: tineworld.Tine) -> None:
    root = await t.open(servers=["files"], labels={"run": "cancel"})
    for pause in (0, 0.0005, 0.001, 0.002, 0.005, 0.01):
        for making in (t.open(servers=["files"], labels={"run": "cancel"}), root.fork(4)):

            async def make(making: tineworld.Opening[object] = making) -> None:  # type: ignore[assignment]
                async with making:
                    await asyncio.Event().wait()

            task = asyncio.create_task(make())
            await asyncio.sleep(pause)  # cancelled at any moment
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def only_the_root() -> bool:
        return await _open_ids(t, "cancel") == [root.id]

    await rig.eventually("only the root is open", only_the_root)
    await root.close()


async def test_a_cancelled_call_ends_and_the_world_goes_on(t: tineworld.Tine) -> None:
    async with t.open(servers=["files", "fault"]) as w:
        task = asyncio.create_task(w.call("fault__hang"))

        async def hangs() -> bool:
            return bool((await w.info())["in_flight"])

        await rig.eventually("the call runs", hangs)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def idle() -> bool:
            return not (await w.info())["in_flight"]

        await rig.eventually("the gateway has heard that the caller left", idle)
        assert not (await w.call("files__list_directory", path=".")).is_error


async def test_the_end_of_a_connection_closes_its_worlds(gateway: rig.Gateway) -> None:
    async with tineworld.connect(gateway.url) as t:
        w = await t.open(servers=["files"], labels={"run": "end"})
        ws = await w.fork(3)
        assert len(await _open_ids(t, "end")) == 4
    assert all(x.closed for x in [w, *ws])
    async with tineworld.connect(gateway.url) as t:
        assert await _open_ids(t, "end") == []
    with pytest.raises(tineworld.TineError, match="closed"):
        await w.call("files__list_directory", path=".")


async def test_closing_twice_is_fine(t: tineworld.Tine) -> None:
    async with t.open(servers=["files"]) as w:
        await w.close()
        await w.close()


async def test_a_block_that_fails_keeps_its_error_though_the_gateway_is_gone(tmp_path: Path) -> None:
    one = rig.Gateway(tmp_path, {"servers": {"files": {"builtin": "files"}}})
    one.start()
    try:
        with pytest.raises(ValueError, match="mine"):
            async with tineworld.connect(one.url, patience=0.2) as t, t.open():
                one.kill()
                raise ValueError("mine")
    finally:
        one.start()
        one.stop()
