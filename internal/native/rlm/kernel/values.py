# Values: their names, how they are shown, and how they are pickled.


# What can't be changed in place.
FIXED = (int, float, complex, str, bytes, bool, type(None), range, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


def names_of(tree):
    """The names that code binds or deletes, those that it reads, and whether it calls something."""
    bound, reads, calls = set(), set(), False
    for n in ast.walk(tree):
        if isinstance(n, ast.Name):
            (reads if isinstance(n.ctx, ast.Load) else bound).add(n.id)
        elif isinstance(n, ast.alias):
            bound.add((n.asname or n.name).split(".")[0])
        elif isinstance(getattr(n, "name", None), str):
            bound.add(n.name)
        calls = calls or isinstance(n, (ast.Call, ast.Await))
    return bound, reads, calls


def write(name, data, rest=None, sync=True):
    """Writes a file of STATE, whole or not at all; rest writes what comes after the data."""
    path = os.path.join(STATE, name)
    try:
        with open(path + ".part", "wb") as f:
            f.write(data)
            if rest is not None:
                rest(f)
            f.flush()
            if sync:
                os.fsync(f.fileno())
            size = f.tell()
    except BaseException:
        remove(name + ".part")
        raise
    os.replace(path + ".part", path)
    return size


def remove(name):
    try:
        os.unlink(os.path.join(STATE, name))
    except FileNotFoundError:
        pass


def held():
    """The saves that are kept for some of their variables, the oldest first."""
    return sorted(n for n in os.listdir(STATE) if n.startswith(HELD) and n[len(HELD) :].isdigit())


def unhold(name):
    remove(name + ".json")
    remove(name)


def headed(f):
    """What a save says of itself, and the version of its Python where that is another one."""
    head = json.loads(f.read(int.from_bytes(f.read(4), "big")))
    if head["protocol"] != PROTOCOL:
        raise ValueError("they are of another version of Tine")
    return head, None if tuple(head["python"]) == sys.version_info[:2] else "%s.%s" % tuple(head["python"])


def trace(error):
    """The traceback, without the frames of the kernel."""
    if isinstance(error, SyntaxError) and str(error.filename).startswith("<cell"):
        return clip("".join(traceback.format_exception_only(type(error), error)).rstrip("\n"))
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return clip("".join(line for line in lines if not line.startswith('  File "<kernel>"')).rstrip("\n"))


def clip(text):
    """At most what is sent of a text, with its beginning and its end."""
    if text is None or len(text) <= SENT:
        return text
    half = SENT // 2
    return "%s\n[... %d characters ...]\n%s" % (text[:half], len(text) - SENT, text[-half:])


class Short(reprlib.Repr):
    def __init__(self):
        super().__init__()
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = self.maxarray = 6
        self.maxstring = self.maxother = self.maxlong = SHOWN
        self.maxlevel = 3


SHORT = Short()


def summary(value):
    """A line of at most SHOWN characters, without walking through large values."""
    try:
        if isinstance(value, (str, bytes, bytearray)) and len(value) > SHOWN // 2:
            text = "%r... (%d)" % (value[: SHOWN // 2], len(value))
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            text = "shape %s, %s" % (tuple(value.shape), value.dtype)
        elif hasattr(value, "shape") and hasattr(value, "columns"):
            text = "%s rows, columns %s" % (value.shape[0], SHORT.repr(list(value.columns)))
        elif isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) > 6:
            text = "%s (%d)" % (SHORT.repr(value), len(value))
        else:
            text = SHORT.repr(value)
    except Exception as e:
        text = "<%s>" % type(e).__name__
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def figures():
    """The open figures of matplotlib as PNG, which are closed."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return []
    images = []
    for number in plt.get_fignums()[:IMAGES]:
        data = io.BytesIO()
        plt.figure(number).savefig(data, format="png", bbox_inches="tight")
        if data.tell() <= IMAGE:
            images.append({"mime": "image/png", "data": base64.b64encode(data.getvalue()).decode()})
    plt.close("all")
    return images


def plain(value):
    """Whether all keys in a value are text, as those of JSON are."""
    todo = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, dict):
            if not all(isinstance(k, str) for k in v):
                return False
            todo.extend(v.values())
        elif isinstance(v, (list, tuple)):
            todo.extend(v)
    return True
