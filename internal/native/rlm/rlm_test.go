//go:build unix

package rlm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/process"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a kernel that runs as a process, and a client of its front.
type world struct {
	t    *testing.T
	d    *process.Driver
	spec driver.Spec
	set  map[string]any

	private  []string // files that are the gateway's own
	readable func(server string) []string
	models   *Models

	inst   driver.Instance
	made   *server
	client *mcp.ClientSession
	server *mcp.ServerSession
	close  func()
	notes  chan string     // messages of progress
	ended  <-chan struct{} // closed when the front has let go of the kernel
}

func newWorld(t *testing.T, settings map[string]any) *world {
	t.Helper()
	return newWorldWith(t, settings, nil)
}

// newWorldWith is the same with language models, and with files that are the gateway's own.
func newWorldWith(t *testing.T, settings map[string]any, models *Models, private ...string) *world {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	state := t.TempDir()
	w := &world{t: t, d: process.New(process.Options{}), set: settings, models: models, private: private, notes: make(chan string, 1000)}
	w.spec = driver.Spec{
		Server: "rlm", Front: "rlm", State: state, Dir: filepath.Join(t.TempDir(), "instance"),
		Command: body.Front.Command, Args: append(append([]string{}, body.Front.Args...), "${state.rlm}"),
		Dirs: []driver.StateDir{{Name: body.State}}, Log: slog.New(slog.DiscardHandler),
	}
	if err := w.d.Seed(t.Context(), w.spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Cleanup(func() {
		w.stop()
		w.d.Close()
	})
	return w
}

// start runs a kernel on the state and puts a front before it.
func (w *world) start() {
	w.t.Helper()
	var err error
	if w.inst, err = w.d.Start(context.Background(), w.spec); err != nil {
		w.t.Fatal(err)
	}
	w.front(driver.Body{Fresh: true})
}

// front puts a front before the kernel that runs.
func (w *world) front(b driver.Body) {
	w.t.Helper()
	link, err := w.inst.Dial(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	w.ended = ended
	b.Instance, b.Stream = w.inst, &watched{Stream: link.Stream, ended: ended}
	srv, closer, err := New(Env{Server: "rlm", Settings: w.set, Models: w.models, Private: func() []string { return w.private }, Readable: w.readable, Body: &b, Log: w.spec.Log})
	if err != nil {
		w.t.Fatal(err)
	}
	w.made = closer.(*server)
	there, here := mcp.NewInMemoryTransports()
	w.server, err = srv.Connect(context.Background(), there, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { w.notes <- r.Params.Message },
	})
	if w.client, err = c.Connect(context.Background(), here, nil); err != nil {
		w.t.Fatal(err)
	}
	w.close = func() {
		w.client.Close()
		w.server.Wait()
		if err := closer.Close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
	}
}

// watched is a stream that says when it was read to its end.
type watched struct {
	driver.Stream
	ended chan struct{}
}

func (s *watched) ReadFrame() ([]byte, error) {
	frame, err := s.Stream.ReadFrame()
	if errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) {
		close(s.ended)
	}
	return frame, err
}

func (w *world) stop() {
	w.close()
	if err := w.inst.Stop(context.Background()); err != nil {
		w.t.Errorf("stop: %v", err)
	}
}

// call returns the text of a result, and its error where that is one of ours.
func (w *world) call(tool string, args map[string]any) (string, *mcp.CallToolResult) {
	w.t.Helper()
	res, err := w.client.CallTool(w.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		w.t.Fatalf("%s: %v", tool, err)
	}
	var texts []string
	for _, c := range res.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n"), res
}

func (w *world) exec(code string) string {
	w.t.Helper()
	out, _ := w.call("rlm_exec", map[string]any{"code": code})
	return out
}

func (w *world) is(code, want string) {
	w.t.Helper()
	if got := w.exec(code); got != want {
		w.t.Errorf("%s\ngives %q, want %q", code, got, want)
	}
}

func kindOf(t *testing.T, res *mcp.CallToolResult) api.Kind {
	t.Helper()
	raw, err := json.Marshal(res.Meta[wire.MetaTineError])
	var e api.Error
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil {
		t.Errorf("no error of ours: %v", err)
	}
	return e.Kind
}

