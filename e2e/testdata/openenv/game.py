"""An MCP server over stdio whose state is its memory, and which can fail.

It looks like one made with FastMCP, and starts in a hundredth of the time.
"""

import json
import os
import sys

total = 0


def wrapped(value):
    """A result of a function that returns no object, as FastMCP has it."""
    return {
        "content": [{"type": "text", "text": str(value)}],
        "structuredContent": {"result": value},
        "_meta": {"fastmcp": {"wrap_result": True}},
    }


def call(name, arguments):
    global total
    match name:
        case "add":
            total += arguments.get("by", 1)
            return wrapped(total)
        case "record":
            value = {"total": total, "big": 2**60 + 1}
            return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}
        case "say":
            return {"content": [{"type": "text", "text": arguments["text"]}]}
        case "fail":
            return {"content": [{"type": "text", "text": "Error calling tool 'fail': boom"}], "isError": True}
        case "pid":
            return wrapped(os.getpid())
    return {"content": [{"type": "text", "text": f"Unknown tool: '{name}'"}], "isError": True}


def tool(name, description=None, **properties):
    listed = {"name": name, "inputSchema": {"type": "object", "properties": properties}}
    if description:
        listed["description"] = description
    return listed


TOOLS = [
    tool("add", "Adds to a number that the server remembers.", by={"type": "integer", "default": 1}),
    tool("record"),
    tool("say", text={"type": "string"}),
    tool("fail"),
    tool("pid"),
]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            answer["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "game", "version": "1"},
            }
        case "ping":
            answer["result"] = {}
        case "tools/list":
            answer["result"] = {"tools": TOOLS}
        case "tools/call":
            answer["result"] = call(params["name"], params.get("arguments", {}))
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
