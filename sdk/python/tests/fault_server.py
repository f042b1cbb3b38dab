"""An MCP server on standard input and output whose tools do what a test asks for. It counts calls in
its memory, which a restart loses."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import Any

TOOLS = [
    {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("count", "big", "die", "hang", "fail", "break.off", "picture", "slow")
]


def call(name: str, given: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
    state["calls"] += 1
    match name:
        case "count":
            return text(str(state["calls"])) | {"structuredContent": {"calls": state["calls"], "pid": os.getpid()}}
        case "big":
            return text("x" * int(given["bytes"]))
        case "die":
            os._exit(3)
        case "hang":
            while True:
                time.sleep(3600)
        case "slow":
            time.sleep(float(given["seconds"]))
            return text("done")
        case "fail":
            return text("the tool's own error") | {"isError": True}
        case "picture":
            data = base64.b64encode(b"not a picture").decode()
            return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}, {"type": "text", "text": "a picture"}]}
        case "break.off":
            raise ValueError("the server's own trouble")
    raise KeyError(name)


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def answer(request: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            about = {"name": "fault", "version": "1"}
            return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "ping":
            return {"result": {}}
        case "tools/call":
            try:
                return {"result": call(params["name"], params.get("arguments") or {}, state)}
            except KeyError as error:
                return {"error": {"code": -32602, "message": f"unknown tool {error}"}}
            except ValueError as error:
                return {"error": {"code": -32603, "message": str(error)}}
    return {"error": {"code": -32601, "message": "method not found"}}


def main() -> None:
    state = {"calls": 0}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"]} | answer(request, state)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
