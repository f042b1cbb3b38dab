"""The standard error of a program."""

from __future__ import annotations

import os
import sys
import threading
from typing import IO

_TAIL = 4096


class Stderr:
    """A pipe whose text is written to `sys.stderr`, which in a notebook is no file, and whose end is
    kept for messages."""

    def __init__(self) -> None:
        ours, theirs = os.pipe()
        self.file: IO[str] = os.fdopen(theirs, "w")
        self._tail = b""
        self._thread = threading.Thread(target=self._read, args=(ours,), name="tineworld-stderr", daemon=True)
        self._thread.start()

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as source:
            while chunk := source.read(_TAIL):
                self._tail = (self._tail + chunk)[-_TAIL:]
                try:
                    sys.stderr.write(chunk.decode(errors="replace"))
                except (OSError, ValueError, AttributeError):
                    pass  # there is no place for it

    def close(self) -> None:
        """Closes our end of the pipe. The thread ends when the program has closed its own."""
        self.file.close()

    def tail(self, wait: float = 1) -> str:
        """The last lines: all of them, once the program has ended."""
        self._thread.join(timeout=wait)
        return self._tail.decode(errors="replace").strip()
