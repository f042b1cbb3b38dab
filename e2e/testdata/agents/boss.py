"""Starts three workers, tries what its token must not do, and is told of two of them."""

import json
import re
from urllib.parse import urlsplit

from contract import call, job, request, result, rpc, say, servers

ORCHESTRATOR = "orchestrator"


def reached():
    """The status of what the token of the run is used for, by what it is."""
    own, headers = servers[ORCHESTRATOR]["url"], servers[ORCHESTRATOR]["headers"]
    at = urlsplit(own)
    gateway, session, other = f"{at.scheme}://{at.netloc}", job["session_id"], job["parameters"]["other"]
    listing = rpc("tools/list", {})
    tried = {
        "its own server": ("POST", own, listing),
        "a server that the blueprint does not name": ("POST", f"{gateway}/s/{session}/mcp/mem", listing),
        "the same server of another session": ("POST", f"{gateway}/s/{other}/mcp/{ORCHESTRATOR}", listing),
        "another session": ("POST", f"{gateway}/s/{other}/mcp", listing),
        "the record of another session": ("GET", f"{gateway}/v1/sessions/{other}", None),
        "the end of another session": ("DELETE", f"{gateway}/v1/sessions/{other}", None),
        "the end of its own session": ("DELETE", f"{gateway}/v1/sessions/{session}", None),
        "the end of its own work": ("DELETE", f"{gateway}/v1/agent-sessions/{session}", None),
        "all sessions": ("GET", f"{gateway}/v1/sessions", None),
    }
    statuses = {what: request(method, url, headers, body)[0] for what, (method, url, body) in tried.items()}
    _, text = request("POST", f"{gateway}/mcp", headers, listing)
    statuses["tools of mem at /mcp"] = 200 if "read_graph" in text else 404
    foreign = rpc("tools/call", {"name": "start_session", "arguments": {"agent_name": "stubborn", "prompt": "go", "mode": "async_poll"}})
    _, text = request("POST", own, headers, foreign)
    statuses["an agent that the blueprint does not name"] = 403 if json.loads(text)["result"].get("isError") else 200
    return statuses


say("bind", executor_session_id="boss")
if job["mode"] == "start":
    statuses = reached()
    children = [
        call(ORCHESTRATOR, "start_session", {"agent_name": "worker", "prompt": name, "mode": mode})
        for name, mode in [("one", "sync"), ("two", "async_callback"), ("three", "async_callback")]
    ]
    result("started", {"reached": statuses, "children": children})
else:
    ended = re.findall(r'<agent-callback session="([^"]+)" status="([^"]+)">\s*(hello \w+)', job["prompt"])
    result("told", {"ended": ended})
