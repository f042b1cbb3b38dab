"""Errors name the thing and what to do about it."""

from __future__ import annotations

import asyncio
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
import rig
from aiohttp import web

import tineworld
from tineworld import errors


def test_no_failure_is_one_that_frameworks_show_to_a_model() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TineError)]
    assert {errors.Infrastructure, errors.Timeout, errors.Lost, errors.Refused} <= set(classes)
    for cls in classes:
        assert not issubclass(cls, (TimeoutError, PermissionError, FileNotFoundError, OSError)), cls


def test_kinds_are_classes_and_survive_pickling() -> None:
    for kind in ("infrastructure", "timeout", "lost", "refused"):
        error = errors.from_api({"kind": kind, "message": "m", "server": "s", "retryable": True, "causes": [{"kind": "lost", "message": "c"}]}, 503)
        assert isinstance(error, tineworld.WorldFailed) and error.kind == kind
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and vars(again).keys() == vars(error).keys() and again.server == "s" and str(again) == "m"
    assert isinstance(errors.from_api({"kind": "new", "message": "m"}), tineworld.Infrastructure), "an unknown kind drops the rollout"
    assert not isinstance(errors.from_api({"kind": "invalid", "message": "m"}), tineworld.WorldFailed)


@pytest.mark.parametrize("url", ["127.0.0.1:8463", "ftp://host", "http://", "http://[::1", "http://host:port"])
def test_a_bad_url_is_told_before_anything_is_sent(url: str) -> None:
    with pytest.raises(tineworld.Invalid, match="write it like http://127.0.0.1:8463"):
        tineworld.connect(url)


def test_a_bad_url_shows_no_secret() -> None:
    with pytest.raises(tineworld.Invalid) as wrong:
        tineworld.connect("ftp://me:secret@host")
    assert "secret" not in str(wrong.value)


