"""Files and programs of a world, beside its tools: for set-up and rewards. Reading is not in the
trajectory, and wakes and changes nothing."""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from . import _tar
from ._base import Base
from ._wire import LINES, Ask, TooLarge, encode
from .errors import BrokenOff, Invalid, Lost, UnusableFiles, from_api

T = TypeVar("T")
FILES = "/v1/sessions/{session}/files/{place}/{path}"


@dataclass(frozen=True)
class Executed:
    """What a program did that ran in a world. One of `exit`, `signal`, `timed_out` and `too_much` says
    how it ended."""

    out: bytes
    err: bytes
    #: The exit code; None where the program did not exit by itself.
    exit: int | None = None
    #: The signal that ended it, such as KILL.
    signal: str = ""
    timed_out: bool = False
    #: It was killed since it wrote more than `max_output`; the output is what it wrote until then.
    too_much: bool = False

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
        max_output: int = 64 << 20,
    ) -> Executed:
        """Runs a program beside a server: in its sandbox, container or process. One that takes longer
        than `timeout`, or writes more bytes than `max_output`, is killed, which the result says.

        >>> (await w.exec("shell", ["pytest", "-q"], timeout=60)).exit
        """
        self._usable()
        if isinstance(argv, str):
            raise Invalid("exec() takes the program and its arguments as a list, not as one string")
        given = {"cwd": cwd, "env": dict(env) if env else None, "user": user}
        body: dict[str, Any] = {"server": server, "argv": list(argv), "max_output": max_output} | {k: v for k, v in given.items() if v is not None}
        if isinstance(stdin, str):
            body["stdin"] = stdin
        elif stdin:
            body["stdin64"] = base64.b64encode(stdin).decode()
        if timeout is not None:
            body["timeout"] = f"{int(timeout * 1000)}ms"
        self._tine.features.need("POST", "/v1/sessions/{session}/exec")
        ask = Ask("POST", ("v1", "sessions", self.id, "exec"), body=encode(body), accept=LINES)
        return await self._ours(self._executed(ask, " ".join(argv), max_output))

    async def _executed(self, ask: Ask, what: str, max_output: int) -> Executed:
        out, err = bytearray(), bytearray()
        try:
            async with self._tine.wire.lines(ask) as lines:
                async for line in lines:
                    _add(out, line, "stdout")
                    _add(err, line, "stderr")
                    if "error" in line:
                        error = from_api(line["error"], int(line.get("status") or 0))
                        if isinstance(error, Invalid) and (error.status == 422 or len(out) + len(err) >= max_output):
                            return Executed(bytes(out), bytes(err), too_much=True)
                        raise error
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
        answer = await self._at(self._tine.wire.json("GET", *self._file(path), query=query))
        return [dict(file) for file in answer["files"]]

    async def diff(self, snapshot: str) -> dict[str, Any]:
        """What is another than in a snapshot: `files`, `tables` of the built-in sqlite, the `graph` of
        the built-in memory, and in `other` what can't be compared, with the reason."""
        self._usable()
        self._tine.features.need("GET", "/v1/sessions/{session}/diff")
        return dict(await self._at(self._tine.wire.json("GET", "v1", "sessions", self.id, "diff", query={"from": snapshot})))

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
        await self._at(self._tine.wire.exchange(ask, lambda answer: self._tine.wire.read_bytes(ask, answer)), large=False)

    @overload
    async def get(self, path: str, to: None = None, *, folder: bool = False, snapshot: str | None = None) -> bytes: ...
    @overload
    async def get(self, path: str, to: Path, *, snapshot: str | None = None) -> None: ...
    async def get(self, path: str, to: Path | None = None, *, folder: bool = False, snapshot: str | None = None) -> bytes | None:
        """Reads a file; with `folder` a folder, as a tar file. It may have `max_body` bytes at most.

        With `to` a file or a folder of any size is written there, a folder unpacked: what leads out of
        it, or is no file, folder or link, is left out and told to the log. With `snapshot` it is read as
        that has it."""
        if to is not None:
            await self._get_to(path, Path(to), snapshot)
            return None
        return (await self._read(path, snapshot, lambda got: _expect(path, folder, got)))[0]

    async def _get_to(self, path: str, to: Path, snapshot: str | None) -> None:
        ask = self._reading(path, snapshot)
        with _tar.spool(to) as file:

            async def read(answer: Any) -> str:
                await self._tine.wire.read_into(answer, file)
                return str(answer.content_type)

            media = await self._at(self._tine.wire.exchange(ask, read), path)
            await asyncio.to_thread(_tar.unpack if media == _tar.TAR else _tar.write, file, to)

    async def read(self, path: str, *, snapshot: str | None = None) -> tuple[bytes, bool]:
        """A file, or a folder's tar file, and whether it is the latter."""
        return await self._read(path, snapshot, lambda got: None)

    async def _read(self, path: str, snapshot: str | None, check: Callable[[bool], None]) -> tuple[bytes, bool]:
        ask = self._reading(path, snapshot)

        async def read(answer: Any) -> tuple[bytes, bool]:
            check(answer.content_type == _tar.TAR)
            return await self._tine.wire.read_bytes(ask, answer), answer.content_type == _tar.TAR

        return await self._at(self._tine.wire.exchange(ask, read), path)

    def _reading(self, path: str, snapshot: str | None) -> Ask:
        self._usable()
        query = {"snapshot": snapshot} if snapshot else None
        return Ask("GET", self._file(path), query=query, accept=f"application/octet-stream, {_tar.TAR}")

    async def _at(self, work: Awaitable[T], path: str = "", large: bool = True) -> T:
        """Waits for a request about files. What it can't do for the files that are there is not the
        request's fault, nor that of the world; neither is their size, unless they are ours."""

        async def ours() -> T:
            try:
                return await work
            except TooLarge as error:
                most = self._tine.wire.max_body
                mend = f"get({path!r}, to=...) writes it to a file" if path else "ask for less"
                raise Invalid(f"{path or 'the answer'} has more than {most} bytes: {mend}, or set max_body of connect() higher", status=413) from error

        try:
            return await self._ours(ours())
        except Invalid as error:
            # A name that is not UTF-8 is listed with U+FFFD in it, by which it is not found.
            misnamed = error.status == 404 and "\ufffd" in path
            if error.status != 422 and not (large and error.status == 413) and not misnamed:
                raise
            hint = "; its name may not be UTF-8, and such a file is only in a copy of its folder" if misnamed else ""
            raise UnusableFiles(error.message + hint, status=error.status) from None

    def _file(self, path: str) -> tuple[str, ...]:
        place, _, rest = path.strip("/").partition("/")
        if not place:
            raise Invalid("a path begins with workspace or with a server, such as workspace/a.txt")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UnusableFiles(f"the name {ascii(path)} is not UTF-8, and can't be asked for; get(..., to=...) of its folder copies it") from None
        self._tine.features.need("GET", FILES)
        return ("v1", "sessions", self.id, "files", place, *rest.split("/"))


def _expect(path: str, folder: bool, got: bool) -> None:
    if got and not folder:
        raise Invalid(f"{path} is a folder; to= of get() unpacks it, and folder=True gives its tar file", status=422)
    if folder and not got:
        raise Invalid(f"{path} is a file, where a folder was asked for", status=422)


def _add(to: bytearray, line: Mapping[str, Any], stream: str) -> None:
    if stream in line:
        to += codecs.encode(line[stream], "utf-8", "surrogatepass")
    if stream + "64" in line:
        to += base64.b64decode(line[stream + "64"])
