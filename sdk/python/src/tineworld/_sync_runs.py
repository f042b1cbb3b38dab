"""Runs of agents without `await`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from . import runs
from .runs import RunEvent, RunResult, RunState

T = TypeVar("T")
# Waits for a coroutine, of any result.
Wait = Callable[[Coroutine[Any, Any, Any]], Any]


def iterate(wait: Wait, steps: AsyncGenerator[T, None]) -> Iterator[T]:
    """Goes through what an asynchronous generator gives."""

    async def following() -> T | None:
        return await anext(steps, None)

    try:
        while (step := wait(following())) is not None:
            yield step
    finally:
        wait(steps.aclose())


class Run:
    """A run of an agent: `tineworld.Run`, without `await`. As a block it is stopped at its end."""

    def __init__(self, wait: Wait, run: runs.Run) -> None:
        self._wait = wait
        self._run = run
        self.id = run.id
        self.session = run.session
        self.agent = run.agent

    def __repr__(self) -> str:
        return repr(self._run)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._run.leave())

    @property
    def last(self) -> dict[str, Any]:
        """The run as the gateway told it last."""
        return self._run.last

    @property
    def state(self) -> RunState:
        """The state that was heard of last."""
        return self._run.state

    @property
    def ended(self) -> bool:
        """Whether it is known that the run has ended."""
        return self._run.ended

    def result(self, *, timeout: float | None = None) -> RunResult:
        """Waits for the end of the run and returns its result; see `tineworld.Run.result`."""
        done: RunResult = self._wait(self._run.result(timeout=timeout))
        return done

    def wait(self, *, timeout: float | None = None) -> RunState:
        """Waits for the end of the run, and returns the state that it ended in."""
        state: RunState = self._wait(self._run.wait(timeout=timeout))
        return state

    def info(self) -> dict[str, Any]:
        """What the gateway knows of this run now."""
        return dict(self._wait(self._run.info()))

    def tree(self) -> dict[str, Any]:
        """The run with the runs that its agent has started, in `children`."""
        return dict(self._wait(self._run.tree()))

    def stop(self, *, tree: bool = False) -> RunState:
        """Asks the run to end; see `tineworld.Run.stop`."""
        state: RunState = self._wait(self._run.stop(tree=tree))
        return state

    def resume(
        self,
        prompt: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        scope: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        demands: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Run:
        """Gives the agent something more to do; see `tineworld.Run.resume`."""
        return self._next(self._run.resume(prompt, params=params, scope=scope, labels=labels, demands=demands, key=key))

    def send(self, prompt: str) -> Run:
        """Waits for the end of this run, and then resumes its agent with a prompt."""
        return self._next(self._run.send(prompt))

    def _next(self, starting: runs.Starting) -> Run:
        async def start() -> runs.Run:
            return await starting

        return Run(self._wait, self._wait(start()))

    def events(self, *, after: str = "start", follow: bool = True) -> Iterator[RunEvent]:
        """What happens in the run, until it has ended; see `tineworld.Run.events`."""
        return iterate(self._wait, self._run.events(after=after, follow=follow))
