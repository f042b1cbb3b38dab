"""TRL's GRPOTrainer trains a tiny model, with random weights, on the CPU. What the model says is
scripted: nothing so small calls a tool by itself."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}

import pytest
import rig
import support
import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

import tineworld
from tineworld import Spec
from tineworld.trl import Environment, environment_factory, masked

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="session")
def tokenizer(gateway: rig.Gateway) -> PreTrainedTokenizerFast:
    """A tokenizer of its own with Qwen's template, trained on what the prompts contain."""
    with tineworld.sync.connect(gateway.url) as t, t.open(servers=["files"]) as w:
        corpus = [json.dumps(tool) for tool in w.tools()]
    one = Tokenizer(models.BPE())
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    one.train_from_iterator(corpus * 5, trainers.BpeTrainer(vocab_size=1500, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=one, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>"])
    fast.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return fast


Policy = Callable[[int, str], str]  # what the model says to a conversation, as text, by the number of the row in the batch


class Scripted(GRPOTrainer):
    """A trainer whose generations are scripted; all else is TRL's."""

    policy: Policy

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        texts = [self.policy(at, self.processing_class.decode(ids)) for at, ids in enumerate(prompt_ids)]
        return [self.processing_class.encode(text + "<|im_end|>", add_special_tokens=False) for text in texts], None


def trainer_of(tokenizer: Any, folder: Path, policy: Policy, **given: Any) -> GRPOTrainer:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=16384, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )
    args = GRPOConfig(
        output_dir=str(folder), max_steps=2, per_device_train_batch_size=4, num_generations=4, max_completion_length=512, learning_rate=1e-2,
        use_cpu=True, bf16=False, report_to=[], logging_steps=1, save_strategy="no", disable_tqdm=True, chat_template_kwargs={"enable_thinking": False},
    )
    if isinstance(given["train_dataset"], list):
        given["train_dataset"] = Dataset.from_list(given["train_dataset"])
    trainer = Scripted(model=Qwen3ForCausalLM(config), processing_class=tokenizer, args=args, **given)
    trainer.policy = policy
    trainer.seen = watch(trainer)
    return trainer


def watch(trainer: Any) -> list[Any]:
    """The rewards of each step, as TRL gathered them."""
    seen: list[Any] = []
    inner = trainer._calculate_rewards
    trainer._calculate_rewards = lambda *given, **more: seen.append(inner(*given, **more)) or seen[-1]
    return seen


def call(tool: str, **arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": tool, "arguments": arguments}) + "\n</tool_call>"


def answered(text: str) -> bool:
    return "<tool_response>" in text


def test_the_example(gateway: rig.Gateway, tokenizer: Any, tmp_path: Path) -> None:
    def policy(at: int, text: str) -> str:
        if answered(text):
            return "done"
        assert "You have one try." in text and '"name": "files__write_file"' in text
        goal = text.split("Write ", 1)[1].split(" ", 1)[0]
        return call("files__write_file", path="a.txt", content=goal if at % 2 == 0 else "wrong")

    scope: dict[str, Any] = {}
    exec(support.example("trl"), scope)
    before: list[Any] = []

    def make(**given: Any) -> GRPOTrainer:
        trainer = trainer_of(tokenizer, tmp_path, policy, **given)
        before.append([p.detach().clone() for p in trainer.model.parameters()])
        return trainer

    trainer = scope["train"](make)
    assert trainer.state.global_step == 2
    names = trainer.reward_func_names
    assert names == ["short", "World"]
    for rewards in trainer.seen:
        assert rewards[:, 1].tolist() == [1.0, 0.0, 1.0, 0.0] and (rewards[:, 0] < 0).all()
    assert any(not torch.equal(old, new) for old, new in zip(before[0], trainer.model.parameters())), "no step changed the model"
    with tineworld.sync.connect(gateway.url) as t:
        assert t.sessions(labels={"run": "trl"}) == [], "worlds are left open"
        assert len(t.sessions(labels={"run": "trl"}, closed=True)) == 1 + 8, "a world for each rollout, and one for the list of tools"


def test_a_row_whose_world_failed_is_masked(tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def policy(at: int, text: str) -> str:
        if answered(text):
            return "done"
        return [call("fault__die"), call("fault__fail"), call("invented"), call("fault__count")][at]

    def constant(environments: list[Environment], **_: Any) -> list[float]:
        return [float(environment.world.call("fault__count").text) for environment in environments]

    with tineworld.sync.connect() as t:
        factory = environment_factory(t, Spec(servers=["fault"]), reward=lambda world, row: 1.0)
        rows = [{"prompt": [{"role": "user", "content": "Play."}]}] * 4
        trainer = trainer_of(tokenizer, tmp_path, policy, reward_funcs=[masked(constant)], environment_factory=factory, train_dataset=rows)
        advantages: list[Any] = []
        inner = trainer._generate_and_score_completions
        trainer._generate_and_score_completions = lambda given: advantages.append(inner(given)) or advantages[-1]
        trainer.train()
        assert trainer.state.global_step == 2
        for rewards, scored in zip(trainer.seen, advantages):
            assert rewards[0].isnan().all(), "the row whose world failed has no reward"
            assert not rewards[1:].isnan().any(), "mistakes of the policy are scored"
            assert scored["advantages"][0] == 0 and scored["advantages"][3] > 0 > scored["advantages"][2], "the others are compared without it"
    assert "a rollout is masked, since its world failed (lost)" in caplog.text


def test_a_world_that_can_not_be_opened_does_not_end_the_training(own: rig.Gateway) -> None:
    with tineworld.sync.connect(own.url, patience=0.2) as t:
        environment = environment_factory(t, Spec(servers=["files"]), reward=lambda world, row: 1.0)()
        assert environment.reset(prompt="x") is None and environment.get_reward() == 1.0
        own.kill()
        assert environment.reset(prompt="x") is None
        assert isinstance(environment.failed, tineworld.Infrastructure) and environment.get_reward() is None
        with pytest.raises(tineworld.Infrastructure):
            environment.files__write_file(path="a.txt", content="1")
        own.start()
        assert environment.reset(prompt="x") is None and environment.get_reward() == 1.0


def test_a_mistake_of_the_program_ends_the_training(gateway: rig.Gateway) -> None:
    with tineworld.sync.connect(gateway.url) as t:
        environment = environment_factory(t, lambda row: Spec(servers=["files"], template=row.get("template")))()
        with pytest.raises(tineworld.Invalid, match="no-such"):
            environment.reset(template="no-such")


@pytest.fixture
def own(tmp_path: Path) -> Any:
    one = rig.Gateway(tmp_path, {"servers": {"files": {"builtin": "files"}}})
    one.start()
    yield one
    one.stop()


def test_a_world_that_fails_under_a_reward_function(gateway: rig.Gateway) -> None:
    logged: list[Any] = []

    def kills(environments: list[Environment], number: list[int], log_extra: Any, **_: Any) -> list[int]:
        for environment, n in zip(environments, number):
            environment.world.call("fault__die" if n == 1 else "fault__count")
        log_extra("number", number)
        return number

    async def later(**given: Any) -> list[int]:
        return kills(**given)

    for function in (masked(kills), masked(later), masked(functools.partial(later, more=1))):
        with tineworld.sync.connect(gateway.url) as t:
            environments = [environment_factory(t, Spec(servers=["fault"]))() for _ in range(3)]
            for environment in environments:
                environment.reset()
            given: dict[str, Any] = {"prompts": [0] * 3, "completions": [0] * 3, "environments": environments, "number": [0, 1, 2], "trainer_state": None}
            made = function(**given, log_extra=lambda column, values: logged.append(values))
            assert (asyncio.run(made) if asyncio.iscoroutine(made) else made) == [0, None, 2]
            assert logged[-1] == [0, None, 2]


def test_a_reward_model_can_not_be_wrapped() -> None:
    for model in (torch.nn.Linear(1, 1), "some/model"):
        with pytest.raises(tineworld.Invalid, match="call a reward model in a function"):
            masked(model)


def test_names_and_schemas() -> None:
    from tineworld import _adapters
    from tineworld.trl import _method

    names = _adapters.identifiers(["a.b", "a_b", "a-b", "class", "_x", "1st", "reset", "é"], ("reset",))
    assert names == {"a_b": "a_b", "a.b": "a_b_2", "a-b": "a_b_3", "class": "tool_class", "_x": "x", "1st": "tool_1st", "reset": "reset_2", "é": "tool"}
    properties = {
        "from": {"type": "string", "description": "Where.\n\nArgs: none", "enum": ["a (x)", "b"]},
        "count": {"type": ["integer", "null"]},
        "of": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "self": {},
    }
    method = _method("a_b_2", {"name": "a.b", "description": "Does it.\nReturns: x", "inputSchema": {"properties": properties, "required": ["from"]}})

    class Holder(Environment):
        a_b_2 = method

        def _call(self, tool: str, arguments: Any) -> str:
            return f"{tool} {arguments}"

    schema = get_json_schema(Holder().a_b_2)["function"]
    assert schema["name"] == "a_b_2" and schema["description"] == "Does it. Returns - x"
    parameters = schema["parameters"]
    assert parameters["required"] == ["tool_from"] and parameters["properties"]["tool_from"]["enum"] == ["a (x)", "b"]
    assert parameters["properties"]["count"] == {"type": "integer", "nullable": True, "description": "count"}
    assert '"properties": {"a"' in parameters["properties"]["of"]["description"]
    assert Holder().a_b_2(tool_from="a", self_2=1, other=2) == "a.b {'from': 'a', 'self': 1, 'other': 2}"
