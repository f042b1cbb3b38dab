"""Starts an agent for each of its steps, in one mode, through gateways that are killed."""

import re
import time
from http.client import HTTPException

from contract import call, job, result

ORCHESTRATOR = "orchestrator"
mark, mode, steps = (job["parameters"][key] for key in ("mark", "mode", "steps"))


def note(file, line):
    with open(f"{file}-{mark}", "a") as notes:
        notes.write(line + "\n")


def sure(tool, arguments, made=lambda: None):
    """The answer to a call. A gateway that is killed may have made what the call asked for."""
    late = time.monotonic() + 120
    while True:
        try:
            return call(ORCHESTRATOR, tool, arguments)
        except (OSError, HTTPException):
            if time.monotonic() > late:
                raise
        time.sleep(0.1)
        if there := made():
            return there


def sessions():
    return [s["session_id"] for s in sure("list_agent_sessions", {})["sessions"]]


def start(step, end):
    before = sessions()

    def made():
        new = [s for s in sessions() if s not in before]
        return {"session_id": new[0]} if new else None

    arguments = {"agent_name": "step", "mode": mode, "parameters": {"mark": step, "takes": "0.1", "end": end}}
    return sure("start_agent_session", arguments, made)


def awaited(child):
    """The result of a child that was started in the modes sync and async_poll."""
    while "result_text" not in child:
        status = sure("get_agent_session_status", {"session_id": child["session_id"]})["status"]
        if status == "idle":
            child = sure("get_agent_session_result", {"session_id": child["session_id"]})
        else:
            time.sleep(0.05)
    return child["result_text"]


if mode != "async_callback":
    note("ran", job["session_id"])
    result(" and ".join(awaited(start(step, "done")) for step in steps))
elif job["mode"] == "start":
    note("ran", job["session_id"])
    for n, step in enumerate(steps):
        note("child", start(step, "fail" if n == 0 else "done")["session_id"])
    result("started")
else:
    for session, status in re.findall(r'<agent-callback session="([^"]+)" status="([^"]+)">', job["parameters"]["prompt"]):
        note("told", f"{session} {status}")
    result("told")
