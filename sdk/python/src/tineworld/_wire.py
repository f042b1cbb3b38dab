"""Requests to the control API: pooled connections, retries, and errors that say what to do.

A request is repeated only where that does no harm: if nothing of it reached the gateway, if the
gateway refused it for now, or if carrying it out twice is the same as once (reads, closes, and
creations with an idempotency key).
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, TypeVar

import aiohttp
from yarl import URL

from . import _json, _lines, _programs
from ._address import Address
from .errors import BrokenOff, Infrastructure, Invalid, NoGateway, Refused, TineError, from_api

T = TypeVar("T")
Query = Mapping[str, str | Sequence[str]]
LINES = "application/x-ndjson"
# What aiohttp raises for connections. OSError has TimeoutError in it, for one that takes too long.
_BROKEN = (aiohttp.ClientError, OSError, asyncio.IncompleteReadError)


@dataclass(frozen=True)
class Ask:
    """One request. `key` makes a creation safe to repeat; `repeat` says that it is safe by itself.
    `quiet` is for an answer that comes when something happens: after so many seconds without a byte
    the connection counts as broken."""

    method: str
    path: tuple[str, ...]
    query: Query | None = None
    body: bytes | None = None
    media: str = "application/json"
    accept: str = "application/json"
    key: str | None = None
    repeat: bool | None = None
    quiet: float | None = None

    @property
    def repeatable(self) -> bool:
        if self.repeat is not None:
            return self.repeat
        return self.key is not None or self.method in ("GET", "PUT", "DELETE")


class TooLarge(Infrastructure):
    """An answer is larger than `max_body`."""


_BUSY = 0.005  # seconds without an answer; a gateway is away for longer than that when it starts again
_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """JSON as the gateway takes it. What is not JSON is refused here, such as NaN."""
    try:
        return _encoder.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise Invalid(f"what was given is not JSON: {error}") from None
    except RecursionError:
        raise Invalid("what was given is not JSON: it is nested too deep") from None


@lru_cache
def _timeout(quiet: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=quiet)


@lru_cache(maxsize=4096)
def _url(address: Address, path: tuple[str, ...]) -> URL:
    return URL(address.at(path), encoded=True)


def new_key() -> str:
    """An idempotency key, which nobody can guess."""
    return secrets.token_urlsafe(24)


class Wire:
    """Connections to one gateway, for one event loop."""

    def __init__(self, address: Address, *, connections: int = 256, max_body: int = 128 << 20, patience: float = 30) -> None:
        self.address = address
        self.max_body = max_body
        self.patience = patience
        #: As many requests may wait for the end of a run.
        self.turns = asyncio.Semaphore(connections)
        self._loop = asyncio.get_running_loop()
        self._heard = 0.0  # when the last answer was read
        headers = {"User-Agent": "tineworld"}
        if address.token:
            headers["Authorization"] = "Bearer " + address.token

        def pool(limit: int) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                # The gateway keeps an idle connection for two minutes: the client must give it up first.
                connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=30),
                timeout=_timeout(None),
                headers=headers,
                # A proxy of the environment is for other machines.
                trust_env=not address.loopback,
                read_bufsize=1 << 18,
            )

        self._pool = pool
        self._http = pool(connections)
        self._waits: aiohttp.ClientSession | None = None

    @property
    def waits(self) -> aiohttp.ClientSession:
        """The connections of requests whose answers come when something happens: they keep no others
        from theirs."""
        if self._waits is None:
            if self._http.closed:
                return self._http
            self._waits = self._pool(0)
        return self._waits

    async def close(self) -> None:
        try:
            await self._http.close()
        finally:
            if self._waits is not None:
                await self._waits.close()

    async def json(self, method: str, *path: str, body: Any = None, query: Query | None = None, key: str | None = None) -> Any:
        """Sends a request and returns its answer, decoded; None where there is none."""
        ask = Ask(method, path, query=query, body=None if body is None else encode(body), key=key)
        return await self.exchange(ask, lambda answer: self.read_json(ask, answer))

    async def exchange(self, ask: Ask, read: Callable[[aiohttp.ClientResponse], Awaitable[T]], *, patience: float | None = None) -> T:
        """Sends a request, again where that helps and does no harm, and reads its answer."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (self.patience if patience is None else patience)
        pause = 0.05
        while True:
            try:
                return await self._once(ask, read)
            except TineError as error:
                if not again(ask, error):
                    raise
                # Not all at once: hundreds of callers wait for the same gateway.
                wait = max(error.retry_after, pause * random.uniform(0.5, 1))
                if loop.time() + wait > end:
                    raise
            await asyncio.sleep(wait)
            pause = min(2 * pause, 2.0)

    async def _once(self, ask: Ask, read: Callable[[aiohttp.ClientResponse], Awaitable[T]]) -> T:
        await self._settle(ask)
        try:
            async with self._request(ask) as answer:
                if not 200 <= answer.status < 300:
                    raise await self._refusal(ask, answer)
                out = await read(answer)
        except _BROKEN as error:
            raise self._unreachable(ask, error) from error
        self._heard = time.monotonic()
        return out

    @asynccontextmanager
    async def lines(self, ask: Ask) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Sends a request once, and gives the lines of its answer as they come."""
        await self._settle(ask)
        try:
            async with self._request(ask) as answer:
                if not 200 <= answer.status < 300:
                    raise await self._refusal(ask, answer)
                yield self.read_lines(ask, answer)
        except _BROKEN as error:
            raise self._unreachable(ask, error) from error

    async def _settle(self, ask: Ask) -> None:
        """A program that kept the loop busy has not seen yet which pooled connections were closed
        meanwhile: a request on one of them would break off. Two rounds of the loop tell, one that
        reads and one that closes."""
        if not ask.repeatable and time.monotonic() - self._heard > _BUSY:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _request(self, ask: Ask) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if asyncio.get_running_loop() is not self._loop:
            raise Invalid(f"the connection to {self.address.base} belongs to another event loop; connect() in this one, or use tineworld.sync")
        if self._http.closed:
            raise Invalid(f"the connection to {self.address.base} is closed; connect() again")
        headers = {"Accept": ask.accept}
        if ask.body is not None:
            headers["Content-Type"] = ask.media
        if ask.key is not None:
            headers["Idempotency-Key"] = ask.key
        url = _url(self.address, ask.path)
        if ask.query:
            url = url.update_query(ask.query)
        # What is large is sent in pieces, between which others have a turn.
        body = io.BytesIO(ask.body) if ask.body is not None and len(ask.body) > 1 << 19 else ask.body
        http = self._http if ask.quiet is None else self.waits
        return http.request(ask.method, url, data=body, headers=headers, allow_redirects=False, timeout=_timeout(ask.quiet))

    async def read_lines(self, ask: Ask, answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        what = self._what(ask)
        if answer.content_type != LINES:
            raise Infrastructure(f"{what}: the answer is {answer.content_type} where lines of JSON were expected; check the URL")
        async for line in _lines.split(answer.content.iter_any(), self.max_body):
            yield _lines.decode(line, what)

    async def read_json(self, ask: Ask, answer: aiohttp.ClientResponse) -> Any:
        raw = await self.read_bytes(ask, answer)
        if answer.status == 204 or not raw:
            return None
        try:
            return _json.loads(raw)
        except ValueError as error:
            raise Infrastructure(f"{self._what(ask)}: the answer is not that of Tine's control API ({error}); check the URL") from None

    async def read_bytes(self, ask: Ask, answer: aiohttp.ClientResponse) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in answer.content.iter_any():
            size += len(piece)
            if size > self.max_body:
                raise TooLarge(f"{self._what(ask)}: the answer is larger than {self.max_body} bytes; set max_body of connect() higher")
            pieces.append(piece)
        return b"".join(pieces)

    async def read_into(self, answer: aiohttp.ClientResponse, file: IO[bytes]) -> None:
        """Writes an answer of any size into a file, from its beginning: a request may be repeated."""
        file.seek(0)
        file.truncate()
        async for piece in answer.content.iter_any():
            file.write(piece)

    def _what(self, ask: Ask) -> str:
        return f"{ask.method} {self.address.at(ask.path)}"

    async def _refusal(self, ask: Ask, answer: aiohttp.ClientResponse) -> TineError:
        """The error of an answer outside of 2xx."""
        raw = await answer.content.read(1 << 20)
        try:
            body = _json.loads(raw)
        except ValueError:
            body = None
        what, status = self._what(ask), f"{answer.status} {answer.reason}"
        if isinstance(body, dict) and body.get("kind") and body.get("message"):
            if answer.status == 401:
                mend = "give connect() a token that this gateway knows, or set TINE_TOKEN"
                return Refused(f"{self.address.base} does not let the caller in: {body['message']}; {mend}", status=401)
            return from_api(body, answer.status, call=answer.headers.get("Tine-Call", ""))
        if answer.status in (401, 403):
            return Refused(f"{what}: answered {status}; give connect() a token that this gateway knows, or set TINE_TOKEN", status=answer.status)
        if answer.status in (429, 503):
            return Refused(f"{what}: answered {status}; try again later", status=answer.status, retryable=True)
        if answer.status in (502, 504):  # of a proxy in front of a gateway that is away
            return BrokenOff(f"{what}: answered {status}; is the gateway behind it running?", status=answer.status)
        if 300 <= answer.status < 400:
            return Infrastructure(f"{what}: answered {status}, and Tine's control API never redirects; check the URL", status=answer.status)
        return Infrastructure(f"{what}: answered {status}, which does not look like Tine's control API; check the URL", status=answer.status)

    def _unreachable(self, ask: Ask, error: Exception) -> TineError:
        """The error of a request that got no whole answer."""
        base, reason = self.address.base, str(error) or type(error).__name__
        if isinstance(error, (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError)):
            return Infrastructure(f"the certificate of {base} is not trusted: {reason}; set SSL_CERT_FILE to the certificate of its authority")
        if isinstance(error, aiohttp.ClientSSLError):
            return Infrastructure(f"{base} does not speak TLS as expected: {reason}; is it http:// instead?")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return NoGateway(f"no gateway at {base}: its name is not known ({reason}); check the URL")
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
            mend = f"is `{_programs.command()} serve` running? start it, or give connect() another URL or set TINE_URL"
            return NoGateway(f"no gateway at {base}: {reason}; {mend}")
        if ask.repeatable:
            return BrokenOff(f"the request to {base} broke off ({reason}); is the gateway still running?")
        return BrokenOff(f"the request to {base} broke off ({reason}); whether it was carried out is unknown")


def again(ask: Ask, error: TineError) -> bool:
    """Whether sending a request once more can help, and does no harm."""
    match error:
        case NoGateway():
            return True
        case BrokenOff():
            return ask.repeatable
        case Refused():
            return error.retryable
    return False
