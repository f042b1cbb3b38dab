# Pickling. Functions and classes of the namespace go by value, as there is no module to
# import them from. They are made empty first and filled then: they may refer to themselves.


def is_own(value):
    return getattr(value, "__module__", None) == "__main__"


def of_module(value):
    if sys.modules.get(value.__name__) is not value:
        raise pickle.PicklingError("module %s" % value.__name__)
    return importlib.import_module, (value.__name__,)


def of_function(value):
    if not is_own(value):
        return NotImplemented
    cells = value.__closure__ or ()
    module = "__main__"
    if value.__globals__ is not sys.modules[module].__dict__:
        # What a library has wrapped is named as what it wraps, and finds its names in the library.
        module = value.__globals__.get("__name__")
        if getattr(sys.modules.get(module), "__dict__", None) is not value.__globals__:
            raise pickle.PicklingError("it is a function with names of its own")
    state = {
        "cells": [(c, True, c.cell_contents) if c != EMPTY else (c, False, None) for c in cells],
        "set": {n: getattr(value, n) for n in ("__qualname__", "__defaults__", "__kwdefaults__", "__doc__")},
        "notes": notes(value),
        "attributes": value.__dict__,
    }
    return empty_function, (marshal.dumps(value.__code__), module, value.__name__, cells), state, None, None, fill_function


EMPTY = types.CellType()


def notes(value):
    """The annotations, as far as there are values for them."""
    try:
        return dict(value.__annotations__)
    except Exception:
        return {}


def empty_function(code, module, name, cells):
    try:
        names = importlib.import_module(module)
    except ImportError as e:
        return absent(e)()
    made = types.FunctionType(marshal.loads(code), names.__dict__, name, None, cells)
    made.__module__ = "__main__"
    return made


def fill_function(made, state):
    if isinstance(made, Absent):
        return
    with broken(made):
        fill_code(made, state)


def fill_code(made, state):
    for cell, full, value in state["cells"]:
        if full:
            cell.cell_contents = value
    for n, value in state["set"].items():
        setattr(made, n, value)
    made.__annotations__ = state["notes"]
    made.__dict__.update(state["attributes"])


# What a class has that belongs to no other, or that is made with it.
UNSHARED = ("__dict__", "__weakref__", "__module__", "__slots__", "__orig_bases__", "_abc_impl", "__annotate__", "__annotate_func__", "__annotations_cache__")


def of_class(value):
    if issubclass(value, Absent):
        raise pickle.PicklingError(value.why)
    if not is_own(value):
        return NotImplemented
    body = {n: v for n, v in value.__dict__.items() if n not in UNSHARED and not isinstance(v, (types.GetSetDescriptorType, types.MemberDescriptorType))}
    if "__annotations__" in body or "__annotate_func__" in value.__dict__:
        body["__annotations__"] = notes(value)
    state = {"set": body, "members": {}}
    if isinstance(value, enum.EnumMeta):
        same, members = vars(empty_enum(type(value), value.__name__, value.__bases__, ())), value.__members__
        own = lambda n, v: n not in same or n in ("__doc__", "__qualname__") or isinstance(v, types.FunctionType) and is_own(v)
        state["set"] = {n: v for n, v in body.items() if n not in members and own(n, v)}
        state["members"] = {n: m.__dict__ for n, m in members.items()}
        return empty_enum, (type(value), value.__name__, value.__bases__, [(n, m._value_) for n, m in members.items()]), state, None, None, fill_class
    if value.__bases__ == (tuple,) and isinstance(getattr(value, "_fields", None), tuple) and "_make" in body:
        same = vars(collections.namedtuple(value.__name__, value._fields))
        state["set"] = {n: v for n, v in body.items() if n not in same or n in ("__doc__", "__qualname__")}
        return empty_tuple, (value.__name__, value._fields, tuple(value._field_defaults.values())), state, None, None, fill_class
    begin = {n: value.__dict__[n] for n in ("__slots__", "__orig_bases__") if n in value.__dict__}
    return empty_class, (type(value), value.__name__, value.__bases__, begin), state, None, None, fill_class


def empty_class(meta, name, bases, body):
    if issubclass(meta, Absent):
        return meta
    try:
        return meta(name, bases, dict(body, __module__="__main__"))
    except Exception as e:
        return absent("the class can't be made again: %s" % e)


def empty_enum(meta, name, bases, members):
    if issubclass(meta, Absent):
        return meta
    body = meta.__prepare__(name, bases)
    for n, value in members:
        body[n] = value
    body["__module__"] = "__main__"
    return meta(name, bases, body)


def empty_tuple(name, fields, defaults):
    return collections.namedtuple(name, fields, defaults=defaults, module="__main__")


def fill_class(made, state):
    if not isinstance(made, type) or issubclass(made, Absent):
        return
    with broken(made):
        for n, value in state["set"].items():
            type.__setattr__(made, n, value)
        for n, value in state["members"].items():
            made.__members__[n].__dict__.update(value)


def build_cell():
    return types.CellType()


def build_proxy(of):
    return types.MappingProxyType(of)


def build_cached(function, name):
    made = functools.cached_property(function)
    if name is not None:
        made.__set_name__(None, name)
    return made


def build_cache(function, maxsize, typed):
    return functools.lru_cache(maxsize, typed)(function)


def build_typevar(name, constraints, bound, co, contra):
    import typing

    made = typing.TypeVar(name, *constraints, bound=bound, covariant=co, contravariant=contra)
    made.__module__ = "__main__"
    return made


def of_cache(value):
    if not is_own(value):
        return NotImplemented
    return build_cache, (value.__wrapped__, *value.cache_parameters().values())