func TestExec(t *testing.T) {
	w := newWorld(t, nil)
	w.is("x = 41", "(no output)")
	w.is("x + 1", "42")
	w.is("print('one'); 'two'", "one\n'two'")
	w.is("import sys; print('out'); print('err', file=sys.stderr); 3", "out\n3\n[stderr] err")
	w.is("print('é 😀 日本'); 'é😀'", "é 😀 日本\n'é😀'")
	w.is("import asyncio\nawait asyncio.sleep(0.01)\nx", "41")
	w.is("import os\n_ = os.system('echo from a process')", "from a process")
	w.is("x;", "(no output)")
	testkit.Has(t, "what reads", w.exec("input()"), "EOFError")
	out, res := w.call("rlm_exec", map[string]any{"code": "def f():\n    return 1/0\nf()"})
	if !res.IsError {
		t.Error("an exception is no error")
	}
	testkit.Has(t, "the traceback", out, "ZeroDivisionError", "return 1/0", "<cell")
	testkit.Lacks(t, "the traceback", out, "<kernel>")
	w.is("x", "41")
	big := "y = '" + strings.Repeat("z", 3<<20) + "'\nlen(y)"
	w.is(big, fmt.Sprint(3<<20))
}

func TestNames(t *testing.T) {
	w := newWorld(t, map[string]any{"names": "dots"})
	list, err := w.client.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != len(tools) || !strings.HasPrefix(list.Tools[0].Name, "rlm.") {
		t.Errorf("listed: %v, %v", list, err)
	}
	if got, _ := w.call("rlm.exec", map[string]any{"code": "1+1"}); got != "2" {
		t.Errorf("it gives %q", got)
	}
	// The config maps what is called to what is listed, so that rules hold for both.
	for names, prefix := range map[string]string{"dots": "rlm.", "underscores": "rlm_", "": "rlm_"} {
		for name, want := range map[string]string{"rlm_exec": prefix + "exec", "rlm.exec": prefix + "exec", "exec": "exec", "rlm": "rlm", "rlmx": "rlmx"} {
			if got := body.Front.Tool(map[string]any{"names": names}, name); got != want {
				t.Errorf("with %q %s is %s, want %s", names, name, got, want)
			}
		}
	}
}

func TestOutputIsCut(t *testing.T) {
	w := newWorld(t, map[string]any{"output": 2000})
	for _, code := range []string{"for i in range(100000): print(i)", "print('x' * 10_000_000)", "print('😀' * 100_000)", "'y' * 1_000_000"} {
		got := w.exec(code)
		if weight(got) > 2400 {
			t.Errorf("%s gives %d characters", code, len(got))
		}
		testkit.Has(t, code, got, "[... cut: ", " in all; ")
	}
	got := w.exec("for i in range(100000): print(i)")
	testkit.Has(t, "both ends", got, "0\n1\n2\n", "99998\n99999")
	if got, _ := w.call("rlm_get", map[string]any{"name": "_output", "query": "_output[-6:]"}); got != `"99999\n"` {
		t.Errorf("the rest is %s", got)
	}
	if got, _ := w.call("rlm_get", map[string]any{"name": "_output", "query": "len(_output)"}); got != "588890" {
		t.Errorf("there are %s", got)
	}
}

