"""Agents without `await`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import client, runs
from ._told import RunEvent, RunResult, RunState
from .runs import Mode

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
        return Run(self._wait, self._wait(_start(starting)))

    def events(self, *, after: str = "start", follow: bool = True) -> Iterator[RunEvent]:
        """What happens in the run, until it has ended; see `tineworld.Run.events`."""
        return iterate(self._wait, self._run.events(after=after, follow=follow))


async def _start(starting: runs.Starting) -> runs.Run:
    return await starting


class Agents(ABC):
    """The part of a connection that is about agents."""

    _tine: client.Tine

    @abstractmethod
    def _run(self, work: Coroutine[Any, Any, T]) -> T: ...

    def run_agent(
        self,
        agent: str | None = None,
        prompt: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        session: str | None = None,
        project_dir: str | Path | None = None,
        scope: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        demands: Mapping[str, Any] | None = None,
        mode: Mode | None = None,
        key: str | None = None,
    ) -> Run:
        """Starts an agent and returns the run's handle; see `tineworld.Tine.run_agent`. A block stops the
        run at its end.

        >>> t.run_agent("reviewer", "Review the last commit").result().text
        """
        starting = self._tine.run_agent(
            agent, prompt, params=params, session=session, project_dir=project_dir, scope=scope, labels=labels, demands=demands, mode=mode, key=key
        )
        return Run(self._run, self._run(_start(starting)))

    def attach_run(self, run: str) -> Run:
        """A run that was started elsewhere, by its id."""
        return Run(self._run, self._run(self._tine.attach_run(run)))

    def runs(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        parent: str | None = None,
        state: RunState | Sequence[RunState] = (),
        limit: int | None = None,
        after: str | None = None,
    ) -> list[Run]:
        """The runs that the caller may see, newest first; see `tineworld.Tine.runs`."""
        found = self._run(self._tine.runs(agent=agent, session=session, parent=parent, state=state, limit=limit, after=after))
        return [Run(self._run, run) for run in found]

    def agents(self) -> list[dict[str, Any]]:
        """The agents that the caller may start."""
        return self._run(self._tine.agents())

    def agent(self, name: str) -> dict[str, Any]:
        """One of the agents that the caller may start."""
        return self._run(self._tine.agent(name))

    def blueprint(self, name: str) -> dict[str, Any]:
        """The blueprint that `put_agent` gave, as it was given."""
        return self._run(self._tine.blueprint(name))

    def put_agent(self, name: str, blueprint: Mapping[str, Any]) -> dict[str, Any]:
        """Has the gateway keep a blueprint as an agent; see `tineworld.Tine.put_agent`."""
        return self._run(self._tine.put_agent(name, blueprint))

    def delete_agent(self, name: str) -> None:
        """Has the gateway forget an agent that `put_agent` gave it."""
        self._run(self._tine.delete_agent(name))
