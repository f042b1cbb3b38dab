# What the worker is made of. It is loaded by the worker alone.
import ast
import base64
import builtins
import codecs
import contextlib
import copyreg
import enum
import functools
import importlib
import io
import keyword
import linecache
import marshal
import mmap
import pickle
import queue
import reprlib
import time
import traceback
import types

CHUNK = 1 << 16  # bytes of output in one event
KEPT = 1 << 25  # bytes of output of a call that are kept for _output
PIPE = 1 << 20  # bytes that a pipe can hold at most
IMAGES = 8  # figures of a call
IMAGE = 2 << 20  # bytes of one
TAIL = 1 << 15  # bytes of the end of an output that is not sent whole
SHOWN = 100  # characters of a summary
NAMED = 100  # names that are told of
CELLS = 1000  # the newest codes that tracebacks show lines of
CODE = 4 << 20  # characters of those
COROUTINE = 0x80  # inspect.CO_COROUTINE

SAVED = "saved"  # the file in STATE with the variables
ATTEMPT = "attempt"  # how often a kernel has begun to read that, and not come to the end
ATTEMPTS = 2  # after which no kernel reads it
HELD = "held-"  # begins the names of saves with variables that could not be used, and of lists of these
HOLDS = 4  # of those at most
NEWER = "newer"  # the names that changed since, and what could not be saved


class Host:
    """The other end."""

    def __init__(self, line, branch=0):
        self.line = line
        self.branch = branch
        self.lock = threading.Lock()
        self.asked = {}
        self.number = 0

    def send(self, **event):
        if self.branch:
            event["branch"] = self.branch
        line = json.dumps(event, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        self.line.write(line.encode() + b"\n")

    def ask(self, what, **params):
        """Asks the host and waits for its answer, in whichever thread."""
        answers = queue.SimpleQueue()
        with self.lock:
            self.number += 1
            number = self.number
            self.asked[number] = answers
        try:
            self.send(ask=number, what=what, **params)
            answer = answers.get()
        finally:
            with self.lock:
                self.asked.pop(number, None)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("result")

    def answered(self, message):
        with self.lock:
            answers = self.asked.get(message["answer"])
        if answers is not None:
            answers.put(message)
