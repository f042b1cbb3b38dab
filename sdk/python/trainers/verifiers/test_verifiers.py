"""verifiers evaluates tasks in worlds, with its own harness and a scripted model."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import support
import verifiers.v1 as vf
from support import Message, calls, says
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

import tineworld

names = itertools.count()


@pytest.fixture(autouse=True)
def _uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness starts its program with uv, which is installed beside this Python."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MODEL_KEY", "none")


async def evaluate(folder: Path, source: str, answer: Callable[[list[Message]], Message], **more: Any) -> tuple[list[vf.Episode], support.Model]:
    """Evaluates a taskset that is written as a module, as `vf-eval` does."""
    name = f"taskset_{next(names)}"
    (folder / f"{name}.py").write_text(source)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    env = {"taskset": {"id": name, "task": more.pop("task", {})}, "agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}} | more.pop("agent", {})} | more
    async with support.Model(answer) as model:
        config = EvalConfig(
            env=env, model="scripted", client={"base_url": model.url, "api_key_var": "MODEL_KEY"}, push=False, rich=None, output_dir=folder / "out"
        )
        return await run_eval(config), model


def writes(messages: list[Message]) -> Message:
    """Writes the number of the task into a.txt, but of task 3 another one."""
    if messages[-1]["role"] == "tool":
        return says("done")
    number = next(m["content"] for m in messages if m["role"] == "user").split(" ")[1]
    return calls("files__write_file", path="a.txt", content="wrong" if number == "3" else number)


async def test_the_example(gateway: rig.Gateway, tmp_path: Path) -> None:
    episodes, model = await evaluate(tmp_path, support.example("verifiers"), writes)
    assert [e.errors for e in episodes] == [[]] * 4 and all(e.ok for e in episodes)
    assert {e.task.data.prompt: e.traces[0].reward for e in episodes} == {f"Write {n} into a.txt.": float(n != 3) for n in range(4)}
    assert "files__write_file" in {tool["function"]["name"] for tool in model.requests[0]["tools"]}
    async with tineworld.connect(gateway.url) as t:
        assert await t.sessions() == [], "worlds are left open"


FAULTY = """
import verifiers.v1 as vf
from tineworld.verifiers import WorldEnv, WorldTask, WorldTaskset

class Play(WorldTask):
    @vf.reward
    async def played(self) -> float:
        return 1.0

class Playing(WorldTaskset):
    task = Play
    def rows(self):
        return [{"prompt": "Play.", "servers": ["fault", "files"]}]

__all__ = ["Playing", "WorldEnv"]
"""


def once(message: Message) -> Callable[[list[Message]], Message]:
    return lambda messages: says("done") if messages[-1]["role"] == "tool" else message


async def test_a_world_that_failed_is_not_scored(tmp_path: Path) -> None:
    [episode], model = await evaluate(tmp_path, FAULTY, once(calls("fault__die")))
    assert len(model.requests) == 2, "the harness went on after the failure, as it does"
    [trace] = episode.traces
    assert not episode.ok and not trace.ok and trace.rewards == {}
    assert [error.type for error in trace.errors] == ["SandboxError"] and "lost" in trace.errors[0].message


async def test_mistakes_of_the_policy_are_scored(tmp_path: Path) -> None:
    def errs(messages: list[Message]) -> Message:
        answers = [m for m in messages if m["role"] == "tool"]
        mistakes = [calls("fault__fail"), calls("files__read_text_file", path="no such file"), calls("files__read_text_file", wrong=1), calls("invented")]
        return mistakes[len(answers)] if len(answers) < 4 else says("done")

    [episode], model = await evaluate(tmp_path, FAULTY, errs)
    assert episode.ok and episode.traces[0].reward == 1.0, episode
    told = [m["content"] for m in model.requests[-1]["messages"] if m["role"] == "tool"]
    assert "the tool's own error" in told[0] and "no such file" in told[1] and "unknown tool" in told[3]


async def test_a_failed_world_is_played_again_in_another(gateway: rig.Gateway, tmp_path: Path) -> None:
    played = itertools.count()

    def answer(messages: list[Message]) -> Message:
        if messages[-1]["role"] == "tool":
            return says("done")
        return calls("fault__die") if next(played) == 0 else calls("fault__count")

    rules = {"rules": [{"type": "SandboxError", "max_retries": 1}]}
    [episode], model = await evaluate(tmp_path, FAULTY, answer, retries=rules, task={"labels": {"run": "again"}})
    assert episode.ok and episode.traces[0].reward == 1.0
    assert model.requests[-1]["messages"][-1]["content"] == "1", "the second attempt had another world"
    async with tineworld.connect(gateway.url) as t:
        assert len(await t.sessions(labels={"run": "again"}, closed=True)) == 2


async def test_a_failure_in_a_reward_is_the_worlds(tmp_path: Path) -> None:
    source = FAULTY.replace("return 1.0", "await self.world.call('fault__die')\n        return 1.0")
    [episode], _ = await evaluate(tmp_path, source, lambda _: says("done"))
    assert not episode.ok and episode.traces[0].rewards == {"played": None}
    assert [error.type for error in episode.traces[0].errors] == ["SandboxError"]


async def test_a_finalizer_that_does_not_ask(tmp_path: Path) -> None:
    source = FAULTY.replace("    @vf.reward", "    async def finalize(self, trace, runtime): pass\n    @vf.reward")
    [episode], _ = await evaluate(tmp_path, source, once(calls("fault__die")))
    assert not episode.ok and [error.type for error in episode.traces[0].errors] == ["SandboxError"]


async def test_a_world_that_can_not_be_opened(tmp_path: Path) -> None:
    [episode], model = await evaluate(tmp_path, FAULTY, lambda _: says("done"), task={"template": "no-such-template"})
    assert not episode.ok and model.requests == []
    assert "no-such-template" in episode.errors[0].message


async def test_retries_of_the_agent_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use env.retries"):
        await evaluate(tmp_path, FAULTY, lambda _: says("done"), agent={"retries": {"max_retries": 1}})
