"""Waits for a file in its project folder, and notes there that it has begun."""

import os
import time

from contract import call, job, result, say

name = job["prompt"]
with open(f"begun-{name}", "a") as begun:
    begun.write(f"{os.getpid()}\n")


def note(when):
    call("mem", "create_entities", {"entities": [{"name": when, "entityType": "note", "observations": []}]})


note("before")
say("text", text="waiting")
late = time.monotonic() + 300
while not os.path.exists(f"go-{name}"):
    if time.monotonic() > late:
        raise SystemExit("it was never told to go on")
    time.sleep(0.02)
if job["parameters"].get("after"):
    note("after")
result("done " + name, {"pid": os.getpid(), "trace": os.environ.get("TRACEPARENT")})
