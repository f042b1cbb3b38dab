"""The program of an agent, which does what its prompt says."""

import json
import sys
import time

job = json.load(sys.stdin)
given = job["parameters"]
verb, _, rest = given["prompt"].partition(" ")


def tell(kind: str, **more: object) -> None:
    print(json.dumps({"type": kind, **more}), flush=True)


if verb == "fail":
    tell("result", result={"result_text": "half of it"})
    tell("error", message=rest)
elif verb == "exit":
    sys.exit(f"{rest} is not there")
elif verb == "hang":
    tell("text", text="it hangs")
    time.sleep(3600)  # until it is killed
elif verb == "steps":
    tell("bind", executor_session_id="conversation-1")
    tell("text", text="one")
    tell("tool", id="1", name="look", arguments={"at": "it"})
    tell("tool", id="1", done=True, text="seen", is_error=True)
    print("a remark", file=sys.stderr, flush=True)
    if rest:  # goes on when a file is there
        from pathlib import Path

        while not Path(rest).exists():
            time.sleep(0.02)  # nothing announces it to a program
    tell("text", text="two")
    tell("usage", input_tokens=3, output_tokens=2, cost=0.5)
else:
    tell("result", result={"result_text": given["prompt"], "result_data": {"mode": job["mode"], "folder": job.get("project_dir"), **given}})
