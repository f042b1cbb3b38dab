"""Notes in its folder how it is asked to end, and ends only as its parameter says."""

import json
import os
import signal
import sys


def asked(how):
    with open("asked-" + end, "a") as notes:
        notes.write(how + "\n")
    if how == end:
        os._exit(0)


end = json.loads(sys.stdin.readline())["parameters"]["end"]
signal.signal(signal.SIGTERM, lambda *_: asked("TERM"))
print(json.dumps({"type": "text", "text": str(os.getpid())}), flush=True)
for line in sys.stdin:
    asked(json.loads(line)["type"])