@pytest.mark.parametrize("program", ["tine", "tineworld"])
async def test_a_dead_gateway(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint names the command that is there: the one of a wheel is `tineworld`."""
    (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TINE_BIN", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(tineworld.NoGateway, match=f"no gateway at {url}: .*is `{program} serve` running"):
            await tineworld.connect(url)


async def test_a_name_that_is_not_known() -> None:
    with pytest.raises(tineworld.NoGateway, match="check the URL"):
        await tineworld.connect("http://gateway.invalid:1")


async def test_a_wrong_token(tmp_path: Path) -> None:
    one = rig.Gateway(tmp_path, {"servers": {"files": {"builtin": "files"}}, "auth": {"tokens": [{"name": "a", "token": "right-token-0123456789"}]}})
    one.start()
    try:
        for token in ("", "wrong"):
            with pytest.raises(tineworld.Refused, match=f"{one.url} does not let the caller in: .*TINE_TOKEN") as refused:
                await tineworld.connect(one.url, token)
            assert refused.value.status == 401
        async with tineworld.connect(one.url.replace("http://", "http://any:right-token-0123456789@")) as t:
            assert t.url == one.url, "the token in the URL is not shown"
            async with t.open() as w:
                assert not (await w.call("files__list_directory", path=".")).is_error
    finally:
        one.stop()


async def test_another_program_at_the_url() -> None:
    async def page(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>", content_type="text/html")

    async def elsewhere(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://127.0.0.1:1/")

    app = web.Application()
    app.router.add_get("/page/v1/openapi.json", page)
    app.router.add_get("/elsewhere/v1/openapi.json", elsewhere)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        for path, why in {"page": "not that of Tine", "elsewhere": "never redirects", "nothing": "does not look like Tine"}.items():
            with pytest.raises(tineworld.Infrastructure, match=f"{why}.*check the URL"):
                await tineworld.connect(f"http://127.0.0.1:{port}/{path}")
    finally:
        await runner.cleanup()


async def test_an_unknown_server_and_bad_arguments(t: tineworld.Tine) -> None:
    with pytest.raises(tineworld.Invalid, match="nowhere"):
        await t.open(servers=["nowhere"])
    with pytest.raises(tineworld.Invalid, match=r"servers is a list, such as \['files'\]"):
        t.open(servers="files")
    with pytest.raises(tineworld.Invalid, match="labels"):
        await t.open(labels={"a b": "c"})
    async with t.open(servers=["files"]) as w:
        with pytest.raises(tineworld.Invalid, match="timeout of files__x must be"):
            await w.call("files__x", timeout=0)
        with pytest.raises(tineworld.Invalid, match="assistant's message"):
            await w.act({"role": "user", "content": "hello"})
        with pytest.raises(tineworld.Invalid, match="not the whole response"):
            await w.act({"choices": []})


async def test_a_world_that_another_closed_is_lost(t: tineworld.Tine, gateway: rig.Gateway) -> None:
    async with t.open(servers=["files"]) as w:
        async with tineworld.connect(gateway.url) as other:
            await (await other.attach(w.id)).close()
        with pytest.raises(tineworld.Lost, match=f"world {w.id} is gone") as lost:
            await w.call("files__list_directory", path=".")
        assert w.failed is lost.value
        w.failed = None
        for work in (w.check(), w.tools(), w.snapshot(), w.rewind(), _make(w.fork(2))):
            with pytest.raises(tineworld.Lost, match=f"world {w.id}"):
                await work
            assert isinstance(w.failed, tineworld.Lost)


async def test_a_server_that_dies_loses_the_world(t: tineworld.Tine) -> None:
    async with t.open(servers=["fault"]) as w:
        await w.check()
        with pytest.raises(tineworld.Lost) as lost:
            await w.call("fault__die")
        assert lost.value.server == "fault" and w.failed is lost.value
        async with t.open(servers=["fault"]) as other:
            assert (await other.call("fault__count")).data["calls"] == 1


async def test_a_server_that_is_away_is_infrastructure(t: tineworld.Tine) -> None:
    async with t.open(servers=["gone"]) as w:
        with pytest.raises(tineworld.Infrastructure) as failed:
            await w.call("gone__anything")
        assert failed.value.server == "gone"


@pytest.mark.parametrize("timeouts", ["drop", "score"])
async def test_a_call_that_takes_too_long(t: tineworld.Tine, timeouts: tineworld.Timeouts) -> None:
    async with t.open(servers=["fault"], timeouts=timeouts) as w:
        if timeouts == "score":
            late = await w.call("fault__hang", timeout=0.2)
            assert late.is_error and late.kind == "timeout" and w.failed is None
        else:
            with pytest.raises(tineworld.Timeout) as failed:
                await w.call("fault__hang", timeout=0.2)
            assert w.failed is failed.value


async def test_a_call_that_breaks_off_is_lost_and_not_repeated() -> None:
    made: list[Any] = []

    async def call(request: web.Request) -> web.StreamResponse:
        made.append(await request.json())
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with rig.Scripted({"POST /v1/call": call, "GET /v1/sessions/{id}": _session}) as server:
        async with tineworld.connect(server.url, lease=None) as t:
            w = await t.attach("ses_1")
            with pytest.raises(tineworld.Lost, match="broke off.*whether it was carried out is unknown"):
                await w.call("files__write_file", path="a")
    assert [one["tool"] for one in made] == ["files__write_file"]


async def test_a_refusal_for_now_is_tried_again() -> None:
    refusals = iter([429, 503])

    async def call(_: web.Request) -> web.StreamResponse:
        if status := next(refusals, None):
            return web.json_response({"kind": "refused", "message": "too many", "retryable": True}, status=status)
        return web.json_response({"result": {"content": [{"type": "text", "text": "ok"}]}})

    async with rig.Scripted({"POST /v1/call": call, "GET /v1/sessions/{id}": _session}) as server:
        async with tineworld.connect(server.url, lease=None) as t:
            assert (await (await t.attach("ses_1")).call("a__b")).text == "ok"


async def test_a_creation_that_breaks_off_is_repeated_with_its_key() -> None:
    keys: list[str] = []

    async def open(request: web.Request) -> web.StreamResponse:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) < 3:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"id": "ses_1", "token": "x"})

    async def close(_: web.Request) -> web.StreamResponse:
        return web.Response(status=204)

    async with rig.Scripted({"POST /v1/sessions": open, "DELETE /v1/sessions/{id}": close}) as server:
        async with tineworld.connect(server.url, lease=None) as t, t.open() as w:
            assert w.id == "ses_1"
    assert len(keys) == 3 and len(set(keys)) == 1


async def test_what_an_old_gateway_does_not_have_is_named() -> None:
    async with rig.Scripted({"GET /v1/sessions/{id}": _session}) as server:
        async with tineworld.connect(server.url, lease=None) as t:
            w = await t.attach("ses_1")
            for work in (w.annotate(reward=1), w.exec("a", ["b"]), w.files(), w.diff("s"), w.put("a", ""), w.get("a"), t.open_many(2)):
                with pytest.raises(tineworld.MissingFeature, match=f"{server.url} has no .*update the gateway"):
                    await work


async def _make(opening: tineworld.Opening[list[tineworld.World]]) -> list[tineworld.World]:
    return await opening


def test_a_connection_of_another_loop(gateway: rig.Gateway) -> None:
    async def connect() -> tineworld.Tine:
        return await tineworld.connect(gateway.url)

    runner = asyncio.Runner()
    t = runner.run(connect())
    with pytest.raises(tineworld.Invalid, match="belongs to another event loop; connect.. in this one, or use tineworld.sync"):
        asyncio.run(t.sessions())
    runner.run(t.close())
    with pytest.raises(tineworld.Invalid, match="is closed; connect.. again"):
        runner.run(t.sessions())
    runner.close()


async def _session(request: web.Request) -> web.StreamResponse:
    return web.json_response({"id": request.match_info["id"]})
