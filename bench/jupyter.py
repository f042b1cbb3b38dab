"""Kernels of Jupyter for the benchmark: one request a line, one answer a line.

What is timed is what a program that uses jupyter_client waits for. Where there is a choice
it is the quicker one: no history is kept, a kernel is sent its first code before it is
known to listen, and is spoken with over Unix sockets. With TCP of many kernels that start
at once some end, as others have taken their ports meanwhile.
"""
import json
import os
import signal
import sys
import time

# The names are short, as those of Unix sockets must be.
for name, folder in {"IPYTHONDIR": "ji", "JUPYTER_CONFIG_DIR": "jc", "JUPYTER_DATA_DIR": "jd", "JUPYTER_RUNTIME_DIR": "jr"}.items():
    os.environ[name] = os.path.join(sys.argv[1], folder)
    os.makedirs(os.environ[name])

from jupyter_client.manager import KernelManager  # noqa: E402, which reads the environment

PATIENCE = 120  # seconds for one message


class Kernel:
    made = 0

    def __init__(self):
        Kernel.made += 1
        # A kernel without an address of its own would get that of another kernel.
        self.manager = KernelManager(transport="ipc", ip=os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], str(self.made)))
        self.manager.start_kernel()
        self.client = self.manager.client()
        self.client.start_channels()

    def begin(self):
        """Sends code whose value comes with the reply."""
        self.first = self.client.execute("", silent=True, user_expressions={"sum": "6 * 7"})

    def begun(self):
        reply = self.reply(self.first)
        if reply["content"]["user_expressions"]["sum"]["data"]["text/plain"] != "42":
            raise ValueError("the first reply is %s" % reply["content"])

    def ready(self):
        """Has its messages arrive from now on."""
        self.client.wait_for_ready(timeout=PATIENCE)

    def reply(self, number):
        while True:
            message = self.client.get_shell_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == number:
                return message

    def execute(self, code):
        """Runs code and returns its value, when the reply is here and the kernel is idle."""
        number, value = self.client.execute(code, store_history=False), None
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") != number:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "execute_result":
                value = content["data"]["text/plain"]
            elif kind == "error":
                raise RuntimeError("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                break
        self.reply(number)
        return value

    def pid(self):
        return self.manager.provisioner.process.pid

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


kernels = []


def end():
    while kernels:
        kernels.pop().end()


def start(count):
    """Starts kernels and waits until each has replied."""
    began = time.perf_counter_ns()
    for _ in range(count):
        kernels.append(Kernel())
    for k in kernels:
        k.begin()
    for k in kernels:
        k.begun()
    return [time.perf_counter_ns() - began]


def timed(code, want):
    began = time.perf_counter_ns()
    got = kernels[0].execute(code)
    took = time.perf_counter_ns() - began
    if got != want:
        raise ValueError("%s is %s, and should be %s" % (code, got, want))
    return took


def answer(request):
    op, times = request["op"], []
    if op == "start":
        times = start(request["count"])
    elif op == "ready":
        kernels[0].ready()
    elif op == "sums":
        first = request["first"]
        times = [timed("%d + 1" % n, str(n + 1)) for n in range(first, first + request["count"])]
    elif op == "value":
        times = [timed(request["code"], request["want"])]
    elif op == "end":
        end()
    elif op != "kernels":
        raise ValueError("there is no op %s" % op)
    return {"ns": times, "pids": [k.pid() for k in kernels]}


signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
try:
    for line in sys.stdin:
        try:
            out = answer(json.loads(line))
        except Exception as e:
            out = {"error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(out), flush=True)
finally:
    end()
