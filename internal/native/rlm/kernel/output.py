# What code prints.

DECODER = codecs.getincrementaldecoder("utf-8")


class Output:
    """What code prints: pipes at the numbers 1 and 2, which processes inherit too.

    A thread sends what arrives while code runs. Nothing is taken from a pipe without the
    lock, so that who has it finds in the pipes all that is not sent yet. Code that prints
    nothing costs three system calls: in a sandbox each takes as long as much of Python.
    """

    def __init__(self, host, pipes):
        self.host = host
        self.lock = threading.Lock()
        self.call = None
        self.kept = io.BytesIO()
        self.sent = self.lost = 0
        self.between = b""
        self.decoders = {}
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.reads, self.writes = {}, {}
        self.filled = select.poll()
        for name, (r, w) in pipes.items():
            os.set_blocking(r, False)
            self.filled.register(r, select.POLLIN)
            self.reads[r], self.writes[name] = name, w
        self.streams = ()
        self.attach()
        threading.Thread(target=self.run, daemon=True).start()

    def attach(self):
        """Puts the pipes in their places, from which code may have taken them."""
        os.dup2(self.writes["stdout"], 1)
        os.dup2(self.writes["stderr"], 2)
        if self.untouched():
            return
        self.streams = (open(0, closefd=False),) + tuple(open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False) for fd in (1, 2))
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = self.streams

    def untouched(self):
        """Whether code has left the streams as they were."""
        now = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
        if not self.streams or any(a is not b for a, b in zip(now, self.streams * 2)):
            return False
        try:
            outputs = [(s.closed, s.encoding, s.errors, s.line_buffering) for s in self.streams[1:]]
            return outputs == [(False, "utf-8", "backslashreplace", True)] * 2 and not self.streams[0].closed
        except ValueError:  # it is detached
            return False

    def run(self):
        arrives = select.poll()
        for r in self.reads:
            arrives.register(r, select.POLLIN)
        while True:
            gone = any(event & ~select.POLLIN for _, event in arrives.poll())
            with self.lock:
                self.drain()
            if gone:  # code has closed what is not its own
                return

    def drain(self):
        """Sends what is in the pipes now. What others put there meanwhile may stay."""
        for r, _ in self.filled.poll(0):
            taken = 0
            while taken < PIPE:
                try:
                    data = os.read(r, CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    break
                taken += len(data)
                self.put(self.reads[r], data)

    def put(self, name, data):
        if not data:
            return
        if self.call is None:  # a thread that prints between two calls
            self.between += data[: CHUNK - len(self.between)]
            return
        room = KEPT - self.kept.tell()
        self.kept.write(data[:room])
        self.lost += max(0, len(data) - room)
        send = data[: max(0, SENT - self.sent)]
        self.sent += len(data)
        if send:
            self.tell(name, self.decoders[name].decode(send))

    def tell(self, name, text):
        if text:
            self.host.send(id=self.call, **{name: text})

    def begin(self, call):
        self.attach()
        with self.lock:
            self.call, self.kept, self.sent, self.lost = call, io.BytesIO(), 0, 0
            # A character may arrive in two parts.
            self.decoders = {name: DECODER("replace") for name in self.writes}
            between, self.between = self.between, b""
            self.put("stdout", between)

    def end(self):
        """Returns when all that was printed is sent, and says how much there was."""
        for stream in (sys.stdout, sys.stderr) + self.streams[1:]:
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        with self.lock:
            self.drain()
            if self.sent <= SENT:
                for name, decoder in self.decoders.items():
                    self.tell(name, decoder.decode(b"", True))
            self.call = None
            return self.kept.getvalue(), self.sent, self.lost
