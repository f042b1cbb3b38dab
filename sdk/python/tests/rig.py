"""What the tests share: real gateways, and scripted ones for what a real one can't be made to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiohttp import web

import tineworld

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0  # seconds that something which should happen soon may take on a busy machine


def lacking(reason: str) -> NoReturn:
    """Skips a test for want of something, which is a failure in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def need(t: tineworld.Tine, *routes: str) -> None:
    """Skips a test where the gateway does not have a route yet, such as "POST /v1/batch"."""
    for route in routes:
        if not t.features.has(*route.split(" ")):
            lacking(f"the gateway under test has no {route} yet")


def tine_binary() -> str:
    path = os.environ.get("TINE_BIN") or str(ROOT / "bin" / "tine")
    if not os.access(path, os.X_OK):
        lacking(f"there is no {path}; run `make build`, or set TINE_BIN")
    return path


async def eventually(what: str, check: Callable[[], Awaitable[bool]]) -> None:
    """Waits for something that nothing announces."""
    end = time.monotonic() + PATIENCE
    while not await check():
        assert time.monotonic() < end, f"after {PATIENCE:g} s it is still not so that {what}"
        await asyncio.sleep(0.02)


def fault_server(**more: Any) -> dict[str, Any]:
    """The entry of a server whose tools fail as they are told. It declares state, so that it forks."""
    entry = {"command": sys.executable, "args": [str(Path(__file__).with_name("fault_server.py"))]}
    return entry | {"fork": "fresh", "policy": {"retry": {"attempts": 1}}} | more


def boxed_server() -> dict[str, Any]:
    """The server `box`, in a sandbox; none where this machine has no sandboxes."""
    if not sys.platform.startswith("linux") or not Path(tine_binary()).with_name("tine-sandbox").exists():
        return {}
    return {"box": {"builtin": "rlm"}}


def holders(folder: Path) -> list[int]:
    """The processes that have a file in a folder open, or its name in their arguments: gateways, and their servers."""
    out = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(link) for link in (entry / "fd").iterdir()]
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if any(link.startswith(str(folder)) for link in links) or os.fsencode(folder) in arguments:
            out.append(int(entry.name))
    return out


class Gateway:
    """A `tine serve` that can be killed and started again at the same address."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.url = ""
        (folder / "tine.yaml").write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        listen = self.url.removeprefix("http://") or "127.0.0.1:0"
        argv = [tine_binary(), "serve", "--listen", listen, "--state", str(self.state), "--config", str(self.folder / "tine.yaml")]
        with open(self.folder / "gateway.log", "ab") as log:
            process = self._process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=self.folder)
        end = time.monotonic() + PATIENCE
        while not self._serves(process.pid):
            assert process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.02)

    def _serves(self, pid: int) -> bool:
        try:
            known = self.record()
            if known["pid"] != pid:
                return False
            with urllib.request.urlopen(known["url"].rstrip("/") + "/readyz", timeout=5) as answer:
                self.url = known["url"].rstrip("/")
                return bool(answer.status == 200)
        except (OSError, ValueError):
            return False

    def record(self) -> dict[str, Any]:
        """How the command line finds this gateway."""
        return dict(json.loads((self.state / "gateway.json").read_bytes()))

    def log(self) -> str:
        return (self.folder / "gateway.log").read_text(errors="replace")[-8000:]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
            return
        for pid in self.holders():  # a gateway that was killed leaves its servers to the next
            with contextlib.suppress(ProcessLookupError):  # it was a part of one before
                os.kill(pid, signal.SIGKILL)

    def holders(self) -> list[int]:
        return holders(self.state)


class Relay:
    """Connections to a gateway, on which a test does what a network does."""

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self._open: set[asyncio.StreamWriter] = set()
        self._frozen: set[asyncio.StreamWriter] = set()
        #: How many answers to these requests are lost, with their connection: the start of a request and a count.
        self.lose: dict[bytes, int] = {}
        #: The beginnings of the requests that came.
        self.asked: list[bytes] = []
        self.url = ""

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://127.0.0.1:" + str(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Breaks all connections that are open."""
        for writer in self._open:
            writer.transport.abort()

    def freeze(self) -> None:
        """Has all connections that are open bring nothing more, without an end."""
        self._frozen |= self._open

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, out = await asyncio.open_connection(self._host, int(self._port))
        both = {writer, out}
        self._open |= both
        loses: list[bytes] = []

        async def ask() -> None:
            while piece := await reader.read(1 << 16):
                self.asked.append(piece)
                loses.extend(start for start in self.lose if piece.startswith(start) and self.lose[start])
                out.write(piece)

        async def answer() -> None:
            while piece := await up.read(1 << 16):
                if loses:
                    self.lose[loses.pop()] -= 1
                    return
                if writer not in self._frozen:
                    writer.write(piece)

        working = [asyncio.create_task(ask()), asyncio.create_task(answer())]
        try:
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            self._open -= both
            for one in both:
                one.transport.abort()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Scripted:
    """A server that answers as a test says, with an OpenAPI document of the routes that it has."""

    def __init__(self, routes: Mapping[str, Handler], schemas: dict[str, Any] | None = None) -> None:
        self._routes = routes
        self._schemas = schemas or {}
        self.url = ""

    async def __aenter__(self) -> Scripted:
        app = web.Application(client_max_size=64 << 20)
        paths: dict[str, dict[str, Any]] = {}
        for route, handler in self._routes.items():
            method, path = route.split(" ")
            app.router.add_route(method, path, handler)
            paths.setdefault(path, {})[method.lower()] = {}
        document = {"openapi": "3.1.0", "paths": paths, "components": {"schemas": self._schemas}}
        app.router.add_get("/v1/openapi.json", _answers(document))
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


def _answers(value: Any) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(value)

    return answer
