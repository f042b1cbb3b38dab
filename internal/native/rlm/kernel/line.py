"""The kernel: a Python that runs what it is sent and remembers its variables.

It is two processes. The keeper has the standard input, passes requests on to the worker,
interrupts it, and starts another one where it has ended or is told to. So code that hangs
in C, calls os._exit or is killed for its memory costs the variables and not the kernel.

The worker runs code in its main thread, where a signal interrupts it. One thread of it
reads requests, another what code prints: the worker moves the host's pipes away first,
and code that prints, reads or closes its own meets pipes of the worker's.

A branch is a copy of the worker, made by a fork of its process: it has the variables as
they were at that moment, and what it does is its own.

Host and kernel send lines of JSON. Requests have an id and an op, and get events with
that id until one says done; those for a branch have its number before them, as in
@3 {...}. The worker asks the host in turn (llm_query) with a number, by which the host
answers.

The keeper has little in its memory: the worker has a part of the program for itself, WORKER,
and of modules. In a sandbox two processes share none of what one of them writes to, and
Python writes to all that it looks at.
"""
import collections
import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading

PROTOCOL = 1
SENT = 1 << 17  # bytes of output of a call that are sent to the host

STATE = sys.argv[1] if len(sys.argv) > 1 else None  # a directory that outlives the kernel


def place():
    """A file without a name, for a lock that all processes of the kernel have."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lock")
    import tempfile

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
