"""RewardKit's own pipeline plays in worlds, with its client replaced by this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rig
import support
from datasets import Dataset
from omegaconf import OmegaConf
from reward_kit import reward_function
from reward_kit.execution import pipeline
from reward_kit.generation.clients import GenerationResult
from reward_kit.models import EvaluateResult

import tineworld
from tineworld.rewardkit import IntermediaryMCPClient


def rows() -> Dataset:
    """The dataset: one sample."""
    return Dataset.from_list([{"id": "one", "user_query": "Play.", "ground_truth_for_eval": ""}])


@reward_function
def always(messages: Any, **_: Any) -> EvaluateResult:
    return EvaluateResult(score=1.0, reason="played", metrics={})


class Model:
    """Makes the calls one after another, then says done."""

    def __init__(self, *messages: support.Message) -> None:
        self.messages = messages
        self.seen: list[Any] = []

    async def generate(self, messages: list[Any], session: Any, tools: Any) -> GenerationResult:
        self.seen = messages
        at = sum(message["role"] == "tool" for message in messages)
        if at < len(self.messages):
            return GenerationResult(content=None, tool_calls=self.messages[at]["tool_calls"])
        return GenerationResult(content="done", tool_calls=None)


async def play(monkeypatch: pytest.MonkeyPatch, gateway: rig.Gateway, folder: Path, backend: str, model: Model) -> Any:
    monkeypatch.setattr(pipeline, "IntermediaryMCPClient", IntermediaryMCPClient)
    monkeypatch.setenv("FIREWORKS_API_KEY", "none")
    config = {
        "generation": {"enabled": True, "model_name": "scripted", "cache": {"enabled": False}, "api_params": {}},
        "reward": {"function_path": "test_rewardkit.always"},
        "agent": {"type": "mcp_agent", "mcp_backend_ref": backend, "intermediary_server_url": f"{gateway.url}/mcp"},
        "dataset": {"_target_": "test_rewardkit.rows"},
        "evaluation_params": {},
        "logging_params": {},
        "output": {"results_file": None, "preview_pairs_file": None},
        "hydra_output_dir": str(folder),
    }
    one = pipeline.EvaluationPipeline(OmegaConf.create(config))
    one.model_client = model
    [done] = await one.run()
    return done


@pytest.fixture(scope="session")
def rk(tmp_path_factory: pytest.TempPathFactory) -> Any:
    servers = {"files": {"builtin": "files"}, "fault": rig.fault_server(timeout="30s"), "rollout": {"builtin": "rollout"}}
    servers["gone"] = {"url": "http://127.0.0.1:1/mcp", "policy": {"retry": {"attempts": 1}}}
    one = rig.Gateway(tmp_path_factory.mktemp("rk"), {"workspace": True, "servers": servers})
    one.start()
    yield one
    one.stop()


async def test_the_pipeline(rk: rig.Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = Model(support.calls("write_file", path="a.txt", content="4"), support.calls("read_text_file", path="a.txt"), support.calls("invented"))
    done = await play(monkeypatch, rk, tmp_path, "files", model)
    assert done.get("evaluation_score") == 1.0, done
    assert "write_file" in {tool["name"] for tool in done["discovered_tools"]}
    wrote, read, invented = [call["result"] for call in done["executed_tool_calls"]]
    assert read["content"][0]["text"] == "4" and not wrote.get("isError") and invented["isError"]
    async with tineworld.connect(rk.url) as t:
        assert [s for s in await t.sessions() if s["kind"] != "default"] == [], "a session is left open"


async def test_a_world_that_failed_is_not_scored(rk: rig.Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = Model(support.calls("die"), support.calls("count"))
    done = await play(monkeypatch, rk, tmp_path, "fault", model)
    assert "evaluation_score" not in done and "error" in done, done
    assert len([m for m in model.seen if m["role"] == "tool"]) == 2, "the pipeline goes on after a failure"


async def test_a_server_that_is_away_is_not_played_without_tools(rk: rig.Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = Model()
    done = await play(monkeypatch, rk, tmp_path, "gone", model)
    assert "evaluation_score" not in done and "gone" in done["error"] and model.seen == [], done


async def test_the_tools_errors_are_results(rk: rig.Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = await play(monkeypatch, rk, tmp_path, "fault", Model(support.calls("fail"), support.calls("break.off")))
    assert done.get("evaluation_score") == 1.0, done
    assert [call["result"]["isError"] for call in done["executed_tool_calls"]] == [True, True]


async def test_the_example(rk: rig.Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {}
    exec(support.example("rewardkit"), scope)
    assert (await scope["play"](f"{rk.url}/mcp"))["content"][0]["text"] == "4"


async def test_a_backend_that_is_not_there(rk: rig.Gateway) -> None:
    async with IntermediaryMCPClient(f"{rk.url}/mcp") as client:
        with pytest.raises(tineworld.Invalid, match='there is no backend "fils"; there are'):
            await client.initialize_session([{"backend_name_ref": "fils", "num_instances": 1}])


async def test_a_failure_is_raised_again_when_the_session_is_closed(rk: rig.Gateway) -> None:
    async with IntermediaryMCPClient(f"{rk.url}/mcp/rollout") as client:
        made = await client.initialize_session([{"backend_name_ref": "fault", "num_instances": 2}])
        instances = made["initialized_backends"][0]["instances"]
        assert len(instances) == 2
        with pytest.raises(tineworld.Lost):
            await client.call_backend_tool(made["rk_session_id"], instances[0]["instance_id"], "fault", "die", {})
        with pytest.raises(tineworld.Lost):
            await client.cleanup_session(made["rk_session_id"])
        await client.initialize_session([{"backend_name_ref": "files"}])
    async with tineworld.connect(rk.url) as t:
        assert [s for s in await t.sessions() if s["kind"] != "default"] == [], "close() leaves no session open"
