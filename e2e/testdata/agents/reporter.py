"""Tells of its work by the executor API alone, as executors of other systems do, and starts a child there."""

import json
import os
import sys
import time
import urllib.error
import urllib.request

API = os.environ["AGENT_ORCHESTRATOR_API_URL"]


def ask(method, path, body=None, headers=None):
    """The status and the answer of a request; the program sends no other credential than its URL."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(API + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def tell(event, **fields):
    status, answer = ask("POST", "/events", {"event_type": event, "session_id": session, "timestamp": "2026-01-01T00:00:00Z", **fields})
    assert (status, answer) == (201, {"ok": True}), (status, answer)


def work(parameters, first):
    """One turn: its result is told by an event."""
    tell("message", role="user", content=[{"type": "text", "text": parameters["prompt"]}])
    tell("post_tool", tool_name="look", tool_input={"at": "sky"}, tool_output="blue", error=None)
    tell("message", role="assistant", content=[{"type": "text", "text": "it is blue"}])
    out = {"resumed_as": ask("GET", f"/sessions/{session}")[1]["session"].get("executor_session_id")}
    if first and job["mode"] == "start":
        out |= child()
        out["refused"] = refused(parameters["other"])
        out["hinted"] = [hinted({}), hinted({"X-Agent-Tags": "small, plain"}), hinted({"X-Agent-Tags": "big"}), hinted({"X-Agent-Session-Id": parameters["other"]})]
    out["listed"] = hinted({})
    tell("result", result_text="told " + parameters["prompt"], result_data=out)


def hinted(headers):
    """The agents that the tools of orchestrator list with such headers; -1 where they refuse."""
    server = job["agent_blueprint"]["mcp_servers"]["orchestrator"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_agent_blueprints", "arguments": {}}}
    all = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **server["headers"], **headers}
    with urllib.request.urlopen(urllib.request.Request(server["url"], json.dumps(call).encode(), all), timeout=60) as answer:
        result = json.loads(answer.read())["result"]
    return -1 if result.get("isError") else len(result["structuredContent"]["agents"])


def child():
    demands = {"X-Additional-Demands": '{"tags": ["here"]}', "X-Agent-Tags": "small", "X-Agent-Session-Id": session}
    status, run = ask("POST", "/runs", {"type": "start_session", "agent_name": "echo", "parameters": {"prompt": "child"}, "parent_session_id": session, "execution_mode": "async_poll"}, demands)
    assert status == 201, run
    id, of = run["run_id"], run["session_id"]
    while ask("GET", f"/sessions/{of}/status")[1]["status"] in ("pending", "running"):
        time.sleep(0.02)  # the API has no way to wait
    return {
        "child": ask("GET", f"/sessions/{of}/result")[1]["result_text"],
        "child_run": ask("GET", f"/runs/{id}")[1]["status"],
        "agents": [a["name"] for a in ask("GET", "/agents")[1]],
        "tagged": [a["name"] for a in ask("GET", "/agents?tags=small")[1]],
        "sessions": len(ask("GET", "/sessions")[1]["sessions"]),
        "none": ask("GET", "/sessions/ses_000000000000/status")[1]["status"],
    }


def refused(other):
    """The status of what the token may not do."""
    start = {"type": "start_session", "agent_name": "echo", "parameters": {"prompt": "child"}}
    tried = {
        "bind of another session": ask("POST", "/bind", {"session_id": other, "executor_session_id": "mine"}),
        "event of another session": ask("POST", f"/sessions/{other}/events", {"event_type": "message"}),
        "another session": ask("GET", f"/sessions/{other}"),
        "the end of another session": ask("DELETE", f"/sessions/{other}"),
        "the end of its own session": ask("DELETE", f"/sessions/{session}"),
        "a parent that it is not": ask("POST", "/runs", {**start, "parent_session_id": other}),
        "a header that names another session": ask("POST", "/runs", start, {"X-Agent-Session-Id": other}),
        "an agent without the tag": ask("POST", "/runs", start, {"X-Agent-Tags": "big"}),
        "an agent that it may not start": ask("POST", "/runs", {**start, "agent_name": "reporter"}),
        "demands that can't be read": ask("POST", "/runs", start, {"X-Additional-Demands": "[]"}),
        "demands with something behind": ask("POST", "/runs", start, {"X-Additional-Demands": '{"tags": ["here"]} {}'}),
        "an event of another shape": ask("POST", "/events", {"event_type": "message", "role": 5}),
        "an event that there is not": ask("POST", "/events", {"event_type": "dance"}),
        "another credential beside the URL's": ask("GET", "/sessions", None, {"Authorization": "Bearer token-of-ada-0123456789"}),
    }
    return {what: status for what, (status, _) in tried.items()}


job = json.loads(sys.stdin.readline())
session = job["session_id"]
status, answer = ask("POST", "/bind", {"session_id": session, "executor_session_id": "conversation-" + job["mode"], "project_dir": "/"})
assert status == 200 and answer["ok"] and answer["session"]["session_id"] == session, answer
work(job["parameters"], True)
print(json.dumps({"type": "turn_complete"}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "shutdown":
        break
    work(message["parameters"], False)
    print(json.dumps({"type": "turn_complete"}), flush=True)
