"""Files and programs of a world, beside its tools: for set-up and rewards. Reading is not in the
trajectory, and wakes and changes nothing."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from . import _tar
from ._base import Base
from ._wire import LINES, Ask, encode
from .errors import BrokenOff, Invalid, Lost, UnusableFiles, from_api

T = TypeVar("T")
FILES = "/v1/sessions/{session}/files/{place}/{path}"


@dataclass(frozen=True)
class Executed:
    """What a program did that ran in a world. One of `exit`, `signal` and `timed_out` says how it
    ended."""

    out: bytes
    err: bytes
    #: The exit code; None where the program did not exit by itself.
    exit: int | None = None
    #: The signal that ended it, such as KILL.
    signal: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether the program exited with 0."""
        return self.exit == 0

    @property
    def stdout(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.err.decode(errors="replace")


class Places(Base):
    """The part of a world that is about files and programs."""

    async def exec(
        self,
        server: str,
        argv: Sequence[str],
        *,
        stdin: str | bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Executed:
        """Runs a program beside a server: in its sandbox, container or process.

        >>> (await w.exec("shell", ["pytest", "-q"], timeout=60)).exit
        """
        self._usable()
        if isinstance(argv, str):
            raise Invalid("exec() takes the program and its arguments as a list, not as one string")
        given = {"cwd": cwd, "env": dict(env) if env else None, "user": user}
        body: dict[str, Any] = {"server": server, "argv": list(argv)} | {k: v for k, v in given.items() if v is not None}
        if isinstance(stdin, str):
            body["stdin"] = stdin
        elif stdin:
            body["stdin64"] = base64.b64encode(stdin).decode()
        if timeout is not None:
            body["timeout"] = f"{int(timeout * 1000)}ms"
        self._tine.features.need("POST", "/v1/sessions/{session}/exec")
        ask = Ask("POST", ("v1", "sessions", self.id, "exec"), body=encode(body), accept=LINES)
        return await self._ours(self._executed(ask, " ".join(argv)))

    async def _executed(self, ask: Ask, what: str) -> Executed:
        out, err = bytearray(), bytearray()
        try:
            async with self._tine.wire.lines(ask) as lines:
                async for line in lines:
                    _add(out, line, "stdout")
                    _add(err, line, "stderr")
                    if "error" in line:
                        raise from_api(line["error"])
                    if line.keys() & {"exit", "signal", "timeout"}:
                        return Executed(bytes(out), bytes(err), line.get("exit"), line.get("signal", ""), line.get("timeout") is True)
        except BrokenOff as error:
            raise Lost(f"{what} in {self.id}: {error}") from error
        raise Lost(f"{what} in {self.id}: the answer ended before the program did; it may still run")

    async def files(self, path: str = "workspace", *, recursive: bool = False, snapshot: str | None = None) -> list[dict[str, Any]]:
        """The files at a path, which begins with `workspace`, or with a server whose files are meant.
        With `snapshot`, as that has them."""
        self._usable()
        query = {"list": "true"} | ({"all": "true"} if recursive else {}) | ({"snapshot": snapshot} if snapshot else {})
        answer = await self._at(path, self._tine.wire.json("GET", *self._file(path), query=query))
        return [dict(file) for file in answer["files"]]

    async def diff(self, snapshot: str) -> dict[str, Any]:
        """What is another than in a snapshot: `files`, `tables` of the built-in sqlite, the `graph` of
        the built-in memory, and in `other` what can't be compared, with the reason."""
        self._usable()
        self._tine.features.need("GET", "/v1/sessions/{session}/diff")
        return dict(await self._at("workspace", self._tine.wire.json("GET", "v1", "sessions", self.id, "diff", query={"from": snapshot})))

    async def put(self, path: str, content: str | bytes | Path) -> None:
        """Writes a file, or with the path of a local folder all that is in it.

        >>> await w.put("workspace/task.txt", "add two numbers")
        """
        self._usable()
        media, query = "application/octet-stream", None
        if isinstance(content, Path):
            if content.is_dir():
                content, media = _tar.pack(content), _tar.TAR
            else:
                query = {"mode": f"{content.stat().st_mode & 0o777:04o}"}
                content = content.read_bytes()
        data = content.encode() if isinstance(content, str) else content
        ask = Ask("PUT", self._file(path), query=query, body=data, media=media)
        await self._at(path, self._tine.wire.exchange(ask, lambda answer: self._tine.wire.read_bytes(ask, answer)))

    async def get(self, path: str, to: Path | None = None, *, snapshot: str | None = None) -> bytes:
        """Reads a file; of a folder, a tar file. With `to` it is written there, a folder unpacked: what
        leads out of it, or is no file, folder or link, is left out and told to the log. With
        `snapshot` it is read as that has it."""
        data, folder = await self.read(path, snapshot=snapshot)
        if to is not None:
            if folder:
                _tar.unpack(data, to)
            else:
                _tar.write(data, to)
        return data

    async def read(self, path: str, *, snapshot: str | None = None) -> tuple[bytes, bool]:
        """What `get` reads, and whether it is a folder's tar file."""
        self._usable()
        query = {"snapshot": snapshot} if snapshot else None
        ask = Ask("GET", self._file(path), query=query, accept=f"application/octet-stream, {_tar.TAR}")

        async def read(answer: Any) -> tuple[bytes, str]:
            return await self._tine.wire.read_bytes(ask, answer), answer.content_type

        data, media = await self._at(path, self._tine.wire.exchange(ask, read))
        return data, media == _tar.TAR

    async def _at(self, path: str, work: Awaitable[T]) -> T:
        """Waits for a request about files. What it can't do for the files that are there is not the
        request's fault."""
        try:
            return await self._ours(work)
        except Invalid as error:
            place, _, rest = path.strip("/").partition("/")
            if error.status != 400 or ".." in rest.split("/") or f": {place}/" not in error.message:
                raise
            raise UnusableFiles(error.message, status=error.status) from None

    def _file(self, path: str) -> tuple[str, ...]:
        place, _, rest = path.strip("/").partition("/")
        if not place:
            raise Invalid("a path begins with workspace or with a server, such as workspace/a.txt")
        self._tine.features.need("GET", FILES)
        return ("v1", "sessions", self.id, "files", place, *rest.split("/"))


def _add(to: bytearray, line: Mapping[str, Any], stream: str) -> None:
    if stream in line:
        to += codecs.encode(line[stream], "utf-8", "surrogatepass")
    if stream + "64" in line:
        to += base64.b64decode(line[stream + "64"])