func TestGetAndVars(t *testing.T) {
	w := newWorld(t, nil)
	if got, _ := w.call("rlm_vars", nil); got != "(no variables)" {
		t.Errorf("at first: %s", got)
	}
	w.exec("a = {'k': [1, 'é', None]}\nb = {1, 2}\n_hidden = 1\nsrc = 'abc'\nlong = 'x' * 1000")
	for _, tt := range []struct{ name, query, want string }{
		{"a", "", `{"k": [1, "é", null]}`},
		{"b", "", `{1, 2}`},
		{"src", "", `"abc"`},
		{"src", "len(src)", `3`},
		{"src", "src.upper()", `"ABC"`},
	} {
		args := map[string]any{"name": tt.name}
		if tt.query != "" {
			args["query"] = tt.query
		}
		if got, _ := w.call("rlm_get", args); got != tt.want {
			t.Errorf("%s %s: %s", tt.name, tt.query, got)
		}
	}
	got, res := w.call("rlm_get", map[string]any{"name": "nothing"})
	if !res.IsError || kindOf(t, res) != api.KindTool {
		t.Errorf("a variable that is not there: %s", got)
	}
	if got, res = w.call("rlm_get", map[string]any{"name": "a", "query": "a['x']"}); !res.IsError {
		t.Errorf("a query that fails: %s", got)
	}
	got, _ = w.call("rlm_vars", nil)
	testkit.Has(t, "the list", got, "a: dict = {'k': [1, 'é', None]}\n", "b: set = {1, 2}\n", "long: str = 'xxx", "src: str = 'abc'")
	testkit.Lacks(t, "the list", got, "_hidden", "llm_query")
	for line := range strings.Lines(got) {
		if _, summary, _ := strings.Cut(line, " = "); len(summary) > 101 {
			t.Errorf("a summary is %d characters", len(summary))
		}
	}
	w.exec("for i in range(100_000): globals()['v%d' % i] = i")
	got, _ = w.call("rlm_vars", nil)
	testkit.Has(t, "very many", got, "more]")
}

func TestTimeout(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("kept = 1")
	for _, code := range []string{"while True: pass", "import time; time.sleep(1000)", "import asyncio; await asyncio.sleep(1000)"} {
		got, res := w.call("rlm_exec", map[string]any{"code": "print('before')\n" + code, "timeout": 0.3})
		if !res.IsError || kindOf(t, res) != api.KindTimeout {
			t.Errorf("%s: %s", code, got)
		}
		testkit.Has(t, code, got, "before", "300ms", "variables are kept")
	}
	w.is("kept", "1")
	// What waits does not run yet.
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if got, _ := w.call("rlm_exec", map[string]any{"code": "import time; time.sleep(0.4); 'done'", "timeout": 1}); got != "'done'" {
				t.Errorf("one of three: %s", got)
			}
		})
	}
	wg.Wait()
	for _, bad := range []any{0, -1, 1e9} {
		if got, res := w.call("rlm_exec", map[string]any{"code": "1", "timeout": bad}); !res.IsError || kindOf(t, res) != api.KindInvalid {
			t.Errorf("timeout %v: %s", bad, got)
		}
	}
}

// What can't be interrupted, and what ends the interpreter, costs the variables that
// were not saved and no more.
func TestEnds(t *testing.T) {
	w := newWorld(t, nil)
	for _, tt := range []struct{ name, code, says string }{
		{"deaf", "x = 1\nsum(range(10**14))", "could not be interrupted"},
		{"exit", "import os; os._exit(3)", "exited with status 3"},
		{"kill", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed"},
		{"crash", "import ctypes; ctypes.string_at(0)", "signal 11"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.is("mine = 7", "(no output)")
			got, res := w.call("rlm_exec", map[string]any{"code": "import time\nprint('said', flush=True)\ntime.sleep(0.2)\n" + tt.code, "timeout": 1})
			if !res.IsError || kindOf(t, res) != api.KindLost {
				t.Errorf("it says %s", got)
			}
			testkit.Has(t, "it", got, "said", tt.says, "gone is what changed since, or may have: ", "mine")
			w.is("1 + 1", "2")
			if got := w.exec("mine"); !strings.Contains(got, "NameError") {
				t.Errorf("the variable is %s", got)
			}
		})
	}
	t.Run("between calls", func(t *testing.T) {
		w.exec("import threading, os, time\nkept = 1\nthreading.Timer(0.2, lambda: os._exit(1)).start()")
		testkit.Eventually(t, "it is told", func() bool {
			_, res := w.call("rlm_exec", map[string]any{"code": "1"})
			return res.IsError && kindOf(t, res) == api.KindLost
		})
		w.is("1 + 1", "2")
	})
}

