"""What can go wrong, and whose failure it is.

A failed world says nothing about the policy that acted in it: drop the rollout. Such failures
are a `WorldFailed`, with the kind as its class and in `kind`. A mistake of the policy (an
invented tool, wrong arguments) is never raised: it is a result with `is_error`.

No class here derives from `TimeoutError`, `PermissionError` or `FileNotFoundError`, since some
evaluation frameworks show exceptions of these classes to the model as a tool's answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

Kind = Literal["infrastructure", "timeout", "lost", "refused"]


class TineError(Exception):
    """The base of all errors of this package."""

    def __init__(
        self,
        message: str,
        *,
        server: str = "",
        status: int = 0,
        retryable: bool = False,
        retry_after: float = 0,
        causes: Sequence[TineError] = (),
        call: str = "",
        code: str = "",
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The server of the gateway that failed; empty where it was none.
        self.server = server
        #: The HTTP status of the answer; 0 where there was none.
        self.status = status
        #: Whether another attempt can help.
        self.retryable = retryable
        #: Seconds before another attempt can help; 0 where that is unknown.
        self.retry_after = retry_after
        #: The failures of several servers, where each failed by itself.
        self.causes = tuple(causes)
        #: The id of the call that failed, in the trajectory; empty where it is not there.
        self.call = call
        #: A word for some mistakes, such as "parameter_validation_failed"; empty for most.
        self.code = code
        #: What is wrong with the parameters of a run, each as {"path", "message", "schema_path"}.
        self.errors = [dict(error) for error in errors]


class Invalid(TineError):
    """The program's own request is wrong: an unknown snapshot, a bad label, a bad URL."""


class SetupFailed(TineError):
    """A tool answered a call of a group's setup with an error: the rollouts would begin with another
    state than the one that was meant."""


class WorldClosed(TineError):
    """The program uses a world that it has closed."""


class WorldFailed(TineError):
    """The world failed, not the policy. `kind` says how; the class is one of the four below."""

    kind: ClassVar[Kind]


class Infrastructure(WorldFailed):
    """A server or the gateway could not be started, reached or understood."""

    kind = "infrastructure"


class Timeout(WorldFailed):
    """It took longer than allowed."""

    kind = "timeout"


class Lost(WorldFailed):
    """The world or a part of it is gone, or a call broke off and may have taken effect."""

    kind = "lost"


class Refused(WorldFailed):
    """A limit, a rule, a token or a full machine refused it."""

    kind = "refused"


class UnusableFiles(Refused):
    """What the policy left at a path can't be read or replaced, such as a FIFO, a link that leads
    out, or a file over `max_body`. The world is whole: an episode that catches this may score the
    rollout."""


class NoGateway(Infrastructure):
    """No gateway received the request: nothing was carried out."""


class BrokenOff(Infrastructure):
    """The connection broke before the answer: the request may have been carried out."""


class ToolFailed(TineError):
    """A server answered a call with an error of the protocol. `World.call` makes a result of it."""


_KINDS: dict[str, type[TineError]] = {
    "infrastructure": Infrastructure,
    "timeout": Timeout,
    "lost": Lost,
    "refused": Refused,
    "invalid": Invalid,
    "tool": ToolFailed,
}


def from_api(error: Mapping[str, Any], status: int = 0, prefix: str = "", call: str = "") -> TineError:
    """Makes the exception of an error of the control API. A kind that is not known is
    Infrastructure, so that a rollout is dropped rather than scored."""
    cls = _KINDS.get(str(error.get("kind", "")), Infrastructure)
    return cls(
        prefix + str(error.get("message") or "the gateway gave no reason"),
        server=str(error.get("server") or ""),
        status=status,
        retryable=error.get("retryable") is True,
        retry_after=float(error.get("retry_after") or 0),
        causes=[from_api(cause) for cause in error.get("causes") or ()],
        call=call,
        code=str(error.get("error") or ""),
        errors=error.get("validation_errors") or (),
    )
