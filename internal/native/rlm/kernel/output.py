# What code prints.


class Output:
    """What code prints: pipes at the numbers 1 and 2, which processes inherit too."""

    def __init__(self, host, pipes, mark):
        self.host = host
        self.lock = threading.Lock()
        self.call = None
        self.kept = io.BytesIO()
        self.sent = self.lost = 0
        self.between = b""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.mark = mark
        self.ends, self.writes = {}, {}
        for name, (r, w) in pipes.items():
            self.writes[name] = w
            self.ends[name] = threading.Semaphore(0)
            threading.Thread(target=self.read, args=(name, r), daemon=True).start()
        self.attach()

    def attach(self):
        """Puts the pipes in their places, from which code may have taken them."""
        os.dup2(self.writes["stdout"], 1)
        os.dup2(self.writes["stderr"], 2)
        sys.stdin = sys.__stdin__ = open(0, closefd=False)
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)

    def read(self, name, fd):
        rest = b""
        while True:
            data = os.read(fd, CHUNK)
            if not data:
                return
            rest += data
            while True:
                before, mark, after = rest.partition(self.mark)
                if mark:
                    self.put(name, before)
                    rest = after
                    self.ends[name].release()
                    continue
                break
            # The beginning of a mark may be at the end.
            keep = 0
            for n in range(min(len(self.mark) - 1, len(rest)), 0, -1):
                if self.mark.startswith(rest[-n:]):
                    keep = n
                    break
            self.put(name, rest[: len(rest) - keep])
            rest = rest[len(rest) - keep :]

    def put(self, name, data):
        if not data:
            return
        with self.lock:
            call = self.call
            if call is None:  # a thread that prints between two calls
                self.between += data[: CHUNK - len(self.between)]
                return
            room = KEPT - self.kept.tell()
            self.kept.write(data[:room])
            self.lost += max(0, len(data) - room)
            send = data[: max(0, SENT - self.sent)]
            self.sent += len(data)
        if send:
            self.host.send(id=call, **{name: send.decode("utf-8", "replace")})

    def begin(self, call):
        self.attach()
        with self.lock:
            self.call, self.kept, self.sent, self.lost = call, io.BytesIO(), 0, 0
            between, self.between = self.between, b""
        self.put("stdout", between)

    def end(self):
        """Returns when all that was printed is sent, and says how much there was."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        for name, fd in self.writes.items():
            os.write(fd, self.mark)
            self.ends[name].acquire()
        with self.lock:
            self.call = None
            return self.kept.getvalue(), self.sent, self.lost