func TestReset(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("x = 1")
	hangs, mark := make(chan *mcp.CallToolResult, 1), filepath.Join(t.TempDir(), "runs")
	go func() {
		_, res := w.call("rlm_exec", map[string]any{"code": fmt.Sprintf("open(%q, 'w')\nwhile True: pass", mark), "timeout": 60})
		hangs <- res
	}()
	testkit.Eventually(t, "it runs", func() bool { _, err := os.Stat(mark); return err == nil })
	if got, _ := w.call("rlm_reset", nil); got != "Sandbox reset." {
		t.Errorf("reset says %q", got)
	}
	res := testkit.Within(t, "the call that ran", hangs)
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("the call that ran: %v", res.Content)
	}
	if got := w.exec("x"); !strings.Contains(got, "NameError") {
		t.Errorf("the variable is %s", got)
	}
	// Nothing comes back later either.
	w.stop()
	w.start()
	if got, _ := w.call("rlm_vars", nil); got != "(no variables)" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestLateInterrupt interrupts workers that have just been started, as happens when the one
// before ended meanwhile.
func TestLateInterrupt(t *testing.T) {
	w := newWorld(t, nil)
	for range 10 {
		restarted := &call{over: make(chan struct{}), keepers: true}
		id, forget := w.made.kernel.begin(restarted)
		for _, what := range []string{"restart", "interrupt", "interrupt", "interrupt"} {
			if err := w.made.kernel.write(t.Context(), keeper{Keeper: what, ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Within(t, "the restart", restarted.over)
		forget()
		if err := w.made.ask1(t.Context(), w.made.restoring(), nil); err != nil {
			t.Fatal(err)
		}
		w.is("1 + 1", "2")
	}
}

func TestProgress(t *testing.T) {
	w := newWorld(t, nil)
	params := &mcp.CallToolParams{Name: "rlm_exec", Arguments: map[string]any{"code": "import time\nfor i in range(3):\n    print('step', i, flush=True)\n    time.sleep(0.4)"}}
	params.SetProgressToken("p")
	if _, err := w.client.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	var all string
	for len(w.notes) > 0 {
		all += <-w.notes
	}
	testkit.Has(t, "progress", all, "step 0", "step 1")
}

func TestLoad(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	w := newWorldWith(t, map[string]any{"allow_read": []any{dir, "/proc"}}, nil, filepath.Join(dir, "own"))
	put := func(at, content string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	src := put(filepath.Join(dir, "file.py"), "print('é 😀')\r\n")
	if got, _ := w.call("rlm_load", map[string]any{"path": src, "var_name": "src"}); got != fmt.Sprintf("Loaded %s into src (14 chars)", src) {
		t.Errorf("it says %s", got)
	}
	w.is("src", `"print('é 😀')\r\n"`)
	if got, _ := w.call("rlm_load", map[string]any{"path": put(filepath.Join(dir, "b.bin"), "\xff\x00\xfe"), "var_name": "b"}); !strings.HasSuffix(got, "(3 bytes)") {
		t.Errorf("bytes: %s", got)
	}
	w.is("b", `b'\xff\x00\xfe'`)
	if got, _ := w.call("rlm_load", map[string]any{"path": put(filepath.Join(dir, "empty"), ""), "var_name": "e"}); !strings.HasSuffix(got, "(0 chars)") {
		t.Errorf("an empty one: %s", got)
	}
	if left, err := os.ReadDir(filepath.Join(w.spec.State, body.State)); err != nil || len(left) > 1 { // the names that are newer
		t.Errorf("left: %v, %v", left, err)
	}
	secret := put(filepath.Join(outside, "secret"), "s")
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, name string
		kind       api.Kind
	}{
		{secret, "x", api.KindRefused},
		{filepath.Join(dir, "link"), "x", api.KindRefused},
		{dir + "/../" + filepath.Base(outside) + "/secret", "x", api.KindRefused},
		{put(filepath.Join(dir, ".env"), "KEY=1"), "x", api.KindRefused},
		{put(filepath.Join(dir, ".ssh", "config"), "x"), "x", api.KindRefused},
		{put(filepath.Join(dir, "own", "tine.yaml"), "x"), "x", api.KindRefused},
		{filepath.Join(dir, "nothing"), "x", api.KindTool},
		{dir, "x", api.KindInvalid},
		{"/proc/self/environ", "x", api.KindRefused},
		{"file.py", "x", api.KindInvalid},
		{src, "no name", api.KindInvalid},
	} {
		got, res := w.call("rlm_load", map[string]any{"path": tt.path, "var_name": tt.name})
		if !res.IsError || kindOf(t, res) != tt.kind {
			t.Errorf("%s: %s", tt.path, got)
		}
	}
	if got := w.exec("x"); !strings.Contains(got, "NameError") {
		t.Errorf("one of them was read: %s", got)
	}
	// A link may lead to what is allowed elsewhere.
	other := t.TempDir()
	w = newWorld(t, map[string]any{"allow_read": []any{dir, other}})
	if err := os.Symlink(put(filepath.Join(other, "data"), "12345"), filepath.Join(dir, "there")); err != nil {
		t.Fatal(err)
	}
	if got, _ := w.call("rlm_load", map[string]any{"path": filepath.Join(dir, "there"), "var_name": "x"}); !strings.HasSuffix(got, "(5 chars)") {
		t.Errorf("a link to another folder: %s", got)
	}
}

// Calls that wait while a worker ends hear of it, and run on no empty kernel.
func TestEndsUnderCalls(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("x = 1")
	if err := w.made.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				got, res := w.call("rlm_exec", map[string]any{"code": "x"})
				if lost := res.IsError && kindOf(t, res) == api.KindLost; got != "1" && !lost {
					t.Errorf("it says %s", got)
				}
			}
		})
	}
	for range 3 {
		w.call("rlm_exec", map[string]any{"code": "import os; os._exit(1)"})
	}
	wg.Wait()
	w.is("x", "1")
}

