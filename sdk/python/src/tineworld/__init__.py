"""Worlds for trainers: sessions of a Tine gateway, opened, forked and called from Python.

>>> async with tineworld.connect() as t, t.open() as w:
...     print((await w.call("files__list_directory", path=".")).text)

`tineworld.sync` has the same without `await`.
"""

from . import sync, trajectory
from ._features import MissingFeature
from ._opening import Opening
from ._places import Executed
from ._session import Spec
from ._told import RunEvent, RunFailed, RunResult, RunStopped, RunTimeout
from .client import Tine, connect
from .errors import Infrastructure, Invalid, Kind, Lost, NoGateway, Refused, SetupFailed, Timeout, TineError, UnusableFiles, WorldClosed, WorldFailed
from .local import local
from .messages import Format, Message, MessageFormat
from .result import Result
from .rollouts import Dropped, Group, Kept, Rollouts
from .runs import Run
from .trajectory import Step
from .world import Timeouts, World

__all__ = [
    "Dropped",
    "Executed",
    "Format",
    "Group",
    "Infrastructure",
    "Invalid",
    "Kept",
    "Kind",
    "Lost",
    "Message",
    "MessageFormat",
    "MissingFeature",
    "NoGateway",
    "Opening",
    "Refused",
    "Result",
    "Rollouts",
    "Run",
    "RunEvent",
    "RunFailed",
    "RunResult",
    "RunStopped",
    "RunTimeout",
    "SetupFailed",
    "Spec",
    "Step",
    "Tine",
    "TineError",
    "Timeout",
    "Timeouts",
    "UnusableFiles",
    "World",
    "WorldClosed",
    "WorldFailed",
    "connect",
    "local",
    "sync",
    "trajectory",
]
