# What keeps the worker.


class Pipe:
    """Requests on their way to a worker or a branch."""

    def __init__(self):
        self.read, self.fd = os.pipe()
        os.set_blocking(self.fd, False)
        self.waiting = collections.deque()

    def put(self, line):
        self.waiting.append(memoryview(line))
        self.flush()

    def flush(self):
        try:
            while self.waiting:
                data = self.waiting[0]
                rest = data[os.write(self.fd, data) :]
                if rest:
                    self.waiting[0] = rest
                else:
                    self.waiting.popleft()
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.waiting.clear()  # its reader has ended, which is told otherwise


class Branch:
    """A copy of the worker, as the keeper knows it."""

    def __init__(self):
        self.pipe = Pipe()
        self.life, self.theirs = os.pipe()
        self.pid = 0

    def signal(self, number):
        if self.pid:
            try:
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)
            except ProcessLookupError:
                pass

    def close(self):
        self.signal(signal.SIGKILL)
        os.close(self.pipe.fd)
        os.close(self.life)


class Keeper:
    """Reads what the host sends, and has one worker and its branches."""

    def __init__(self):
        self.line = Line()
        self.home = os.getcwd()
        self.half = []  # of a line of the host
        self.branches = {}
        r, w = os.pipe()
        os.set_blocking(r, False)
        os.set_blocking(w, False)
        self.woken = r
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # A worker that loads has nothing to interrupt: what comes late is for the one before.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.set_wakeup_fd(w, warn_on_full_buffer=False)
        self.start()
        self.say(ready=PROTOCOL, python=sys.version.split()[0])

    def mend(self):
        """Makes folders that code has removed, and that programs count on."""
        for folder, mode in (("/tmp", 0o1777), (os.environ.get("HOME"), 0o700), (self.home, 0o700)):
            try:
                if folder and not os.path.isdir(folder):
                    os.makedirs(folder)
                    os.chmod(folder, mode)
            except OSError:
                pass
        try:
            os.chdir(self.home)
        except OSError:
            pass

    def start(self):
        self.mend()
        self.pipe = Pipe()
        self.side, theirs = socket.socketpair()
        self.printed = {"stdout": os.pipe(), "stderr": os.pipe()}
        self.worker = os.fork()
        if self.worker == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self.pipe.fd)
            self.side.close()
            for b in self.branches.values():
                os.close(b.pipe.fd)
                os.close(b.life)
            self.line.own(not self.branches)
            try:
                try:
                    exec(compile(WORKER, "<kernel>", "exec"), globals())
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
                theirs.send(b"w")
                Worker(self.line, self.pipe.read, theirs, self.printed).run()
            finally:
                os._exit(1)
        os.close(self.pipe.read)
        theirs.close()
        if not self.side.recv(1):
            sys.exit("the worker of the kernel does not start")
        for _, w in self.printed.values():
            os.close(w)

    def rest(self):
        """What a worker that has ended has printed and not sent."""
        out = {}
        for name, (r, _) in self.printed.items():
            os.set_blocking(r, False)
            try:
                data = os.read(r, SENT)
            except BlockingIOError:
                data = b""  # something that it started has the other end
            os.close(r)
            out[name] = data.decode("utf-8", "replace")
        return out

    def say(self, **event):
        # A worker that was killed may have left half a line.
        self.line.write(b"\n" + json.dumps(event).encode() + b"\n")

    def run(self):
        while True:
            pipes = {p.fd: p for p in [self.pipe] + [b.pipe for b in self.branches.values()] if p.waiting}
            lives = {b.life: n for n, b in self.branches.items()}
            reads, writes, _ = select.select([0, self.woken, *lives], list(pipes), [])
            for fd in writes:
                pipes[fd].flush()
            if self.woken in reads:
                os.read(self.woken, 512)
                self.reap()
            for fd in reads:
                if fd in lives:
                    self.hear(lives[fd])
            if 0 in reads:
                data = os.read(0, 1 << 16)
                if not data:
                    self.end()
                    for b in self.branches.values():
                        b.close()
                    os._exit(0)
                *lines, rest = data.split(b"\n")
                for line in lines:
                    self.take(b"".join(self.half) + line)
                    self.half = []
                self.half.append(rest)

    def take(self, line):
        if line.startswith(b'{"keeper"') and line.endswith(b"}"):
            self.order(json.loads(line))
        elif line.startswith(b"@"):
            number, _, line = line[1:].partition(b" ")
            b = self.branches.get(int(number))
            if b is not None:
                b.pipe.put(line + b"\n")
        elif line:
            self.pipe.put(line + b"\n")

    def order(self, message):
        """Does what is for the keeper itself."""
        what, n = message["keeper"], message.get("branch", 0)
        b = self.branches.get(n)
        if what == "interrupt" and message.get("adopt"):
            os.kill(self.worker, signal.SIGUSR1)
            for b in self.branches.values():
                b.close()  # nobody waits for what it does
            self.branches = {}
        elif what == "interrupt" and n == 0:
            os.kill(self.worker, signal.SIGINT)
        elif what == "interrupt":
            if b is not None:
                b.signal(signal.SIGINT)
        elif what == "fork":
            b = self.branches[n] = Branch()
            socket.send_fds(self.side, [b"f"], [b.pipe.read, b.theirs])
            os.close(b.pipe.read)
            os.close(b.theirs)
            self.pipe.put(json.dumps({"id": message["id"], "op": "fork", "number": n}).encode() + b"\n")
        elif what == "end":
            if b is not None:
                del self.branches[n]
                b.close()
            self.say(id=message["id"], done={})
        elif what == "restart":
            self.end()
            self.say(died=0, reset=True, **self.rest())
            self.start()
            self.say(id=message["id"], done={})
        else:
            self.say(id=message["id"], done={})

    def hear(self, n):
        """A branch says which process it is, or has ended."""
        b = self.branches[n]
        data = os.read(b.life, 64)
        if data:
            b.pid = int(data)
            return
        del self.branches[n]
        b.close()
        self.say(died=256, branch=n)  # whose status is told to its parent

    def end(self):
        """Ends the worker, and what it has started that stayed in its group."""
        self.close()
        try:
            os.killpg(self.worker, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(self.worker, signal.SIGKILL)  # it has no group of its own yet
        os.waitpid(self.worker, 0)

    def close(self):
        os.close(self.pipe.fd)
        self.side.close()

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.worker:
                self.close()
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                rest = self.rest()
                self.start()
                self.say(died=os.waitstatus_to_exitcode(status), **rest)


if __name__ == "__kernel__":
    Keeper().run()
