"""Fixtures: gateways of the binary under test."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import rig

import tineworld

# A shell starts what runs in the background without Ctrl-C, and the programs of tests inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Gateway]:
    """A gateway that tests share and none of them stops."""
    config = {
        "workspace": True,
        "servers": {
            "files": {"builtin": "files"},
            "memory": {"builtin": "memory"},
            "fault": rig.fault_server(timeout="30s"),
            "gone": {"url": "http://127.0.0.1:1/mcp", "policy": {"retry": {"attempts": 1}}},
        },
    }
    one = rig.Gateway(tmp_path_factory.mktemp("gateway"), config)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[rig.Gateway]:
    """A gateway that a test may kill."""
    one = rig.Gateway(tmp_path, {"servers": {"files": {"builtin": "files"}, "fault": rig.fault_server(timeout="30s")}})
    one.start()
    yield one
    one.stop()


@pytest.fixture
async def t(gateway: rig.Gateway) -> AsyncIterator[tineworld.Tine]:
    async with tineworld.connect(gateway.url) as one:
        yield one
        left = [s["id"] for s in await one.sessions() if s["id"] in one._worlds]
    async with tineworld.connect(gateway.url) as other:
        now = {s["id"] for s in await other.sessions()}
    assert not now & set(left), "the end of a connection left worlds open"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CI a skip is a failure, however it came about."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
