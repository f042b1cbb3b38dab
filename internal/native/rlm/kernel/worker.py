# What runs code.


class Submitted(BaseException):
    """Ends code that has what it was asked for."""

    def __init__(self, text):
        super().__init__("submitted")
        self.text = text


class Worker:
    def __init__(self, line, requests, side, pipes):
        self.line = line
        self.side = side  # on which the keeper sends the pipes of a branch
        self.children = []
        self.cell = 0
        self.cells, self.code = collections.deque(), 0  # those whose lines are kept
        self.calls = False  # whether the code that runs calls something
        self.ran = False  # whether code has called something since the last save, which may have changed anything
        self.newer = set()  # names that changed since the last save, as far as that is seen
        self.unnoted = None  # why those could not be written down
        self.left = {}  # names that the last save could not have
        self.lost = None  # what a restore could not bring back, until the host has told it
        self.back = {}  # what it brought back
        self.met = False  # whether it has been asked to restore or forget what was saved
        self.cut = None  # code that was interrupted for no caller, until the host has told it
        self.outputs = None  # the names that SUBMIT wants; None where there is nothing to submit
        self.clear()
        self.attach(requests, 0, pipes)

    def attach(self, requests, branch, pipes):
        """Makes this process one that reads requests, as the worker or a branch of it."""
        os.setpgid(0, 0)
        self.pid = os.getpid()
        self.branch = branch
        self.requests = os.fdopen(requests, "rb", buffering=1 << 16)
        self.host = Host(self.line, branch)
        self.output = Output(self.host, pipes)
        self.work = queue.SimpleQueue()
        self.interruptible = False
        self.loop = None

    def clear(self):
        """Begins with no variables."""
        main = types.ModuleType("__main__")
        main.__builtins__ = __builtins__
        sys.modules["__main__"] = main
        self.names = main.__dict__
        self.own = {"llm_query": self.llm_query, "llm_query_batch": self.llm_query_batch, "llm_query_batched": self.llm_query_batch}
        self.names.update(self.own)
        self.hidden = set(self.names)
        self.known = set(self.names)

    # What code may call.

    def llm_query(self, prompt):
        """Asks the language model and returns its answer."""
        return self.host.ask("llm_query", prompt=str(prompt))

    def llm_query_batch(self, prompts):
        """Asks several prompts at once. A failure is '[error] ...' in its place."""
        if isinstance(prompts, (str, bytes)):
            raise TypeError("llm_query_batch takes a list of prompts; llm_query takes one")
        return self.host.ask("llm_query_batch", prompts=[str(p) for p in prompts])

    def submit(self, *values, **named):
        """Ends with these outputs, by name or in their order."""
        if len(values) > len(self.outputs):
            raise TypeError("SUBMIT takes %s" % ", ".join(self.outputs))
        named = dict(zip(self.outputs, values), **named)
        missing = [n for n in self.outputs if n not in named]
        if missing or len(named) > len(self.outputs):
            raise TypeError("SUBMIT takes %s; %s" % (", ".join(self.outputs), "missing: %s" % ", ".join(missing) if missing else "got %s" % ", ".join(named)))
        try:
            raise Submitted(json.dumps(named, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as e:
            raise TypeError("SUBMIT takes what JSON can hold: %s" % e) from None

    # Running code.

    def compiled(self, code):
        """The statements, and the value of the last one where it is an expression."""
        self.cell += 1
        name = "<cell %d>" % self.cell
        self.remember(name, code)
        tree = ast.parse(code, name)
        self.bound, self.reads, self.calls = names_of(tree)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        parts = [compile(tree, name, "exec", flags, dont_inherit=True)]
        if last is not None:
            parts.append(compile(last, name, "eval", flags, dont_inherit=True))
        return parts

    def remember(self, name, code):
        """Has tracebacks show the lines of a code, until there are many newer ones."""
        linecache.cache[name] = (len(code), None, (code + "\n").splitlines(True), name)
        self.cells.append((name, len(code)))
        self.code += len(code)
        while len(self.cells) > CELLS or self.code > CODE and len(self.cells) > 1:
            name, size = self.cells.popleft()
            linecache.cache.pop(name, None)
            self.code -= size

    def evaluate(self, part):
        value = eval(part, self.names)
        if part.co_flags & COROUTINE:
            import asyncio

            if self.loop is None or self.loop.is_closed():
                self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
            task = self.loop.create_task(value)
            try:
                value = self.loop.run_until_complete(task)
            except KeyboardInterrupt:
                task.cancel()
                raise
        return value

    def exec(self, call, code):
        done, early = {"interrupted": False, "error": None}, False
        self.bound, self.reads, self.calls = set(), set(), False
        self.output.begin(call)
        try:
            value, parts = None, self.compiled(code)
            early = self.change(self.bound | self.inplace())  # which is gone if the code ends this process
            for part in parts:
                value = self.evaluate(part)
            if value is not None:
                self.names["_"] = value
                done["value"] = clip(repr(value))
            done["images"] = figures()
        except KeyboardInterrupt:
            done["interrupted"] = True
            if self.cut:
                self.cut = code.strip().partition("\n")[0][:SHOWN]
                self.unnoted = self.unnoted or "not yet"
        except Submitted as e:
            done["submitted"] = e.text
        except SystemExit as e:
            done["error"] = "SystemExit: %s" % (e.code,)
        except BaseException as e:
            done["error"] = trace(e)
        finally:
            self.interruptible = False
            if os.getpid() != self.pid:
                os._exit(0)  # code that forked, and came to its end in the child too
            printed, total, lost = self.output.end()
        if "_output" not in self.reads:  # else it would be gone once a part of it was looked at
            self.names["_output"] = printed.decode("utf-8", "replace")
        done.update(printed=total, lost=lost)
        if total > SENT:
            done["tail"] = printed[-TAIL:].decode("utf-8", "replace")
        done["changed"] = self.change(self.touched()) or early
        self.calls = False
        done["unnoted"] = self.unnoted
        return done

    def get(self, name, query=None):
        if query is None:
            if name not in self.names:
                return {"missing": True}
            value = self.names[name]
        else:
            try:
                value = eval(compile(query, "<query>", "eval", dont_inherit=True), self.names)
            except KeyboardInterrupt:
                return {"interrupted": True}
            except BaseException as e:
                return {"error": trace(e)}
        try:
            text, kind = json.dumps(value, ensure_ascii=False, allow_nan=False), "json"
            if not plain(value):
                raise ValueError("JSON has no such keys")
            text.encode()  # which text with half of a pair can't be
        except BaseException:
            try:
                text, kind = repr(value), "repr"
            except KeyboardInterrupt:
                return {"interrupted": True}
            except BaseException as e:
                return {"error": trace(e)}
        return {"kind": kind, "type": type(value).__name__, "value": clip(text), "length": len(text)}

    def vars(self, most=1000):
        names = sorted(n for n in self.names if self.visible(n))
        return {"vars": [{"name": n, "type": type(self.names[n]).__name__, "summary": summary(self.names[n])} for n in names[:most]], "count": len(names)}

    def visible(self, name):
        return not name.startswith("_") and not (name in self.hidden and self.names[name] is self.own.get(name, self.names[name]))

    def set(self, names):
        """Gives variables values that are JSON."""
        self.names.update(names)
        self.change(names)
        return {}

    def load(self, path, name):
        """Reads a file into a variable, and removes it: text where it is UTF-8, else bytes."""
        try:
            if keyword.iskeyword(name) or not name.isidentifier():
                return {"error": "%r can't be the name of a variable in Python" % name}
            if name in self.own or hasattr(builtins, name) or name.startswith("__"):
                return {"error": "%r has a meaning in Python or in this kernel; choose another name" % name}
            with open(path, "rb") as f:
                if os.fstat(f.fileno()).st_size == 0:
                    data = ""
                else:
                    # Read through a map, so that there are not two of it for a moment.
                    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
                        try:
                            data = str(m, "utf-8")
                        except UnicodeDecodeError:
                            data = m[:]
        finally:
            os.unlink(path)
        self.names[name] = data
        self.change([name])
        return {"type": type(data).__name__, "length": len(data)}

    def bind(self, names):
        """Gives variables the values of others."""
        missing = sorted(n for n in names.values() if n not in self.names)
        if missing:
            return {"missing": missing}
        self.names.update({n: self.names[of] for n, of in names.items()})
        self.change(names)
        return {}

    def describe(self, names, most):
        """What can be said of variables without showing them."""
        out = []
        for n in names:
            value = self.names[n]
            text = value if isinstance(value, str) else SHORT.repr(value)
            length = len(value) if hasattr(value, "__len__") else None
            out.append({"name": n, "type": type(value).__name__, "length": length, "preview": text[:most]})
        return {"vars": out}

    def agent(self, outputs):
        """Begins, or with no outputs ends, the work of an agent that submits them."""
        self.outputs = outputs
        if outputs:
            self.own["SUBMIT"] = self.names["SUBMIT"] = self.submit
            self.hidden.add("SUBMIT")
        elif self.own.pop("SUBMIT", None) is not None:
            self.names.pop("SUBMIT", None)
            self.hidden.discard("SUBMIT")
        return {}

    def fork(self, number):
        """Makes a branch."""
        _, fds, _, _ = socket.recv_fds(self.side, 1, 2)
        for pid in self.children[:]:
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.children.remove(pid)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            try:
                for fd in self.output.writes.values():
                    os.close(fd)
                # Its lock may be held by a thread that is not here.
                os.close(self.requests.fileno())
                self.before = self.requests
                self.line.lock = threading.Lock()
                self.children = []
                self.attach(fds[0], number, {"stdout": os.pipe(), "stderr": os.pipe()})
                os.write(fds[1], b"%d\n" % self.pid)
                self.run()
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
        self.children.append(pid)
        return {}

    def reseed(self, seed):
        """Gives the random generators another beginning: this is a copy of a kernel."""
        import random

        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed & 0xFFFFFFFF)
        return {}

    # Saving.

    def touched(self):
        """The variables that the last code has changed, or may have: what it reads can be changed in place."""
        names = {n for n in self.bound if n in self.names or n in self.known}
        names |= self.inplace()
        for n in names:
            (self.known.add if n in self.names else self.known.discard)(n)
        if len(self.known) != len(self.names):
            now = set(self.names)
            names |= now ^ self.known
            self.known = now
        return names

    def inplace(self):
        """The variables that the last code reads, where those can be changed in place."""
        return {n for n in self.reads if n in self.names and not isinstance(self.names[n], FIXED)}

    def change(self, names):
        """Notes that variables differ from what was saved."""
        self.known.update(n for n in names if n in self.names)
        names = {n for n in names if not n.startswith("_") and n not in self.hidden} - self.newer
        unheard = self.calls and not self.ran
        if names or unheard or self.unnoted:
            self.newer |= names
            self.ran = self.ran or self.calls
            try:
                self.note()
                self.unnoted = None
            except OSError as e:
                self.unnoted = e.strerror  # the code has run all the same
        return bool(names) or unheard

    def note(self):
        """Writes down what is lost when this process ends."""
        if STATE is None or self.branch:
            return
        if self.newer or self.left or self.ran or self.cut:
            write(NEWER, json.dumps({"newer": sorted(self.newer)[:NAMED], "count": len(self.newer), "ran": self.ran, "left": self.left, "cut": self.cut}).encode(), sync=False)
        else:
            remove(NEWER)

    def save(self):
        """Writes what can be pickled, whole or not at all, and names the rest."""
        if STATE is None:
            raise ValueError("there is no directory to save to")
        names = {n: v for n, v in self.names.items() if self.visible(n)}
        left = {}

        def put():
            head = json.dumps({"protocol": PROTOCOL, "python": sys.version_info[:2], "at": time.time(), "names": len(names), "cell": self.cell}).encode()
            return write(SAVED, len(head).to_bytes(4, "big") + head, lambda f: pickled(names, f))

        try:
            size = put()
        except Exception:
            for n in sorted(names):
                try:
                    pickled({n: names[n]}, Nowhere())
                except Exception as e:
                    left[n] = "%s: %s" % (type(e).__name__, str(e)[:SHOWN])
            for n in left:
                del names[n]
            size = put()
        self.newer, self.ran, self.left = set(), False, dict(sorted(left.items())[:NAMED])
        self.note()
        return {"saved": len(names), "left": left, "bytes": size}

    def restore(self, oldest=0):
        """Brings back what save wrote, once, and says what it lacks."""
        if self.met or STATE is None:
            self.met = True
            return self.pending()
        self.met = True
        lost = {"newer": [], "count": 0, "ran": False, "left": {}, "absent": {}}
        try:
            with open(os.path.join(STATE, NEWER), "rb") as f:
                lost.update(json.loads(f.read()))
        except (OSError, ValueError):
            pass
        self.cut = lost.pop("cut", None)
        try:
            with open(os.path.join(STATE, SAVED), "rb") as f:
                head, foreign = headed(f)
                lost["at"] = head["at"]
                if head["at"] < oldest:
                    lost["expired"] = True
                else:
                    first = self.attempt(head["at"])
                    back, absent = unpickled(f, foreign)
                    self.names.update(back)
                    if first:
                        back.update(self.held(oldest))
                    if absent:
                        self.hold(absent)
                    lost["absent"], lost["absent_count"] = dict(sorted(absent.items())[:NAMED]), len(absent)
                    self.known = set(self.names)
                    self.cell = head.get("cell", 0)  # functions that are back have names of cells
                    self.back = {"restored": len(back), "at": head["at"]}
        except FileNotFoundError:
            pass
        except Exception as e:
            lost["broken"] = "%s: %s" % (type(e).__name__, str(e)[:SHOWN])
        remove(ATTEMPT)
        if lost.get("expired") or "broken" in lost:
            remove(SAVED)
        if lost["count"] or lost["ran"] or lost["left"] or lost["absent"] or lost.get("expired") or "broken" in lost:
            self.lost = lost
        return self.pending()

    def hold(self, absent):
        """Keeps a save for variables in it that can't be used now."""
        saved = os.path.join(STATE, SAVED)
        if any(os.path.samefile(saved, os.path.join(STATE, n)) for n in held()):
            return  # a kernel before has, and no other save was made since
        name = "%s%d" % (HELD, time.time_ns())
        write(name + ".json", json.dumps(sorted(absent)).encode())
        os.link(saved, os.path.join(STATE, name))
        for old in held()[:-HOLDS]:
            unhold(old)

    def held(self, oldest):
        """Brings back what can be used again, and has no value meanwhile."""
        back = {}
        for name in held():
            try:
                with open(os.path.join(STATE, name + ".json"), "rb") as f:
                    wanted = [n for n in json.loads(f.read()) if n not in self.names]
                with open(os.path.join(STATE, name), "rb") as f:
                    head, foreign = headed(f)
                    found, absent = unpickled(f, foreign) if wanted and head["at"] >= oldest else ({}, {})
                back.update((n, found[n]) for n in wanted if n in found)
                wanted = [n for n in wanted if n in absent]
                write(name + ".json", json.dumps(wanted).encode())
            except Exception:
                wanted = []  # it can't be read
            self.names.update(back)
            if not wanted:
                unhold(name)
        return back

    def attempt(self, at):
        """Notes that a save is being read, and refuses one with which kernels have ended."""
        before = 0
        try:
            with open(os.path.join(STATE, ATTEMPT), "rb") as f:
                of, before = json.loads(f.read())
                before = before if of == at else 0
        except (OSError, ValueError):
            pass
        if before >= ATTEMPTS:
            raise MemoryError("%d kernels ended while they read it, as happens where that needs more memory than they may have" % before)
        write(ATTEMPT, json.dumps([at, before + 1]).encode())
        return before == 0

    def pending(self):
        """What the host has not told of yet, and whether there is something to save."""
        return dict(self.back, lost=self.lost, dirty=bool(self.newer) or self.ran, cut=self.cut)

    def told(self):
        """The host has."""
        self.lost, self.newer, self.ran, self.left, self.cut = None, set(), False, {}, None
        self.note()
        return {}

    def forget(self):
        """Removes what was saved."""
        self.met = True
        if STATE is not None:
            for name in held():
                unhold(name)
            remove(SAVED)
            remove(NEWER)
        return {}

    # Requests.

    OPS = {"exec": ("code",), "get": ("name", "query"), "vars": ("most",), "set": ("names",), "load": ("path", "name"), "save": (), "restore": ("oldest",), "pending": (), "told": (), "forget": (), "reseed": ("seed",), "bind": ("names",), "describe": ("names", "most"), "agent": ("outputs",), "fork": ("number",)}

    def read(self):
        """Reads requests until the keeper is gone."""
        for line in self.requests:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # half a line of a host that was killed
            if "answer" in message:
                self.host.answered(message)
            else:
                self.work.put(message)
        os._exit(0)

    def run(self):
        os.environ.setdefault("MPLBACKEND", "agg")
        signal.signal(signal.SIGINT, self.interrupted)
        signal.signal(signal.SIGUSR1, self.interrupted)
        threading.Thread(target=self.read, daemon=True).start()
        while True:
            self.one(self.work.get())

    def interrupted(self, number, frame):
        # Between two calls there is nothing to interrupt.
        if self.interruptible:
            self.interruptible = False
            self.cut = number == signal.SIGUSR1 or None
            raise KeyboardInterrupt

    def one(self, message):
        call, op = message["id"], message["op"]
        done = {"interrupted": True}
        self.interruptible = True
        try:
            args = {k: message[k] for k in self.OPS[op] if k in message}
            if not self.met and op not in ("restore", "forget", "reseed"):
                done = {"unmet": True}  # its variables are not back yet
            else:
                done = self.exec(call, **args) if op == "exec" else getattr(self, op)(**args)
            self.interruptible = False
        except KeyboardInterrupt:
            if self.output.call is not None:
                self.output.end()
        except BaseException as e:
            self.interruptible = False
            done = {"error": trace(e)}
        self.host.send(id=call, done=done)
