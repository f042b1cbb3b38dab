"""inspect-ai evaluates tasks in worlds, with its own scripted model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["INSPECT_DISPLAY"] = "none"

import pytest
import rig
import support
from inspect_ai import Task, eval_async
from inspect_ai.agent import as_solver, react
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, ModelOutput, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

import tineworld
from tineworld import Spec
from tineworld.inspect import WorldSandboxConfig, in_world, sample_world, world_tools

Answer = Callable[[list[ChatMessage]], ModelOutput]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted model counts tokens with a table that inspect-ai would fetch from the network."""
    monkeypatch.setattr("inspect_ai.model._model.count_text_tokens", len)


def calls(tool: str, **arguments: Any) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def done(text: str = "done") -> ModelOutput:
    return ModelOutput.from_content("mockllm/model", text)


async def evaluate(one: Task, answer: Answer, folder: Path, **more: Any) -> EvalLog:
    model = get_model("mockllm/model", custom_outputs=lambda messages, *_: answer(messages))
    [log] = await eval_async(one, model=model, log_dir=str(folder), **more)
    return log


@scorer(metrics=[accuracy()])
def always() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=1.0)

    return score


def once(*outputs: ModelOutput) -> Answer:
    """Makes the calls one after another, then says done."""

    def answer(messages: list[ChatMessage]) -> ModelOutput:
        at = sum(message.role == "tool" for message in messages)
        return outputs[at] if at < len(outputs) else done()

    return answer


async def test_the_example(gateway: rig.Gateway, tmp_path: Path) -> None:
    def answer(messages: list[ChatMessage]) -> ModelOutput:
        if messages[-1].role == "tool":
            return done()
        number = messages[0].text.split(" ")[1]
        return calls("files__write_file", path="a.txt", content="wrong" if number == "3" else number)

    scope: dict[str, Any] = {}
    exec(support.example("inspect"), scope)
    log = await evaluate(scope["writing"](), answer, tmp_path)
    assert log.status == "success" and log.samples, log.error
    assert {sample.target: sample.scores["written"].value for sample in log.samples} == {"0": 1.0, "1": 1.0, "2": 1.0, "3": 0.0}
    async with tineworld.connect(gateway.url) as t:
        assert await t.sessions() == [], "worlds are left open"


async def test_a_world_that_failed_is_not_scored(tmp_path: Path) -> None:
    seen: list[int] = []

    def answer(messages: list[ChatMessage]) -> ModelOutput:
        seen.append(len(messages))
        return once(calls("fault__die"))(messages)

    one = Task(dataset=[Sample(input="Play.")], solver=in_world(spec=Spec(servers=["fault"])), scorer=always(), fail_on_error=False)
    log = await evaluate(one, answer, tmp_path)
    [sample] = log.samples or []
    assert sample.error is not None and "Lost" in sample.error.traceback and not sample.scores
    assert seen == [1], "the model does not see the failure of a world"


async def test_a_failed_world_is_played_again_in_another(gateway: rig.Gateway, tmp_path: Path) -> None:
    played: list[str] = []

    def answer(messages: list[ChatMessage]) -> ModelOutput:
        if messages[-1].role == "tool":
            return done(messages[-1].text)
        played.append("")
        return calls("fault__die" if len(played) == 1 else "fault__count")

    solver_ = in_world(spec=Spec(servers=["fault"], labels={"run": "inspect-again"}))
    log = await evaluate(Task(dataset=[Sample(input="Play.")], solver=solver_, scorer=always()), answer, tmp_path, retry_on_error=1)
    [sample] = log.samples or []
    assert sample.error is None and sample.output.completion == "1" and sample.scores["always"].value == 1.0
    async with tineworld.connect(gateway.url) as t:
        assert len(await t.sessions(labels={"run": "inspect-again"}, closed=True)) == 2


async def test_mistakes_of_the_model_are_scored(tmp_path: Path) -> None:
    mistakes = [calls("fault__fail"), calls("files__read_text_file", path="no such file"), calls("files__read_text_file", wrong=1), calls("invented")]
    one = Task(dataset=[Sample(input="Play.")], solver=in_world(spec=Spec(servers=["fault", "files"])), scorer=always())
    log = await evaluate(one, once(*mistakes), tmp_path)
    [sample] = log.samples or []
    errors = [message.error for message in sample.messages if message.role == "tool"]
    assert all(errors) and len(errors) == 4 and "the tool's own error" in errors[0].message
    assert sample.error is None and sample.scores["always"].value == 1.0


async def test_a_name_that_models_refuse_and_an_image(tmp_path: Path) -> None:
    one = Task(dataset=[Sample(input="Play.")], solver=in_world(spec=Spec(servers=["fault"])), scorer=always())
    log = await evaluate(one, once(calls("fault__picture"), calls("fault__break_off")), tmp_path)
    [sample] = log.samples or []
    picture, broken = [message for message in sample.messages if message.role == "tool"]
    assert [item.type for item in picture.content] == ["image", "text"]
    assert broken.error is not None and "the server's own trouble" in broken.error.message


async def test_an_agent(tmp_path: Path) -> None:
    async def after(world: tineworld.World, state: Any) -> None:
        assert (await world.get("workspace/a.txt")) == b"1" and sample_world() is world

    agent = as_solver(react(tools=[world_tools()]))
    one = Task(dataset=[Sample(input="Play.")], solver=in_world(agent, spec=Spec(servers=["files"]), after=after), scorer=always())
    log = await evaluate(one, once(calls("files__write_file", path="a.txt", content="1"), calls("submit", answer="x")), tmp_path)
    [sample] = log.samples or []
    assert sample.error is None and sample.scores["always"].value == 1.0, sample.error


async def test_the_sandbox(box_gateway: rig.Gateway, tmp_path: Path) -> None:
    checked: list[str] = []

    @solver
    def uses() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            box = sandbox()
            await box.write_file("a/b.txt", "é\r\n")
            assert await box.read_file("a/b.txt") == "é\r\n" and await box.read_file("a/b.txt", text=False) == "é\r\n".encode()
            ran = await box.exec(["sh", "-c", "cat; echo $X; pwd; echo no >&2; exit 3"], input="in\n", env={"X": "1"}, cwd="a")
            assert (ran.success, ran.returncode, ran.stdout, ran.stderr) == (False, 3, "in\n1\n/tmp/a\n", "no\n")
            missing = await box.exec(["no-such-program"])
            assert not missing.success and missing.returncode != 0
            with pytest.raises(FileNotFoundError):
                await box.read_file("none.txt")
            with pytest.raises(IsADirectoryError):
                await box.read_file("a")
            for path in ("/etc/x", "/x/y.txt"):
                with pytest.raises(PermissionError):
                    await box.write_file(path, "1")
            with pytest.raises(IsADirectoryError):
                await box.write_file("a", "1")
            with pytest.raises(TimeoutError):
                await box.exec(["sleep", "60"], timeout=1)
            await sample_world().call("box__rlm_exec", code="x = 4")
            checked.append(sample_world().id)
            return state

        return solve

    config = WorldSandboxConfig(server="box", url=box_gateway.url)
    one = Task(dataset=[Sample(input="Play.")], solver=[uses(), in_world()], scorer=always(), sandbox=("tine", config))
    log = await evaluate(one, once(calls("box__rlm_exec", code="x")), tmp_path)
    [sample] = log.samples or []
    assert sample.error is None and len(checked) == 1, sample.error and sample.error.traceback
    assert [message.text for message in sample.messages if message.role == "tool"] == ["4"], "in_world uses the world of the sandbox"
    async with tineworld.connect(box_gateway.url) as t:
        assert await t.sessions() == []
