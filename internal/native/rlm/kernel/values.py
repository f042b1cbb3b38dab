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


# Pickling. Functions and classes of the namespace go by value, as there is no module to
# import them from.


def is_own(value):
    return getattr(value, "__module__", None) == "__main__"


class Pickler(pickle.Pickler):
    def reducer_override(self, value):
        if isinstance(value, types.ModuleType):
            if sys.modules.get(value.__name__) is not value:
                raise pickle.PicklingError("module %s" % value.__name__)
            return __import__("importlib").import_module, (value.__name__,)
        if isinstance(value, types.FunctionType) and is_own(value):
            cells = tuple(c.cell_contents for c in value.__closure__ or ())
            return build_function, (marshal.dumps(value.__code__), value.__name__, value.__qualname__, value.__defaults__, value.__kwdefaults__, cells, value.__dict__, value.__doc__)
        if isinstance(value, type) and issubclass(value, Absent):
            raise pickle.PicklingError(value.why)
        if isinstance(value, type) and is_own(value):
            skip = ("__dict__", "__weakref__", "__module__")
            body = {k: v for k, v in value.__dict__.items() if k not in skip and not isinstance(v, (types.GetSetDescriptorType, types.MemberDescriptorType))}
            return build_class, (type(value), value.__name__, value.__bases__, body)
        return NotImplemented


def pickled(names, f):
    """Writes names to a file. Large values go there as they are: a copy of them may be more
    than there is memory for."""
    Pickler(f, protocol=5).dump(names)


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


class Nowhere:
    """A file that keeps nothing."""

    def write(self, data):
        return len(data) if isinstance(data, (bytes, bytearray)) else memoryview(data).nbytes


class Absent:
    """Stands for what can't be imported any more, while a save is read."""

    def __new__(cls, *args, **named):
        return object.__new__(cls)

    def __init__(self, *args, **named):
        pass

    def __setstate__(self, state):
        pass

    append = extend = add = update = __setstate__

    def __setitem__(self, key, value):
        pass

    def __reduce_ex__(self, protocol):
        raise pickle.PicklingError(self.why)


class Unpickler(pickle.Unpickler):
    absent = False

    def find_class(self, module, name):
        try:
            found = super().find_class(module, name)
        except (ImportError, AttributeError) as e:
            return self.instead(e)
        return self.imported if (module, name) == ("importlib", "import_module") else found

    def imported(self, name):
        try:
            return __import__("importlib").import_module(name)
        except ImportError as e:
            return self.instead(e)()

    def instead(self, error):
        self.absent = True
        return type("Absent", (Absent,), {"why": str(error)})


def unpickled(file):
    """The variables of a save, and why some are not there: packages may be gone since."""
    reader = Unpickler(file)
    names, left = reader.load(), {}
    for n in list(names) if reader.absent else ():
        try:
            pickled({n: names[n]}, Nowhere())
        except Exception as e:
            left[n] = str(e)[:SHOWN]
            del names[n]
    return names, left


def build_function(code, name, qualname, defaults, kwdefaults, cells, attributes, doc):
    made = types.FunctionType(marshal.loads(code), sys.modules["__main__"].__dict__, name, defaults, tuple(types.CellType(c) for c in cells))
    made.__qualname__, made.__kwdefaults__, made.__doc__, made.__module__ = qualname, kwdefaults, doc, "__main__"
    made.__dict__.update(attributes)
    return made


def build_class(meta, name, bases, body):
    return meta(name, bases, dict(body, __module__="__main__"))


# A module to import these from, which only this process has.
sys.modules["__kernel__"] = types.ModuleType("__kernel__")
for made in (build_function, build_class):
    setattr(sys.modules["__kernel__"], made.__name__, made)
    made.__module__ = "__kernel__"
