"""An MCP server over stdio, of the standard library alone, that has a program at
the other end of two pipes, one that sleeps, and threads, which each count what
they did. It keeps all it knows in its memory. Its tools are those of sandserver."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid

COUNT = 'n = 0\nimport sys\nfor line in sys.stdin:\n    n += 1\n    print(line.strip(), n, flush=True)\n'

life = {"id": str(uuid.uuid4()), "pid": os.getpid(), "handshakes": 0, "forked": 0, "ticks": 0}
values = {}
child = subprocess.Popen([sys.executable, "-c", COUNT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
sleeper = subprocess.Popen(["sleep", "1000000"])


def thread():
    ask = queue.Queue()

    def run():
        n = 0
        while True:
            answer = ask.get()
            n += 1
            answer.put(n)

    threading.Thread(target=run, daemon=True).start()
    return ask


threads = [thread() for _ in range(4)]


def tick():
    while True:
        time.sleep(0.02)
        life["ticks"] += 1


threading.Thread(target=tick, daemon=True).start()


def work(what):
    child.stdin.write(what + "\n")
    child.stdin.flush()
    said = [child.stdout.readline().strip()]
    if sleeper.poll() is not None:
        raise RuntimeError(f"the program that sleeps ended with {sleeper.poll()}")
    for ask in threads:
        answer = queue.Queue()
        ask.put(answer)
        said.append(str(answer.get()))
    return " ".join(said)


def call(tool, args):
    if tool == "work":
        return work(args["value"])
    if tool == "alarm":
        threading.Timer(args["ms"] / 1000, values.__setitem__, (args["key"], args["value"])).start()
        return args["key"]
    if tool == "put":
        values[args["key"]] = args["value"]
        return args["value"]
    if tool == "all":
        return json.dumps(values)
    if tool == "life":
        return json.dumps(life)
    raise RuntimeError("no such tool: " + tool)


def answer(method, params):
    if method == "initialize":
        life["handshakes"] += 1
        version = min(params["protocolVersion"], "2025-11-25")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "workers", "version": "1"}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("put", "all", "life", "alarm", "work")]}
    if method == "tools/call":
        try:
            text, failed = call(params["name"], params.get("arguments") or {}), False
        except Exception as e:
            text, failed = str(e), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    result = answer(m["method"], m.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": m["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "method not found: " + m["method"]}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
