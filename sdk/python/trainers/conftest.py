"""Fixtures of the adapters' tests, each of which runs in its library's own environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Gateway]:
    """A gateway that tests share and none of them stops. Its server `fault` fails as it is told."""
    config = {
        "workspace": True,
        "servers": {
            "files": {"builtin": "files"},
            "memory": {"builtin": "memory"},
            "fault": rig.fault_server(timeout="30s"),
        },
    }
    one = rig.Gateway(tmp_path_factory.mktemp("gateway"), config)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def box_gateway(tmp_path: Path) -> Iterator[rig.Gateway]:
    """A gateway whose server `box` runs in a sandbox."""
    one = rig.Gateway(tmp_path, {"servers": {"box": {"builtin": "rlm"}}})
    one.start()
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def _environment(gateway: rig.Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples connect to the gateway that runs, and start those of their own with this binary."""
    monkeypatch.setenv("TINE_URL", gateway.url)
    monkeypatch.setenv("TINE_BIN", rig.tine_binary())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CI a skip is a failure, however it came about."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