// Code that ran is answered as such, also where its kernel can't write down what changed.
func TestStateThatCanNotBeWritten(t *testing.T) {
	w := newWorld(t, nil)
	state := filepath.Join(w.spec.State, body.State)
	w.exec(fmt.Sprintf("import os; os.rename(%q, %q)", state, state+".away"))
	got, res := w.call("rlm_exec", map[string]any{"code": "y = 2\ny"})
	if res.IsError {
		t.Errorf("it fails: %s", got)
	}
	testkit.Has(t, "the answer", got, "2\n[warning] ", "No such file")
	if err := os.Rename(state+".away", state); err != nil {
		t.Fatal(err)
	}
	w.is("y", "2") // which writes it down
	w.kill()
	w.start()
	got, _ = w.call("rlm_exec", map[string]any{"code": "1"})
	testkit.Has(t, "the loss", got, "may have: ", "y")
}

// kill ends the kernel as a crash does: nothing is saved.
func (w *world) kill() {
	w.t.Helper()
	pid, err := strconv.Atoi(w.exec("import os; os.getppid()"))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	testkit.Within(w.t, "the end of the kernel", w.inst.Done())
	w.stop()
}

// A front that is made anew goes on with the kernel, whatever the one before it left.
func TestFrontsFollowEachOther(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("x = 1")
	link := func() driver.Stream {
		w.close()
		l, err := w.inst.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Stream
	}
	s := link()
	// One that was killed: it had sent code that never ends, and half a line.
	mark := filepath.Join(t.TempDir(), "runs")
	for _, frame := range []string{fmt.Sprintf(`{"id":1,"op":"exec","code":"open('%s', 'w')\nwhile True: pass"}`, mark), `{"id":2,"op":"ex`} {
		if err := s.WriteFrame(t.Context(), []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "it runs", func() bool { _, err := os.Stat(mark); return err == nil })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w.front(driver.Body{})
	got, res := w.call("rlm_exec", map[string]any{"code": "x"})
	if !res.IsError || kindOf(t, res) != api.KindLost {
		t.Errorf("it says %s", got)
	}
	testkit.Has(t, "what was cut off", got, "open(", "variables are as it left them")
	w.is("x + 1", "2")
	w.close()
	w.exec0("import random; random.seed(1)")
	w.front(driver.Body{Copy: true})
	if a := w.exec("random.seed(1); random.random()"); a == w.exec("random.random()") {
		t.Error("the generator stands still")
	}
}

// exec0 runs code through a front that is closed again.
func (w *world) exec0(code string) {
	w.t.Helper()
	w.front(driver.Body{})
	w.exec(code)
	w.close()
}

func TestSettings(t *testing.T) {
	for _, set := range []map[string]any{{"names": "x"}, {"output": 1}, {"save": "0s"}, {"nothing": 1}, {"allow_read": "x"}} {
		if _, _, err := New(Env{Settings: set}); err == nil {
			t.Errorf("%v is taken", set)
		}
	}
	srv, closer, err := New(Env{})
	if err != nil || srv == nil {
		t.Fatal(err)
	}
	if err := errors.Join(closer.Close(), closer.Close()); err != nil {
		t.Error(err)
	}
}

// A kernel that stands still is let go of, and one that is busy is not.
func TestHealth(t *testing.T) {
	before := healthEvery
	healthEvery = 300 * time.Millisecond
	defer func() { healthEvery = before }()
	w := newWorld(t, nil)
	w.is("import time; time.sleep(2); 'busy'", "'busy'")
	w.exec("import os, signal; keeper = os.getppid(); os.kill(keeper, signal.SIGSTOP)")
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(over)
		_, err := w.client.CallTool(ctx, &mcp.CallToolParams{Name: "rlm_exec", Arguments: map[string]any{"code": "1"}})
		if err == nil {
			t.Error("it was answered")
		}
	}()
	testkit.Within(t, "the end of the conversation", w.ended)
	cancel()
	testkit.Within(t, "the call", over)
}

