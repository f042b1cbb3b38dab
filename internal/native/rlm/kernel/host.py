"""The kernel: a Python that runs what it is sent and remembers its variables.

It is two processes. The keeper has the standard input, passes requests on to the worker,
interrupts it, and starts another one where it has ended or is told to. So code that hangs
in C, calls os._exit or is killed for its memory costs the variables and not the kernel.

The worker runs code in its main thread, where a signal interrupts it. One thread of it
reads requests, two read what code prints: the worker moves the host's pipes away first,
and code that prints, reads or closes its own meets pipes of the worker's.

A branch is a copy of the worker, made by a fork of its process: it has the variables as
they were at that moment, and what it does is its own.

Host and kernel send lines of JSON. Requests have an id and an op, and get events with
that id until one says done; those for a branch have its number before them, as in
@3 {...}. The worker asks the host in turn (llm_query) with a number, by which the host
answers.
"""
import ast
import base64
import codecs
import collections
import fcntl
import inspect
import io
import json
import keyword
import linecache
import marshal
import mmap
import os
import pickle
import queue
import reprlib
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import types

PROTOCOL = 1
CHUNK = 1 << 16  # bytes of output in one event
SENT = 1 << 17  # bytes of output of a call that are sent to the host
KEPT = 1 << 25  # bytes of output of a call that are kept for _output
PIPE = 1 << 20  # bytes that a pipe can hold at most
IMAGES = 8  # figures of a call
IMAGE = 2 << 20  # bytes of one
TAIL = 1 << 15  # bytes of the end of an output that is not sent whole
SHOWN = 100  # characters of a summary
NAMED = 100  # names that are told of

STATE = sys.argv[1] if len(sys.argv) > 1 else None  # a directory that outlives the kernel
SAVED = "saved"  # the file in it with the variables
NEWER = "newer"  # the names that changed since, and what could not be saved


def place():
    """A file without a name, for a lock that all processes of the kernel have."""
    for folder in (None, STATE):
        try:
            return tempfile.TemporaryFile(dir=folder)
        except OSError as e:
            why = e
    raise why


class Line:
    """The way to the host, on which one process at a time writes whole lines."""

    def __init__(self):
        self.fd = os.dup(1)
        self.file = place()
        self.lock = threading.Lock()
        self.alone = False

    def own(self, alone):
        """Makes this process, until it forks, the only one beside the keeper that writes."""
        self.alone = alone
        os.register_at_fork(after_in_parent=self.share, after_in_child=self.share)

    def share(self):
        self.alone = False

    def write(self, data):
        with self.lock:
            # What the keeper writes is short, as long as there is a worker: neither of two
            # short writes tears the other.
            if self.alone and len(data) <= select.PIPE_BUF:
                os.write(self.fd, data)
                return
            fcntl.lockf(self.file, fcntl.LOCK_EX)  # which ends with the process, too
            try:
                data = memoryview(data)
                while data:
                    data = data[os.write(self.fd, data) :]
            finally:
                fcntl.lockf(self.file, fcntl.LOCK_UN)


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
