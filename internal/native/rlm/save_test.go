//go:build unix

package rlm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Variables come back after the end of a kernel, and what does not is named once.
func TestSaved(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("import math\nx = [1, 2]\ndef f(n): return n + len(x)\nclass C:\n    def m(self): return f(1)\nc = C()\n")
	w.stop() // which saves
	w.start()
	w.is("f(1), c.m(), math.pi > 3, type(c) is C", "(3, 3, True, True)")
	w.exec("g = (i for i in [])")
	w.stop()
	w.start()
	got, res := w.call("rlm_exec", map[string]any{"code": "x"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what can't be saved", got, "g (TypeError", "saved at")
	w.is("x", "[1, 2]")
	w.exec("x = 3\ny = 4")
	w.kill()
	w.start()
	got, res = w.call("rlm_vars", nil)
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what is newer", got, "gone is what changed since, or may have: os, x, y")
	w.is("x", "[1, 2]")
	w.is("c.m()", "3")
	// A file that is damaged is no reason not to start.
	w.stop()
	file := filepath.Join(w.spec.State, body.State, "saved")
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, data[:len(data)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	got, res = w.call("rlm_exec", map[string]any{"code": "1"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "a damaged file", got, "can't be read")
	w.is("1 + 1", "2")
}

// What was saved is not lost by what happens between a restart and its way back.
func TestSavedBeforeARestart(t *testing.T) {
	w := newWorld(t, map[string]any{"save": "1s"})
	for _, code := range []string{"sum(range(10**14))", "import os; os._exit(3)"} {
		w.exec("x = 1")
		saved := filepath.Join(w.spec.State, body.State, "saved")
		testkit.Eventually(t, "it is saved", func() bool { _, err := os.Stat(saved); return err == nil })
		w.exec("y = 2")
		got, res := w.call("rlm_exec", map[string]any{"code": code, "timeout": 0.2})
		if !res.IsError || kindOf(t, res) != api.KindLost {
			t.Errorf("%s: %s", code, got)
		}
		w.is("x", "1")
		if err := os.Remove(saved); err != nil {
			t.Fatal(err)
		}
		w.call("rlm_reset", nil)
	}
}

// What the code that ends a kernel did is told as well.
func TestLostByTheCodeItself(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("l, n = [1], 2")
	w.stop()
	w.start()
	w.is("l, n", "([1], 2)")
	got, res := w.call("rlm_exec", map[string]any{"code": "import os\nl.append(2); new = n\nos._exit(3)"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what is told", got, "exited with status 3", "gone is what changed since, or may have: l, new, os")
	w.is("l", "[1]")
}

// A package that is gone costs the variables that need it, and no others.
func TestSavedWithoutAPackage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gone_soon.py"), []byte("class C(list):\n    pass\n\ndef f():\n    pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	w.exec(fmt.Sprintf("import sys; sys.path.insert(0, %q); import gone_soon\nc = [gone_soon.C([1])]; f = gone_soon.f; y = [2]\ndel sys", dir))
	w.stop()
	w.start()
	got, res := w.call("rlm_vars", nil)
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what is gone", got, "can't be used here, and it is kept until it can be: c (No module named 'gone_soon')", "f (No", "gone_soon (No")
	w.is("y", "[2]")
}

// What a person reads of a mistake is about their code.
func TestPlainMistakes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "x", "outside": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	within := filepath.Join(dir, "within")
	if err := errors.Join(os.Mkdir(within, 0o700), os.Symlink("../outside", filepath.Join(within, "link"))); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, map[string]any{"allow_read": []any{within, filepath.Join(dir, "a")}})
	if got := w.exec("x = ("); !strings.HasPrefix(got, "  File \"<cell 1>\", line 1") || !strings.Contains(got, "SyntaxError") {
		t.Errorf("a syntax error: %s", got)
	}
	if got, _ := w.call("rlm_load", map[string]any{"path": filepath.Join(dir, "a"), "var_name": "class"}); !strings.Contains(got, "'class' can't be the name of a variable") {
		t.Errorf("a keyword: %s", got)
	}
	if got, _ := w.call("rlm_load", map[string]any{"path": filepath.Join(within, "link"), "var_name": "v"}); !strings.Contains(got, "a link leads out of the folder that may be read") {
		t.Errorf("a link: %s", got)
	}
	for args, says := range map[string]string{
		`{}`:                            "the argument code is missing",
		`{"code": "1", "timout": 3}`:    `exec has no argument "timout"; it has code, timeout`,
		`{"code": "1", "timeout": "5"}`: "timeout must be a number, and is a string",
	} {
		var given map[string]any
		if err := json.Unmarshal([]byte(args), &given); err != nil {
			t.Fatal(err)
		}
		if got, res := w.call("rlm_exec", given); !res.IsError || !strings.Contains(got, says) {
			t.Errorf("%s: %s", args, got)
		}
	}
	for _, name := range []string{"print", "llm_query", "__builtins__"} {
		if got, res := w.call("rlm_load", map[string]any{"path": filepath.Join(dir, "a"), "var_name": name}); !res.IsError || !strings.Contains(got, "choose another name") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := w.exec("llm_query_batch('abc')"); !strings.Contains(got, "takes a list of prompts") {
		t.Errorf("a prompt that is no list: %s", got)
	}
	got := w.exec("import nothing_of_that_name.part")
	testkit.Has(t, "a package", got, "ModuleNotFoundError", "add nothing_of_that_name to settings.packages of the server rlm")
}

// Saving takes no memory of the size of what is saved: a kernel may use most of what it
// may have.
func TestSavedInPlace(t *testing.T) {
	w := newWorld(t, map[string]any{"save": "1s"})
	const peak = "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10" // in MiB
	before, err := strconv.Atoi(w.exec("import resource, threading\nx, y, lock = bytearray(200 << 20), b'y' * (100 << 20), threading.Lock()\n" + peak))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "variables are saved", func() bool {
		info, err := os.Stat(filepath.Join(w.spec.State, body.State, "saved"))
		return err == nil && info.Size() > 300<<20
	})
	after, err := strconv.Atoi(w.exec(peak))
	if err != nil || after > before+50 {
		t.Errorf("it had %d MiB, and %d when it was saved: %v", before, after, err)
	}
	if left, err := filepath.Glob(filepath.Join(w.spec.State, body.State, "*.part")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A save with which kernels end, as one does that needs too much memory, is not read for
// ever: that is told, and the kernel works.
func TestSavedIsTooLarge(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("import os\nclass Ends:\n    def __reduce__(self): return eval, ('__import__(\"os\").kill(__import__(\"os\").getpid(), 9)',)\ne = Ends()")
	w.stop()
	for n := range 2 {
		inst, err := w.d.Start(t.Context(), w.spec)
		if err != nil {
			t.Fatal(err)
		}
		link, err := inst.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = New(Env{Server: "rlm", Settings: w.set, Body: &driver.Body{Instance: inst, Stream: link.Stream, Fresh: true}, Log: w.spec.Log})
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("start %d: %v", n, err)
		}
		if err := inst.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	w.start()
	told, res := w.call("rlm_exec", map[string]any{"code": "1"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", told)
	}
	testkit.Has(t, "what is told", told, "2 kernels ended while they read it")
	w.is("1 + 1", "2")
}

// What a function changed has no name that is seen, and its loss is told all the same.
func TestLostThroughAFunction(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("l = [1]\ndef add(): l.append(2)\n")
	w.stop()
	w.start()
	w.exec("add()")
	got, res := w.call("rlm_exec", map[string]any{"code": "import os; os._exit(3)"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what is told", got, "variables are as they were saved", "what functions and threads changed since")
	w.is("l", "[1]")
}

// A list of variables that was interrupted is no empty one.
func TestVarsThatAreInterrupted(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("class C:\n    def __repr__(self): raise KeyboardInterrupt\nc = C()")
	if got, res := w.call("rlm_vars", nil); !res.IsError || !strings.Contains(got, "interrupted") {
		t.Errorf("it says %s", got)
	}
}

// Functions and classes of all kinds come back, with what refers to them.
func TestSavedKinds(t *testing.T) {
	w := newWorld(t, nil)
	w.exec(`
import abc, collections, dataclasses, enum, functools, typing
@dataclasses.dataclass(order=True)
class D:
    x: int
    tags: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass
class E(D):
    y: "int" = 2
class Color(enum.Enum):
    RED = 1
    BLUE = enum.auto()
    CRIMSON = 1
    def shout(self): return self.name + "!"
class Size(str, enum.Enum):
    S = "small"
class Planet(enum.Enum):
    EARTH = (3, 5)
    def __init__(self, mass, radius): self.mass = mass
class Mode(enum.IntFlag):
    R = 4
    W = 2
P = collections.namedtuple("P", "a b", defaults=[7])
class Q(typing.NamedTuple):
    a: int
    b: str = "q"
    def twice(self): return self.a * 2
class Base(abc.ABC):
    kept = []
    def __init__(self, n): self.n = n
    @abc.abstractmethod
    def go(self): ...
class Sub(Base):
    def __init__(self, n):
        super().__init__(n)
    def go(self): return self.n
    @staticmethod
    def s(): return "static"
    @classmethod
    def c(cls): return cls.__name__
    @property
    def p(self): return -self.n
    @functools.cached_property
    def slow(self): return self.n * 10
class Slots:
    __slots__ = ("v",)
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, v): self.v = v
class Wrong(ValueError): pass
@functools.lru_cache(maxsize=5)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def counter():
    n = 0
    def up():
        nonlocal n
        n += 1
        return n
    return up, lambda: n
up, now = counter()
up()
def noted(a: int, *, b: "str" = "x") -> float: "Says."; return a
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
Base.kept.append(Sub)
d, e, sub, slots = D(1, ["a"]), E(1), Sub(4), Slots()
slots.v = 9
all = [D(3), D(2)]
alias = all
both = {Color.BLUE: P(1), Size.S: Q(5)}
box, wrong = Box(1), Wrong("w")
`)
	w.stop()
	w.start()
	for code, want := range map[string]string{
		"d, sorted(all)[0].x, alias is all, D(5), dataclasses.replace(d, x=8).x":                                  "(D(x=1, tags=['a']), 2, True, D(x=5, tags=[]), 8)",
		"e, e == E(1), [f.name for f in dataclasses.fields(E)]":                                                   "(E(x=1, tags=[], y=2), True, ['x', 'tags', 'y'])",
		"Color(1) is Color.RED is Color.CRIMSON, Color.RED.shout(), both[Color.BLUE], len(Color)":                 "(True, 'RED!', P(a=1, b=7), 2)",
		"Size.S == 'small', both[Size.S].twice(), Q(1), Planet.EARTH.mass, Planet((3, 5)).name, Mode(6)":          "(True, 10, Q(a=1, b='q'), 3, 'EARTH', <Mode.R|W: 6>)",
		"sub.go(), Sub.s(), sub.c(), sub.p, sub.slow, sub.__dict__['slow'], Sub.kept[0] is Sub, type(sub) is Sub": "(4, 'static', 'Sub', -4, 40, 40, True, True)",
		"slots.v, hasattr(slots, '__dict__'), box.v, Box[int], str(wrong), isinstance(wrong, ValueError)":         "(9, False, 1, __main__.Box[int], 'w', True)",
		"fib(30), fib.cache_info().maxsize, up(), now(), even(10)":                                                "(832040, 5, 2, 2, True)",
		"noted.__annotations__, noted.__kwdefaults__, noted.__doc__, noted(1)":                                    "({'a': <class 'int'>, 'b': 'str', 'return': <class 'float'>}, {'b': 'x'}, 'Says.', 1)",
	} {
		w.is(code, want)
	}
	got, res := w.call("rlm_exec", map[string]any{"code": "Base(1)"})
	if !res.IsError || !strings.Contains(got, "abstract") {
		t.Errorf("an abstract class: %s", got)
	}
}

// Of a save of another Python the data comes back, and its code when that Python does. What
// got a value meanwhile keeps it.
func TestSavedByAnotherPython(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("def f(): return 1\nclass C:\n    def m(self): return 2\nc, data, g, h = C(), {'a': [1]}, f, lambda: 3")
	file := filepath.Join(w.spec.State, body.State, "saved")
	python := func(change func([]any) []any) {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := binary.BigEndian.Uint32(data)
		var head map[string]any
		if err := json.Unmarshal(data[4:4+n], &head); err != nil {
			t.Fatal(err)
		}
		head["python"] = change(head["python"].([]any))
		text, err := json.Marshal(head)
		if err != nil {
			t.Fatal(err)
		}
		data = append(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), data[4+n:]...)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	python(func([]any) []any { return []any{2, 7} })
	w.start()
	got, res := w.call("rlm_exec", map[string]any{"code": "data"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what is not back", got, "kept until it can be", "f (it is code of Python 2.7)", "c (it is code")
	w.is("data, 'f' in globals()", "({'a': [1]}, False)")
	w.exec("h = 'new'")
	w.stop()
	// The Python of that save is back.
	held, err := filepath.Glob(file[:len(file)-len("saved")] + "held-*[0-9]")
	if err != nil || len(held) != 1 {
		t.Fatalf("held are %v, %v", held, err)
	}
	last := file
	file = held[0]
	python(func([]any) []any { return versionOf(t, last) })
	w.start()
	w.is("f(), c.m(), g is f, h", "(1, 2, True, 'new')")
	if held, _ := filepath.Glob(last[:len(last)-len("saved")] + "held-*"); len(held) > 0 {
		t.Errorf("held are still %v", held)
	}
}

// versionOf is that of the Python that made a save.
func versionOf(t *testing.T, file string) []any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var head struct{ Python []any }
	if err := json.Unmarshal(data[4:4+binary.BigEndian.Uint32(data)], &head); err != nil {
		t.Fatal(err)
	}
	return head.Python
}

// The lines of functions that are back are not those of newer code.
func TestSavedLines(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("def bad(n):\n    y = n + 1\n    return y / 0")
	w.stop()
	w.start()
	w.exec("# another\nz = 'harmless'\nprint('another line')")
	got, _ := w.call("rlm_exec", map[string]any{"code": "bad(1)"})
	testkit.Has(t, "the traceback", got, "ZeroDivisionError", "line 3, in bad")
	testkit.Lacks(t, "the traceback", got, "another line")
}

// Code that is interrupted because its client has left is told to the next one.
func TestCutIsTold(t *testing.T) {
	w := newWorld(t, nil)
	w.made.kernel.left = func() bool { return true }
	mark := filepath.Join(t.TempDir(), "runs")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = w.client.CallTool(ctx, &mcp.CallToolParams{Name: "rlm_exec", Arguments: map[string]any{"code": fmt.Sprintf("part = 1; open(%q, 'w')\nwhile True: pass", mark)}})
	}()
	testkit.Eventually(t, "it runs", func() bool { _, err := os.Stat(mark); return err == nil })
	cancel()
	testkit.Within(t, "the call", over)
	w.stop()
	w.start()
	got, res := w.call("rlm_exec", map[string]any{"code": "part"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what was cut off", got, "code was interrupted", "part = 1; open(")
	w.is("part", "1")
	w.stop()
	w.start()
	w.is("part", "1")
}

// A value that can't be made again costs itself and what refers to it, and no more.
func TestSavedThatBreaks(t *testing.T) {
	w := newWorld(t, nil)
	w.exec(`
class MyErr(Exception):
    def __init__(self, code, msg):
        super().__init__(msg)
        self.code = code
class Twice(Exception):
    def __init__(self, n): super().__init__("E%s" % n)
import os, re, datetime, decimal
class Breaks:
    def __reduce__(self): return (int, ("no number",))
class Unfilled:
    def __init__(self): self.x = 1
    def __setstate__(self, state): raise KeyError("state")
err, twice, gone, b, u = MyErr(7, "bad"), Twice(5), OSError(2, "no file"), Breaks(), Unfilled()
decode = None
try: b"\xff".decode()
except UnicodeDecodeError as e: decode = e
holds, q = [b], [1, {2: 3}]
pattern, when, price = re.compile("a+"), datetime.datetime(2026, 1, 2), decimal.Decimal("1.50")
`)
	w.stop()
	w.start()
	got, res := w.call("rlm_exec", map[string]any{"code": "q"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what is not back", got, "b (ValueError: invalid literal", "holds (ValueError", "u (KeyError")
	w.is("q, err.code, err.args, str(err), twice.args, gone.errno, decode.reason", "([1, {2: 3}], 7, ('bad',), 'bad', ('E5',), 2, 'invalid start byte')")
	w.is("pattern.findall('baac'), when.year, price + 1, 'holds' in globals()", "(['aa'], 2026, Decimal('2.50'), False)")
}