// A branch has the variables of the kernel, and what it does is its own.
func TestBranches(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("x = [1]\nbig = 'y' * 10_000_000")
	k := w.made.kernel
	run := func(b *branch, timeout time.Duration, code string) (r ran, err error) {
		t.Helper()
		done, restarted, err := b.do(t.Context(), timeout, map[string]any{"op": "exec", "code": code}, nil)
		if restarted {
			return r, errors.New("it was ended")
		}
		if done != nil {
			if wrong := json.Unmarshal(done, &r); wrong != nil {
				t.Fatal(wrong)
			}
		}
		return r, err
	}
	value := func(b *branch, code string) string {
		t.Helper()
		r, err := run(b, time.Minute, code)
		if err != nil || r.Value == nil {
			t.Errorf("%s: %+v, %v", code, r, err)
			return ""
		}
		return *r.Value
	}
	var all []*branch
	for range 3 {
		b, err := k.fork(t.Context(), func(_ context.Context, e event) (any, error) { return "heard " + e.Prompt, nil })
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	var wg sync.WaitGroup
	for n, b := range all {
		wg.Go(func() {
			for i := range 20 {
				// Much is written by all of them at once, and no line is torn.
				if got := value(b, fmt.Sprintf("x.append(%d); print('z' * 100_000); llm_query('%d')", n, i)); got != fmt.Sprintf("'heard %d'", i) {
					t.Errorf("branch %d: %s", n, got)
				}
			}
			if got := value(b, "x[1:] == 20 * [x[1]], x[1], len(big)"); got != fmt.Sprintf("(True, %d, 10000000)", n) {
				t.Errorf("branch %d has %s", n, got)
			}
		})
	}
	w.is("x.append('mine'); x", "[1, 'mine']")
	wg.Wait()
	if r, err := run(all[0], 200*time.Millisecond, "while True: pass"); !errors.Is(err, context.DeadlineExceeded) || !r.Interrupted {
		t.Errorf("a loop: %+v, %v", r, err)
	}
	if got := value(all[0], "x[0]"); got != "1" {
		t.Errorf("afterwards there is %s", got)
	}
	if _, err := run(all[1], time.Minute, "import os; os._exit(1)"); !errors.As(err, new(*died)) {
		t.Errorf("one that ends: %v", err)
	}
	if _, err := run(all[2], 200*time.Millisecond, "sum(range(10**14))"); err == nil || err.Error() != "it was ended" {
		t.Errorf("one that hangs: %v", err)
	}
	for _, b := range all {
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	w.is("x", "[1, 'mine']")
}
