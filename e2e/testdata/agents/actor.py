"""Calls the tools that its parameters say, waits for a file, and shows all that it got."""

import json
import os
import time

from contract import job, request, result, rpc, say, servers

parameters = job["parameters"]
told = parameters.get("prompt", "").startswith("<agent-callback")
answers = []
if not told:
    for server, tool, arguments in parameters.get("calls", []):
        s = servers[server]
        _, text = request("POST", s["url"], s["headers"], rpc("tools/call", {"name": tool, "arguments": arguments}))
        answers.append(json.loads(text)["result"])
say("text", text="I have called.")
late = time.monotonic() + 300
while (file := parameters.get("told" if told else "waits")) and not os.path.exists(file):
    if time.monotonic() > late:
        raise SystemExit("it was never told to go on")
    time.sleep(0.02)
leaked = json.dumps(job).count(os.environ.get("SECRET_OF_TEST", "nothing"))
shown = {"job": job, "answers": answers, "leaked": leaked, "given": os.environ.get("GIVEN")}
result("told" if told else "acted", shown)
