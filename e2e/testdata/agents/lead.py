"""Starts an agent that it does not wait for, and works until it is stopped."""

import signal

from contract import call, say

child = call(
    "orchestrator",
    "start_agent_session",
    {"agent_name": "patient", "parameters": {"prompt": "part", "after": True}, "mode": "async_callback"},
)
say("text", text=child["session_id"])
while True:
    signal.pause()
