"""Runs of agents: a handle that waits for the result, follows what happens, and stops or resumes it.

A run is accepted by the gateway and done whatever becomes of this program. So what ends here, such as
a wait that is cancelled or takes too long, does not end the run; `stop` does, and the end of a block.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _told
from ._opening import Opening
from ._told import RunEvent, RunFailed, RunResult, RunState, RunStopped, RunTimeout
from ._wire import LINES, Ask, again, encode
from .errors import BrokenOff, Invalid, Lost, Refused, TineError

if TYPE_CHECKING:
    from ._agents import Agents

log = logging.getLogger("tineworld")
#: How an agent that starts another one gets its result.
Mode = Literal["sync", "async_poll", "async_callback"]

_ENDED = ("completed", "failed", "stopped")
# Seconds that one request waits for the end of a run: soon at first, and where others wait for their turn.
_LONG = 30.0
_SOON = 1.0
_GRACE = 1.0  # what the gateway may take to say how a run is
_QUIET = 60.0  # seconds; a stream of events says how far it is every 15


class Starting(Opening["Run"]):
    """A run that is about to start. Await it for its handle, or use a block that stops the run at its
    end, or take the result at once."""

    def __init__(
        self, make: Callable[[], Coroutine[Any, Any, Run]], end: Callable[[Run], Awaitable[None]], later: Callable[[Coroutine[Any, Any, None]], Any]
    ) -> None:
        super().__init__(make, end)
        self._later = later

    async def result(self, *, timeout: float | None = None) -> RunResult:
        """Starts the run and waits for its result. If the caller is cancelled, the run is stopped,
        since nobody has its handle. After `timeout` seconds it goes on, and the error names it.

        >>> (await t.run_agent("worker", "Look around").result()).text
        """
        run = await self
        try:
            return await run.result(timeout=timeout)
        except asyncio.CancelledError:
            self._later(run.leave())
            raise


class Run:
    """A run of an agent, under way or over.

    >>> run = await t.run_agent("worker", "Look around")
    >>> print((await run.result()).text)
    """

    def __init__(self, tine: Agents, told: Mapping[str, Any]) -> None:
        self._tine = tine
        self.id = str(told["id"])
        #: The session that is the agent's world; `attach` gives it as a World.
        self.session = str(told["session"])
        self.agent = str(told["agent"])
        #: The run as the gateway told it last: its state, times, usage, result.
        self.last: dict[str, Any] = dict(told)

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.agent} {self.state}>"

    @property
    def state(self) -> RunState:
        """The state that was heard of last."""
        return cast(RunState, self.last["state"])

    @property
    def ended(self) -> bool:
        """Whether it is known that the run has ended."""
        return self.state in _ENDED

    async def result(self, *, timeout: float | None = None) -> RunResult:
        """Waits for the end of the run, also while the gateway is started again, and returns its result.
        One that failed raises RunFailed, and one that was stopped RunStopped. After `timeout` seconds
        RunTimeout is raised; then, as when the caller is cancelled, the run goes on."""
        await self.wait(timeout=timeout)
        what = f"run {self.id} of agent {self.agent}"
        if self.state == "stopped":
            raise RunStopped(f"{what} was stopped by {self.last.get('stopped_by') or 'a caller'}", self.last)
        if self.state == "failed":
            why = (self.last.get("error") or {}).get("message") or "the gateway gave no reason"
            raise RunFailed(f"{what} has failed: {why}", self.last)
        if self.last.get("withheld"):
            raise Refused(f"{what} is completed, and only its owner and operators read its result; give connect() a token of theirs")
        return _told.result(self.last)

    async def wait(self, *, timeout: float | None = None) -> RunState:
        """Waits for the end of the run as `result` does, and returns the state that it ended in."""
        if timeout is not None and not 0 < timeout < math.inf:
            raise Invalid(f"timeout must be a number of seconds above 0, not {timeout}")
        turns, loop = self._tine.wire.turns, asyncio.get_running_loop()
        end = loop.time() + (math.inf if timeout is None else timeout)
        seconds = _SOON  # the first answer comes soon, and says what a run waits for that does not start
        try:
            async with asyncio.timeout(None if timeout is None else timeout + _GRACE):
                while not self.ended and loop.time() < end:
                    async with turns:
                        await self._wait(min(seconds, max(end - loop.time(), 0.001)))
                        seconds = _SOON if turns.locked() else _LONG
        except TimeoutError:
            pass
        if not self.ended:
            raise self._late(timeout or 0)
        return self.state

    def _late(self, seconds: float) -> RunTimeout:
        why = f": it waits for {self.last['waits_for']}" if self.last.get("waits_for") else ""
        error = RunTimeout(f"run {self.id} of agent {self.agent} has not ended within {seconds:g} s and goes on; it is {self.state}{why}")
        error.run = self.id
        return error

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        pause = loop.time() + min(seconds, 0.25)
        await self._ask(Ask("GET", ("v1", "runs", self.id), query={"wait": f"{max(1, round(seconds * 1000))}ms"}, quiet=seconds + _QUIET))
        if not self.ended:
            await asyncio.sleep(pause - loop.time())  # a gateway that is ending answers at once

    async def _ask(self, ask: Ask) -> dict[str, Any]:
        """Sends a request about this run, whose answer is the run."""
        wire = self._tine.wire
        try:
            told = await wire.exchange(ask, lambda answer: wire.read_json(ask, answer))
        except Invalid as error:
            if error.status != 404:
                raise
            raise Lost(f"run {self.id} of agent {self.agent} is gone: its session has ended, and agents.keep is over", status=404) from None
        self.last = {key: value for key, value in told.items() if key != "below"}
        return dict(told)

    async def info(self) -> dict[str, Any]:
        """What the gateway knows of this run now."""
        return await self._ask(Ask("GET", ("v1", "runs", self.id), quiet=_QUIET))

    async def tree(self) -> dict[str, Any]:
        """The run with the runs that its agent has started, in `children`."""
        return dict(await self._tine.wire.json("GET", "v1", "runs", self.id, "tree"))

    async def stop(self, *, tree: bool = False) -> RunState:
        """Asks the run to end, with `tree` also all runs that its agent has started, and those have
        started. It returns the state: "stopping" where its program is being ended, which `wait` waits
        for. A run that has ended stays as it is."""
        ask = Ask("POST", ("v1", "runs", self.id, "stop"), body=encode({"children": tree}), repeat=True)
        await self._ask(ask)
        return self.state

    def resume(
        self,
        prompt: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        scope: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        demands: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Starting:
        """Gives the agent something more to do, in the same conversation and the same world: another
        run. It is refused while the agent is at work."""
        return self._tine.run_agent(
            prompt=prompt, params=params, session=self.session, scope=scope, labels=labels, demands=demands, key=key
        )

    def send(self, prompt: str) -> Starting:
        """Waits for the end of this run, however it ends, and then resumes its agent with a prompt.

        >>> (await run.send("And now the tests").result()).text
        """

        async def make() -> Run:
            await self.wait()
            return await self.resume(prompt)

        return Starting(make, Run.leave, self._tine.later)

    async def events(self, *, after: str = "start", follow: bool = True) -> AsyncGenerator[RunEvent, None]:
        """What happens in the run, from its beginning, or behind the event with an id, until it has
        ended, also while the gateway is started again. Without `follow` only what there is.

        >>> async for event in run.events(): print(event.type, event.text)
        """
        wire, loop = self._tine.wire, asyncio.get_running_loop()
        tools: dict[str, Any] = {}
        heard = loop.time()
        while True:
            # Of a run that has ended all events are there, and none comes later that would end the stream.
            await self.info()
            last = self.ended or not follow
            query = {"run": self.id, "types": "run", "after": after, "follow": str(not last).lower()}
            ask = Ask("GET", ("v1", "events"), query=query, accept=LINES, quiet=_QUIET)
            try:
                async with wire.lines(ask) as lines:
                    async for line in lines:
                        event = _told.event(line, tools)
                        if event is not None:
                            over = event.state in _ENDED
                            if over:
                                await self.info()
                            yield event
                            if over:
                                return
                        after, heard = line["id"], loop.time()
                        if event is not None and event.type == "gap" and not last:
                            break  # the end of the run may be among what is lost
                    else:
                        if last:
                            return
                        raise BrokenOff(f"the events of run {self.id} broke off")
            except TineError as error:
                if not again(ask, error) or loop.time() + error.retry_after > heard + wire.patience:
                    raise
                await asyncio.sleep(max(error.retry_after, 0.25))

    async def leave(self) -> None:
        """Stops the run at the end of a block, with those that its agent has started. One that can't
        be stopped is told to the log."""
        if self.ended:
            return
        try:
            await self.stop(tree=True)
        except TineError as error:
            log.warning("run %s of agent %s was not stopped: %s", self.id, self.agent, error)
