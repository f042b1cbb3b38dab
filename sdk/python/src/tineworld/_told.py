"""What a run of an agent tells: events, a result, or how it has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import Timeout, TineError

#: The states of a run. It has ended in the last three.
RunState = Literal["pending", "claimed", "running", "stopping", "completed", "failed", "stopped"]
#: What an event is about. A gap says that events before the next one are not kept any more.
RunEventType = Literal["text", "tool", "usage", "stderr", "state", "gap"]


@dataclass(frozen=True)
class RunResult:
    """What a run has come to."""

    text: str = ""
    #: The data of the result; None where there is none.
    data: Any = None
    #: The ids of the run and of its session, which is the agent's world.
    run: str = ""
    session: str = ""
    #: What it has used of a language model, as far as its program told: "input_tokens", "output_tokens", "cost".
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunEvent:
    """Something that happened in a run. `id` is its position: `events(after=id)` goes on behind it."""

    type: RunEventType
    id: str
    at: str = ""
    #: Of a state: which one.
    state: RunState | None = None
    #: What the agent's program told, as it is.
    data: Mapping[str, Any] = field(default_factory=dict)
    #: The contents are left out: only the run's owner and operators read them.
    withheld: bool = False

    @property
    def text(self) -> str:
        """What the model said, a line of standard error, or what a tool answered."""
        return str(self.data.get("text") or "")

    @property
    def tool(self) -> str:
        """The name of the tool that is called or has answered."""
        return str(self.data.get("name") or "")

    @property
    def arguments(self) -> Any:
        """The arguments of a tool's call; None of its answer."""
        return self.data.get("arguments")

    @property
    def done(self) -> bool:
        """Whether a tool has answered; otherwise it is called."""
        return self.data.get("done") is True

    @property
    def is_error(self) -> bool:
        """Whether a tool has answered with an error."""
        return self.data.get("is_error") is True


class RunFailed(TineError):
    """A run has ended without being completed. The message names it and says why."""

    def __init__(self, message: str, told: Mapping[str, Any] = {}) -> None:
        super().__init__(message)
        error = told.get("error") or {}
        #: Whose failure it is: "tool" where it is the agent's own, else as of other errors.
        self.kind = str(error.get("kind") or "infrastructure")
        #: Why, without the words about which run it is.
        self.reason = str(error.get("message") or "")
        #: The ids of the run and of its session, and the agent's name.
        self.run, self.session, self.agent = (str(told.get(key) or "") for key in ("id", "session", "agent"))
        #: How it has ended: "failed" or "stopped".
        self.state = str(told.get("state") or "")
        #: What it had come to all the same; None for nothing.
        self.result = result(told) if told.get("result") else None


class RunStopped(RunFailed):
    """A run was stopped."""


class RunTimeout(Timeout):
    """A run has not ended in the time that its caller waits. It goes on."""

    #: The run's id, for `attach_run`.
    run = ""


def result(run: Mapping[str, Any]) -> RunResult:
    of = run.get("result") or {}
    return RunResult(str(of.get("text") or ""), of.get("data"), str(run["id"]), str(run["session"]), dict(run.get("usage") or {}))


def event(line: Mapping[str, Any], tools: dict[str, Any]) -> RunEvent | None:
    """Reads an event; None for one that tells nothing. `tools` are the names of the tools that were called,
    which their answers do not have."""
    kind = str(line.get("type") or "").removeprefix("run.")
    given = line.get("data")
    data: dict[str, Any] = given if isinstance(given, dict) else {} if given is None else {"text": str(given)}
    match kind:
        case "tool":
            call = str(data.get("id") or "")
            if data.get("done") is True:
                data = {"name": tools.pop(call, "")} | data
            else:
                tools[call] = data.get("name")
        case "state":
            if not line.get("state"):  # what the program calls its conversation
                return None
        case "gap":
            data = {"lost": line.get("lost")}
        case "text" | "usage" | "stderr":
            pass
        case _:
            return None
    return RunEvent(kind, line["id"], str(line.get("at") or ""), line.get("state"), data, line.get("withheld") is True)
