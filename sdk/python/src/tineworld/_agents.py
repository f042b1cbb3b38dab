"""Agents: their blueprints and their runs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._features import Features
from ._opening import Cleanups
from ._told import RunState
from ._wire import Ask, Wire, encode, new_key
from .runs import Mode, Run, Starting

_PAGE = 1000


class Agents(ABC):
    """The part of a connection that is about agents."""

    wire: Wire
    features: Features
    _cleanups: Cleanups

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
    ) -> Starting:
        """Starts an agent in a session of its own, or with `session` resumes the agent of one. Await it
        for the run's handle, take `result()` of it, or use a block that stops the run at its end.

        `prompt` is short for `params={"prompt": ...}`; parameters that do not fit the agent are Invalid, with
        `errors`. `project_dir` is the folder that the agent works in, `scope` what its placeholders stand
        for, `demands` what a runner must have, such as `{"tags": ["gpu"]}`, and `mode` is for agents that
        start others. The same request with the same `key` gives the same run, for a day: without one, a
        request whose answer was lost is repeated here, and a run whose caller is cancelled before it has
        the handle is stopped.

        >>> result = await t.run_agent("reviewer", "Review the last commit").result()
        """
        given = {
            "agent": agent,
            "session": session,
            "prompt": prompt,
            "parameters": None if params is None else dict(params),
            "project_dir": None if project_dir is None else str(Path(project_dir).absolute()),
            "scope": None if scope is None else dict(scope),
            "labels": None if labels is None else {k: str(v) for k, v in labels.items()},
            "demands": None if demands is None else dict(demands),
            "mode": mode,
        }
        ask = Ask("POST", ("v1", "runs"), body=encode({k: v for k, v in given.items() if v is not None}), key=new_key() if key is None else key)

        async def start() -> Run:
            return Run(self, await self.wire.exchange(ask, lambda answer: self.wire.read_json(ask, answer)))

        async def make() -> Run:
            self.features.need("POST", "/v1/runs")
            return await (self._cleanups.make(start(), Run.leave) if key is None else start())

        return Starting(make, Run.leave, self.later)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Has something done in the background, at the latest before the connection is closed."""
        self._cleanups.start(work)

    async def attach_run(self, run: str) -> Run:
        """A run that was started elsewhere, by its id."""
        return Run(self, await self.wire.json("GET", "v1", "runs", run))

    async def runs(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        parent: str | None = None,
        state: RunState | Sequence[RunState] = (),
        limit: int | None = None,
        after: str | None = None,
    ) -> list[Run]:
        """The runs that the caller may see, newest first: of an agent, of a session, those that the agent
        of the session `parent` has started, those in a state or in one of several. At most `limit`, and
        with `after` those behind the run with that id."""
        states = [state] if isinstance(state, str) else list(state)
        given = {"agent": agent, "session": session, "parent": parent, "after": after, "state": states}
        query: dict[str, Any] = {k: v for k, v in given.items() if v}
        out: list[Run] = []
        while limit is None or len(out) < limit:
            query["limit"] = str(_PAGE if limit is None else min(limit - len(out), _PAGE))
            page = await self.wire.json("GET", "v1", "runs", query=query)
            out += [Run(self, one) for one in page["runs"]]
            if not page.get("next"):
                break
            query["after"] = page["next"]
        return out

    async def agents(self) -> list[dict[str, Any]]:
        """The agents that the caller may start, each with its `name`, `description`, `parameters` and `problems`."""
        return list((await self.wire.json("GET", "v1", "agents"))["agents"])

    async def agent(self, name: str) -> dict[str, Any]:
        """One of the agents that the caller may start."""
        return dict(await self.wire.json("GET", "v1", "agents", name))

    async def blueprint(self, name: str) -> dict[str, Any]:
        """The blueprint that `put_agent` gave, as it was given."""
        return dict(await self.wire.json("GET", "v1", "agents", name, "blueprint"))

    async def put_agent(self, name: str, blueprint: Mapping[str, Any]) -> dict[str, Any]:
        """Has the gateway keep a blueprint as an agent, in the place of the one that it has. What keeps
        the agent from being started for now is in `problems` of the answer.

        >>> await t.put_agent("helper", {"executor": "claude-code", "system_prompt": "You help."})
        """
        return dict(await self.wire.json("PUT", "v1", "agents", name, body=dict(blueprint)))

    async def delete_agent(self, name: str) -> None:
        """Has the gateway forget an agent that `put_agent` gave it. Its runs continue."""
        await self.wire.json("DELETE", "v1", "agents", name)