def of_typevar(value):
    if not is_own(value):
        return NotImplemented
    return build_typevar, (value.__name__, value.__constraints__, value.__bound__, value.__covariant__, value.__contravariant__)


def guarded(value):
    """What makes a value anew, so that a failure costs that value and what refers to it."""
    if isinstance(value, BaseException) and is_own(type(value)):
        # Its arguments need not be those of its __init__.
        return make, (build_error, (type(value), value.args)), value.__dict__ or None, None, None, fill
    reduce = copyreg.dispatch_table.get(type(value))
    made = reduce(value) if reduce is not None else value.__reduce_ex__(5)
    if isinstance(made, str):
        return made
    function, args, state, items, pairs, setter = tuple(made) + (None,) * (6 - len(made))
    if setter is not None:
        return NotImplemented
    return make, (function, args), state, items, pairs, None if state is None else fill


def make(function, args):
    for a in (function, *args[:1]):
        if isinstance(a, Absent) or isinstance(a, type) and issubclass(a, Absent):
            return absent(a.why)()
    try:
        return function(*args)
    except Exception as e:
        return absent("%s: %s" % (type(e).__name__, e))()


def build_error(kind, args):
    made = kind.__new__(kind, *args)
    made.args = args
    return made


def fill(made, state):
    """Does what pickle does with a state."""
    if isinstance(made, Absent):
        return
    with broken(made):
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
            return
        slots = None
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        if state:
            made.__dict__.update(state)
        for n, v in (slots or {}).items():
            setattr(made, n, v)


@contextlib.contextmanager
def broken(made):
    """Notes that a value can't be filled."""
    try:
        yield
    except Exception as e:
        Absent.seen = True
        BROKEN[id(made)] = made, "%s: %s" % (type(e).__name__, e)


BROKEN = {}  # values of the save that is read which are not whole, with why


def constant(value):
    """A value of a module that is compared by identity."""
    module = sys.modules[type(value).__module__]
    for n, v in vars(module).items():
        if v is value:
            return getattr, (module, n)
    return NotImplemented


REDUCERS = {
    types.ModuleType: of_module,
    types.FunctionType: of_function,
    types.CellType: lambda v: (build_cell, ()),
    types.MappingProxyType: lambda v: (build_proxy, (dict(v),)),
    staticmethod: lambda v: (staticmethod, (v.__func__,)),
    classmethod: lambda v: (classmethod, (v.__func__,)),
    property: lambda v: (property, (v.fget, v.fset, v.fdel, v.__doc__)),
    functools.cached_property: lambda v: (build_cached, (v.func, v.attrname)),
    type(functools.lru_cache(len)): of_cache,
}


class Pickler(pickle.Pickler):
    def reducer_override(self, value):
        if BROKEN and id(value) in BROKEN:
            raise pickle.PicklingError(BROKEN[id(value)][1])
        kind = type(value)
        if kind in REDUCERS:
            return REDUCERS[kind](value)
        if isinstance(value, type):
            return of_class(value)
        if kind.__name__ == "TypeVar":
            return of_typevar(value)
        if kind.__module__ == "dataclasses" and kind.__name__ not in ("Field", "_DataclassParams"):
            return constant(value)
        return guarded(value)


def pickled(names, f):
    """Writes names to a file. Large values go there as they are: a copy of them may be more
    than there is memory for."""
    Pickler(f, protocol=5).dump(names)


class Nowhere:
    """A file that keeps nothing."""

    def write(self, data):
        return len(data) if isinstance(data, (bytes, bytearray)) else memoryview(data).nbytes


class Absent:
    """Stands for what can't be imported any more, while a save is read."""

    seen = False  # whether there is such a thing

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


def absent(why):
    Absent.seen = True
    return type("Absent", (Absent,), {"why": str(why)})


class Unpickler(pickle.Unpickler):
    foreign = None  # the version of another Python that the save is of

    def find_class(self, module, name):
        if self.foreign and module == "__kernel__" and name.endswith("_function") and not name.startswith("fill"):
            return absent("it is code of Python %s" % self.foreign)
        try:
            found = super().find_class(module, name)
        except (ImportError, AttributeError) as e:
            return absent(e)
        return self.imported if (module, name) == ("importlib", "import_module") else found

    def imported(self, name):
        try:
            return importlib.import_module(name)
        except ImportError as e:
            return absent(e)()


def unpickled(file, foreign=None):
    """The variables of a save, and why some are not there: packages may be gone since, and code
    is of one version of Python."""
    reader, Absent.seen = Unpickler(file), False
    reader.foreign = foreign
    names, left = reader.load(), {}
    for n in list(names) if Absent.seen else ():
        try:
            pickled({n: names[n]}, Nowhere())
        except Exception as e:
            left[n] = str(e)[:SHOWN]
            del names[n]
    BROKEN.clear()
    return names, left


# Saves of earlier versions have these.


def build_function(code, name, qualname, defaults, kwdefaults, cells, attributes, doc):
    made = types.FunctionType(marshal.loads(code), sys.modules["__main__"].__dict__, name, defaults, tuple(types.CellType(c) for c in cells))
    made.__qualname__, made.__kwdefaults__, made.__doc__, made.__module__ = qualname, kwdefaults, doc, "__main__"
    made.__dict__.update(attributes)
    return made


def build_class(meta, name, bases, body):
    return meta(name, bases, dict(body, __module__="__main__"))


# A module to import these from, which only this process has.
sys.modules["__kernel__"] = types.ModuleType("__kernel__")
for made in (build_function, build_class, empty_function, fill_function, empty_class, empty_enum, empty_tuple, fill_class, make, fill, build_error, build_cell, build_proxy, build_cached, build_cache, build_typevar):
    setattr(sys.modules["__kernel__"], made.__name__, made)
    made.__module__ = "__kernel__"
