"""Ignores SIGTERM, with a child of the same kind in a session of its own."""

import os
import signal

from contract import say

signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    os.write(tell, b".")
else:
    os.read(ready, 1)
    say("text", text=f"{os.getpid()} {child}")
while True:
    signal.pause()
