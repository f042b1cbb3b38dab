"""What the adapters' tests share: the examples of docs/trainers.md, and a model that says what a test wants."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import rig
from aiohttp import web

PAGE = rig.ROOT / "docs" / "trainers.md"
Message = dict[str, Any]


def example(name: str, language: str = "python") -> str:
    """The block of docs/trainers.md that begins with ```python NAME, or with another language."""
    blocks = re.findall(rf"^```{language} {name}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 1, f"{PAGE} has {len(blocks)} blocks `{language} {name}`"
    return str(blocks[0])


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def calls(tool: str, **arguments: Any) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}


class Model:
    """An endpoint in the form of OpenAI's chat completions. `answer` gets the conversation so far."""

    def __init__(self, answer: Callable[[list[Message]], Message]) -> None:
        self._answer = answer
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    async def __aenter__(self) -> Model:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.requests.append(asked)
        message = self._answer(asked["messages"])
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        about = {"id": f"chat-{len(self.requests)}", "created": int(time.time()), "model": asked["model"]}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return web.json_response(about | {"object": "chat.completion", "choices": [choice], "usage": usage})
        delta = dict(message)
        if message.get("tool_calls"):
            delta["tool_calls"] = [call | {"index": at} for at, call in enumerate(message["tool_calls"])]
        chunk = about | {"object": "chat.completion.chunk"}
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for part in (
            chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            chunk | {"choices": [], "usage": usage},
        ):
            await answer.write(f"data: {json.dumps(part)}\n\n".encode())
        await answer.write(b"data: [DONE]\n\n")
        return answer
