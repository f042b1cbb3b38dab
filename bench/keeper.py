"""The MCP server over stdio whose sandboxes are measured, of the standard library
alone. It keeps all it knows in its memory, and has no timer."""

import json
import sys

values = {}


def call(name, arguments):
    if name == "put":
        values[arguments["key"]] = arguments["value"]
        return arguments["value"]
    if name == "all":
        return json.dumps(values)
    raise ValueError("no such tool: " + name)


def respond(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "keeper", "version": "1.0.0"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("put", "all")]}
    if method == "tools/call":
        try:
            text, failed = call(params["name"], params.get("arguments") or {}), False
        except (KeyError, ValueError) as e:
            text, failed = str(e), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


for line in sys.stdin:
    if not line.strip():
        continue  # the end of a line that was torn
    q = json.loads(line)
    if "id" not in q:
        continue
    answer = {"jsonrpc": "2.0", "id": q["id"], "result": respond(q["method"], q.get("params") or {})}
    if answer["result"] is None:
        del answer["result"]
        answer["error"] = {"code": -32601, "message": "no such method: " + q["method"]}
    print(json.dumps(answer), flush=True)
