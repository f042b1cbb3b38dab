"""What the agents of these tests share: the document of a run, and calls of tools."""

import json
import sys
import urllib.error
import urllib.request

job = json.load(sys.stdin)
servers = job["agent_blueprint"]["mcp_servers"]


def say(kind, **more):
    print(json.dumps({"type": kind, **more}), flush=True)


def result(text, data=None):
    say("result", result={"result_text": text, "result_data": data})


def request(method, url, headers, body=None):
    """The status and the text of an answer."""
    made = urllib.request.Request(
        url,
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers},
    )
    try:
        with urllib.request.urlopen(made, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def rpc(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(server, tool, arguments):
    """What a tool has answered, as a dictionary where it is structured."""
    s = servers[server]
    status, text = request("POST", s["url"], s["headers"], rpc("tools/call", {"name": tool, "arguments": arguments}))
    if status != 200:
        raise SystemExit(f"{tool}: {status} {text}")
    answer = json.loads(text)["result"]
    if answer.get("isError"):
        raise SystemExit(f"{tool}: {text}")
    return answer.get("structuredContent") or answer["content"][0]["text"]
