"""NeMo Gym's resources server with worlds, asked as its agents ask it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import rig
import support
from fastapi.testclient import TestClient
from nemo_gym.server_utils import ServerClient

import tineworld
from tineworld.nemo import WorldServerConfig

RESPONSE = {
    "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
}
ROW = {"responses_create_params": {"input": "Write 4 into a.txt."}, "goal": "4"}


@pytest.fixture
def clients(gateway: rig.Gateway) -> Iterator[Any]:
    """Makes clients of one server, each with cookies of its own."""
    scope: dict[str, Any] = {}
    exec(support.example("nemo"), scope)
    config = WorldServerConfig(host="127.0.0.1", port=1, entrypoint="", name="writing", servers=["files", "fault"], labels={"run": "nemo"})
    app = scope["Writing"](config=config, server_client=MagicMock(spec=ServerClient)).setup_webserver()
    with TestClient(app) as first:
        yield lambda: TestClient(app, base_url=first.base_url)
    with tineworld.sync.connect(gateway.url) as t:
        assert t.sessions(labels={"run": "nemo"}) == [], "worlds are left open"


def verify(client: TestClient) -> Any:
    return client.post("/verify", json=ROW | {"response": RESPONSE})


def test_the_example(clients: Any) -> None:
    with clients() as one:
        assert one.post("/seed_session", json=ROW).status_code == 200
        assert "Successfully" in one.post("/files__write_file", json={"path": "a.txt", "content": "4"}).text
        assert "invented" in one.post("/invented", json={}).text
        assert "are not JSON" in one.post("/files__write_file", content="[" * 100_000).text
        assert "the tool's own error" in one.post("/fault__fail", json={}).text
        assert "the server's own trouble" in one.post("/fault__break_off", json={}).text
        done = verify(one)
        assert done.status_code == 200 and done.json()["reward"] == 1.0 and done.json()["goal"] == "4"
        assert verify(one).status_code == 503, "the world is closed"


def test_a_world_that_failed_is_not_scored(clients: Any) -> None:
    with clients() as one:
        one.post("/seed_session", json=ROW)
        one.post("/files__write_file", json={"path": "a.txt", "content": "4"})
        assert one.post("/fault__die", json={}).status_code == 503
        assert one.post("/fault__count", json={}).status_code == 503
        done = verify(one)
        assert done.status_code == 503 and "the world failed (lost)" in done.text
        assert one.post("/seed_session", json=ROW).status_code == 200, "the next rollout has another world"
        assert one.post("/fault__count", json={}).text == "1"
        assert verify(one).json()["reward"] == 0.0
