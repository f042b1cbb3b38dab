//go:build linux && (amd64 || arm64)

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// The tools that document 001 asks for.
var rlmTools = []string{"exec", "load", "get", "vars", "sub_agent", "reset"}

// TestDocument001 goes through the requirements and acceptance criteria of document
// 001, by their numbers, with tine rlm. Each stands by itself.
func TestDocument001(t *testing.T) {
	t.Parallel()
	onRLM(t, func(t *testing.T, w *rlmWorld) {
		d := &document001{w: w}
		d.project = w.project(t, map[string]string{"file.py": "print('é 😀')\n", "binary": "\x00\xff\xfe\x80"})
		d.c = w.open(t, d.project)
		for _, part := range []struct {
			number string
			test   func(t *testing.T)
		}{
			{"REQ-1", d.stdio}, {"REQ-2", d.lazy}, {"REQ-3", d.lifecycle}, {"REQ-4", d.tools}, {"REQ-5", d.loads}, {"REQ-6", d.queries},
			{"REQ-7", d.noDocker}, {"REQ-8", d.confined},
			{"AC-1", d.discovered}, {"AC-2", d.firstCall}, {"AC-3", d.load}, {"AC-4", d.get}, {"AC-5", d.vars}, {"AC-6", d.subAgent},
			{"AC-7", d.reset}, {"AC-8", d.health}, {"AC-9", d.dockerMissing}, {"AC-10", d.denyRead},
		} {
			t.Run(part.number, part.test)
		}
		d.c.leave(t)
		w.nothing(t)
	})
}

// document001 is one way to run the kernel, with a client for what needs no other.
type document001 struct {
	w       *rlmWorld
	project string
	c       *rlmClient
}

func (d *document001) file(name string) string { return filepath.Join(d.project, name) }

func (d *document001) must(t *testing.T, tool string, args object) string {
	t.Helper()
	got, err := d.c.use(tool, args)
	if err != nil {
		t.Fatalf("%s: %s %v: %v", d.w.way, tool, args, err)
	}
	return got
}

func listed(t testing.TB, c *rlmClient) (names []string) {
	t.Helper()
	raw, err := c.request("tools/list", object{})
	var list struct {
		Tools []struct {
			Name, Description string
			InputSchema       struct{ Properties map[string]any }
		}
	}
	if err != nil || json.Unmarshal(raw, &list) != nil {
		t.Fatalf("tools/list: %s, %v", raw, err)
	}
	for _, tool := range list.Tools {
		if tool.Description == "" {
			t.Errorf("%s has no description", tool.Name)
		}
		names = append(names, tool.Name)
	}
	return names
}

// stdio: an MCP server over stdio, which writes nothing else to its standard output.
func (d *document001) stdio(t *testing.T) {
	if _, err := d.c.request("ping", object{}); err != nil {
		t.Errorf("ping: %v", err)
	}
	d.c.is(t, "import sys; print('out'); print('err', file=sys.stderr); 7", "out\n7\n[stderr] err")
	// What code prints is sent before it ends, to a client that asks for that.
	if _, err := d.c.request("tools/call", object{"name": "rlm_exec", "_meta": object{"progressToken": "mine"},
		"arguments": object{"code": "import time\nfor n in range(4):\n    print('step', n)\n    time.sleep(0.4)"}}); err != nil {
		t.Error(err)
	}
	testkit.Has(t, "the progress", d.c.notes.String(), `"notifications/progress"`, `"mine"`, "step 0")
	for line := range strings.Lines(d.c.notes.String()) {
		var m message
		if json.Unmarshal([]byte(line), &m) != nil || m.Method == "" {
			t.Errorf("standard output has %q", line)
		}
	}
}

// lazy: the first call of a tool starts the kernel, and nothing does before.
func (d *document001) lazy(t *testing.T) {
	w := rlmOf(t, d.w)
	c := w.open(t, d.project)
	if names := listed(t, c); len(names) == 0 {
		t.Error("no tools")
	}
	if got := w.count(); !maps.Equal(got, map[string]int{roleRLM: 1}) || len(w.kernels(t)) != 0 {
		t.Errorf("before the first call there are %v and the kernels %v", got, w.kernels(t))
	}
	c.is(t, "1 + 1", "2")
	if n := len(w.kernels(t)); n != 1 {
		t.Errorf("after the first call there are %d kernels", n)
	}
	c.leave(t)
	w.nothing(t)
}

// lifecycle: the kernel is started, restarted after a crash, and stopped.
func (d *document001) lifecycle(t *testing.T) {
	w := rlmOf(t, d.w)
	c := w.open(t, d.project)
	c.is(t, "x = 1; x", "1")
	for _, crash := range []string{"import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"} {
		if got, err := c.exec(crash); !failsAs(err, api.KindLost) {
			t.Errorf("%s: %q, %v", crash, got, err)
		}
		c.is(t, "x = 2; x", "2")
	}
	w.killKernel(t)
	c.loses(t, "gone", "x")
	c.is(t, "1 + 1", "2")
	c.leave(t)
	w.nothing(t)
}

// tools: the six, as rlm_exec and as rlm.exec.
func (d *document001) tools(t *testing.T) {
	c := d.w.open(t, d.w.project(t, nil), "--names", "dots")
	underscores, dots := listed(t, d.c), listed(t, c)
	for _, tool := range rlmTools {
		if !slices.Contains(underscores, "rlm_"+tool) || !slices.Contains(dots, "rlm."+tool) {
			t.Errorf("%s is missing in %v or %v", tool, underscores, dots)
		}
	}
	for _, name := range append(underscores, dots...) {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "rlm_"), "rlm.")
		if !slices.Contains(rlmTools, short) && short != "usage" {
			t.Errorf("there is a tool %s", name)
		}
	}
	for _, name := range []string{"rlm.exec", "rlm_exec"} {
		for _, c := range []*rlmClient{c, d.c} {
			if got, err := c.use(name, object{"code": "6 * 7"}); err != nil || got != "42" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
			if _, err := c.use(name, object{"code": "1/0"}); err == nil || !strings.Contains(err.Error(), "ZeroDivisionError") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	c.leave(t)
}

// loads: any one file of the host, as it is.
func (d *document001) loads(t *testing.T) {
	text := strings.Repeat("zwölf Boxkämpfer 🥊 \" ' \\ \r\n\t\u2028", torture.Or(50_000, 2_000_000))
	if err := os.WriteFile(d.file("long"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := d.must(t, "rlm_load", object{"path": d.file("long"), "var_name": "long"})
	if want := fmt.Sprintf("Loaded %s into long (%d chars)", d.file("long"), len([]rune(text))); got != want {
		t.Errorf("it says %.300q, want %q", got, want)
	}
	d.c.is(t, fmt.Sprintf("long == %q * %d", "zwölf Boxkämpfer 🥊 \" ' \\ \r\n\t\u2028", strings.Count(text, "🥊")), "True")
	d.must(t, "rlm_load", object{"path": d.file("binary"), "var_name": "data"})
	d.c.is(t, "data", `b'\x00\xff\xfe\x80'`)
	d.c.refuses(t, api.KindTool, "rlm_load", object{"path": d.file("*.py"), "var_name": "a"}, "*.py")
	d.c.refuses(t, api.KindInvalid, "rlm_load", object{"path": d.file("file.py"), "var_name": "not a name"}, "var_name")
	d.c.refuses(t, api.KindRefused, "rlm_load", object{"path": "/etc/hostname", "var_name": "a"}, "--allow-read /etc/hostname")
	d.c.is(t, "'a' in globals()", "False")
}

// queries: an expression, which is evaluated in the kernel and not on the host.
func (d *document001) queries(t *testing.T) {
	d.c.run(t, "rows = [{'n': 1}, {'n': 2}, {'n': 30}]\nclass Odd:\n    def __repr__(self): return '<odd>'\nodd = Odd()")
	for query, want := range map[string]string{
		"rows[-1]['n']":                 "30",
		"[r['n'] for r in rows]":        "[1,2,30]",
		"sum(r['n'] for r in rows) / 2": "16.5",
		"{'é': None}":                   `{"é":null}`,
		"odd":                           "<odd>",
		"__import__('os').path.exists('" + d.project + "')": "false",
	} {
		got := d.must(t, "rlm_get", object{"name": "rows", "query": query})
		if strings.ReplaceAll(got, " ", "") != want {
			t.Errorf("%s is %s, want %s", query, got, want)
		}
	}
	d.c.refuses(t, api.KindTool, "rlm_get", object{"name": "none"}, `"none"`)
	if got, err := d.c.use("rlm_get", object{"name": "rows", "query": "rows["}); err == nil {
		t.Errorf("a query that is none gives %s", got)
	}
}

// noDocker: --no-docker runs the kernel in a sandbox, whether there is a Docker or not.
func (d *document001) noDocker(t *testing.T) {
	w := rlmSandbox(t)
	w.env, w.engine = append(w.env, d.w.env...), d.w.engine
	w.env = append(w.env, "HOME="+w.home, "TINE_STATE="+w.state)
	c := w.open(t, d.project, "--no-docker")
	c.is(t, "1 + 1", "2")
	w.engine = nil // so that it is a sandbox that is looked for
	if n := len(w.kernels(t)); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	c.leave(t)
	w.nothing(t)
	cmd := w.command(d.project, "--no-docker", "--docker")
	if err := cmd.Run(); err == nil {
		t.Error("--no-docker and --docker go together")
	}
	testkit.Has(t, "the error", w.log.String(), "--no-docker", "exclude each other")
}

// dockerMissing: where Docker is missing, the tools work all the same, and what needs it says so.
func (d *document001) dockerMissing(t *testing.T) {
	w := rlmSandbox(t)
	for _, args := range [][]string{{"--no-docker"}, nil} {
		c := w.open(t, d.project, args...)
		c.is(t, "import os; os.getcwd() != "+fmt.Sprintf("%q", d.project), "True")
		for tool, in := range map[string]object{
			"rlm_load": {"path": d.file("file.py"), "var_name": "src"}, "rlm_get": {"name": "src"}, "rlm_vars": {}, "rlm_reset": {},
		} {
			if tool == "rlm_get" {
				c.run(t, "src = 1")
			}
			if _, err := c.use(tool, in); err != nil {
				t.Errorf("%v: %s: %v", args, tool, err)
			}
		}
		c.leave(t)
	}
	w.nothing(t)
	if d.w.engine == nil {
		return
	}
	w = rlmDocker(t, d.w.engine)
	nowhere := "unix://" + filepath.Join(w.home, "docker.sock")
	w.env = append(w.env, "DOCKER_HOST="+nowhere)
	c := w.open(t, d.project)
	_, err := c.exec("1")
	if e := kindOf(err); e == nil || e.Kind != api.KindInfrastructure {
		t.Errorf("without an engine: %v", err)
	} else {
		testkit.Has(t, "the error", err.Error(), nowhere)
	}
	c.leave(t)
}

// confined: tine rlm runs under seccomp, can gain no rights, and has no socket to a network.
func (d *document001) confined(t *testing.T) {
	d.c.run(t, "1")
	pid := d.c.cmd.Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "its status", string(status), "\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n")
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("threads: %v, %v", tasks, err)
	}
	for _, task := range tasks {
		if status, err := os.ReadFile(task); err == nil && !strings.Contains(string(status), "\nSeccomp:\t2\n") {
			t.Errorf("a thread is not confined: %s", status)
		}
	}
	// Of its own it has the helper as a child, and that alone.
	for _, p := range d.w.processes() {
		if parent := parentOf(p.pid); parent == pid && p.role != roleHelper {
			t.Errorf("it started %s %q", p.role, p.args)
		}
	}
}

func parentOf(pid int) (parent int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "PPid:\t%d", &parent)
	}
	return parent
}

// denyRead: places of keys are not read, whatever is allowed and by whichever way.
func (d *document001) denyRead(t *testing.T) {
	w := rlmOf(t, d.w)
	const secret = "the-secret-of-the-test"
	project := filepath.Join(w.home, "project")
	keys := []string{".ssh/id_ed25519", ".aws/credentials", ".gnupg/secring.gpg", ".config/gcloud/credentials.db", ".netrc", "project/.env"}
	if err := os.MkdirAll(project, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(w.home, key)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.home, key), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"notes.txt": "../.ssh/id_ed25519", "keys": "../.ssh", "env.txt": ".env", "home": w.home} {
		if err := os.Symlink(to, filepath.Join(project, link)); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{filepath.Join(project, "notes.txt"), filepath.Join(project, "keys/id_ed25519"), filepath.Join(project, "env.txt"),
		filepath.Join(project, "home/.ssh/id_ed25519"), project + "/../.ssh/id_ed25519", "/proc/self/environ", "/proc/1/environ",
		fmt.Sprintf("/proc/%d/root%s/.ssh/id_ed25519", os.Getpid(), w.home)}
	for _, key := range keys {
		paths = append(paths, filepath.Join(w.home, key))
	}
	for name, args := range map[string][]string{
		"a project below": {"--project", project}, "all that is the user's": {"--project", project, "--allow-read", w.home}, "the home itself": {"--project", w.home},
	} {
		c := w.open(t, project, args...)
		c.is(t, "1 + 1", "2")
		for _, path := range paths {
			c.refuses(t, api.KindRefused, "rlm_load", object{"path": path, "var_name": "stolen"})
		}
		if got := c.run(t, "'stolen' in globals()"); got != "False" {
			t.Errorf("%s: something was loaded", name)
		}
		c.is(t, fmt.Sprintf("import os; [p for p in [%q, %q] if os.path.exists(p)]", filepath.Join(w.home, ".ssh"), project), "[]")
		c.leave(t)
	}
	w.nothing(t)
}

// discovered: Claude Code finds the tools by a config.
func (d *document001) discovered(t *testing.T) {
	w := rlmOf(t, d.w)
	model := newScriptedModel(t, scriptedCall{"mcp__rlm__rlm_vars", object{}})
	said := w.claude(t, d.project, model.URL, "mcp__rlm__rlm_vars")
	for _, tool := range rlmTools {
		if !slices.Contains(model.tools(), "mcp__rlm__rlm_"+tool) {
			t.Errorf("%s was not offered to the model: %v", tool, model.tools())
		}
	}
	testkit.Has(t, "claude", said, "(no variables)")
	w.nothing(t)
}

// firstCall: the first call starts the kernel within five seconds, the next ones use it.
func (d *document001) firstCall(t *testing.T) {
	var took time.Duration
	for range 3 { // a machine that is busy with other tests gets another try
		w := rlmOf(t, d.w)
		c := w.open(t, d.project)
		began := time.Now()
		c.is(t, "mark = object(); 1", "1")
		took = time.Since(began)
		kernels, mark := w.kernels(t), c.run(t, "id(mark)")
		for range 3 {
			c.is(t, "id(mark)", mark)
		}
		if now := w.kernels(t); !slices.Equal(now, kernels) || len(now) != 1 {
			t.Errorf("the kernels were %v and are %v", kernels, now)
		}
		c.leave(t)
		if took < 5*time.Second {
			return
		}
	}
	t.Errorf("the first call takes %s", took)
}

func (d *document001) load(t *testing.T) {
	got := d.must(t, "rlm.load", object{"path": d.file("file.py"), "var_name": "src"})
	if want := fmt.Sprintf("Loaded %s into src (13 chars)", d.file("file.py")); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	d.c.is(t, "src", `"print('é 😀')\n"`)
}

func (d *document001) get(t *testing.T) {
	d.must(t, "rlm.load", object{"path": d.file("file.py"), "var_name": "src"})
	var value string
	if got := d.must(t, "rlm.get", object{"name": "src"}); json.Unmarshal([]byte(got), &value) != nil || value != "print('é 😀')\n" {
		t.Errorf("src is %s", got)
	}
	if got := d.must(t, "rlm.get", object{"name": "src", "query": "len(src)"}); got != "13" {
		t.Errorf("its length is %s", got)
	}
}

func (d *document001) vars(t *testing.T) {
	d.c.run(t, "number = 1\nlong = 'é' * 1000\nnested = {'a': [1, 2]}\n_hidden = 1\ndef f(): pass")
	got := d.must(t, "rlm.vars", object{})
	for _, line := range []string{"number: int = 1", "long: str = ", "nested: dict = {'a': [1, 2]}", "f: function = "} {
		testkit.Has(t, "the list", "\n"+got+"\n", "\n"+line)
	}
	testkit.Lacks(t, "the list", got, "_hidden")
	for line := range strings.Lines(got) {
		if _, summary, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " = "); !ok || len([]rune(summary)) > 100 {
			t.Errorf("the list has %q", line)
		}
	}
}

// subAgent: a language model works in the kernel until it submits, in both formats.
func (d *document001) subAgent(t *testing.T) {
	const key = "sk-a-key-that-stays-outside"
	for format, args := range map[string][]string{"anthropic": {"--model", "anthropic/scripted"}, "openai": {"--model", "scripted"}} {
		t.Run(format, func(t *testing.T) {
			code := func(text string) modeltest.Reply {
				return modeltest.Reply{Text: "I look.\n```python\n" + text + "\n```", Usage: modeltest.Usage{Input: 10, Output: 5}}
			}
			sees := func(r modeltest.Reply, has, lacks string) modeltest.Reply {
				r.Check = func(r modeltest.Request) error {
					if !strings.Contains(string(r.Body), has) || lacks != "" && strings.Contains(string(r.Body), lacks) {
						return fmt.Errorf("want %q and not %q in %s", has, lacks, r.Body)
					}
					if r.Key() != key {
						return fmt.Errorf("the key is %q", r.Key())
					}
					return nil
				}
				return r
			}
			s := modeltest.New(t,
				sees(code("print(len(log), log.count('ERROR'))\nimport os\nprint('key', [v for v in os.environ.values() if 'stays-outside' in v])"), "answer: int", "the end of the log"),
				sees(code("SUBMIT(answer='many')"), "4018 3", ""), // a wrong type goes back
				sees(code("said = llm_query('what is ' + log[-18:])"), "int", ""),
				sees(modeltest.Reply{Text: "an answer to the query", Usage: modeltest.Usage{Input: 3, Output: 2}}, "the end of the log", ""),
				sees(code("mine = 1\nSUBMIT(answer=log.count('ERROR'), why=said)"), "", ""))
			w := rlmOf(t, d.w)
			w.env = append(w.env, "THE_KEY="+key)
			url := map[string]string{"anthropic": s.URL, "openai": s.ChatURL}[format]
			c := w.open(t, d.project, append(args, "--base-url", url, "--key-env", "THE_KEY")...)
			c.run(t, "log = 'ERROR\\n' + 'x' * 3982 + 'ERROR\\n' + 'ERROR\\nthe end of the log'")
			got, err := c.use("rlm.sub_agent", object{"signature": "log, question -> answer: int, why",
				"inputs": object{"log": object{"$var": "log"}, "question": "how many?"}})
			if err != nil {
				t.Fatal(err)
			}
			var r struct {
				Result     object
				Trajectory []json.RawMessage
				Usage      map[string]float64
			}
			if err := json.Unmarshal([]byte(got), &r); err != nil {
				t.Fatalf("%v in %s", err, got)
			}
			if r.Result["answer"] != 3.0 || r.Result["why"] != "an answer to the query" || len(r.Result) != 2 {
				t.Errorf("the result is %v", r.Result)
			}
			if len(r.Trajectory) != 4 || r.Usage["input_tokens"] != 43 || r.Usage["output_tokens"] != 22 || r.Usage["llm_calls"] != 5 {
				t.Errorf("%d steps, usage %v", len(r.Trajectory), r.Usage)
			}
			testkit.Has(t, "the trajectory", got, `key []"`)
			c.is(t, "'mine' in globals(), 'question' in globals(), len(log)", "(False, False, 4018)")
			c.leave(t)
			w.nothing(t)
			testkit.Lacks(t, "standard error", w.log.String(), key)
		})
	}
	// Without a key it says what to set, and the rest works.
	_, err := d.c.use("rlm.sub_agent", object{"signature": "a -> b", "inputs": object{"a": "1"}})
	if !failsAs(err, api.KindRefused) || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
	d.c.is(t, "1 + 1", "2")
}

// reset: variables are gone, and with them what else a kernel has.
func (d *document001) reset(t *testing.T) {
	d.c.run(t, "import sys, threading\nx = 1\nsys.mark = 1\nthreading.Thread(target=threading.Event().wait, daemon=True, name='mine').start()")
	if got := d.must(t, "rlm.reset", object{}); got != "Sandbox reset." {
		t.Errorf("it says %q", got)
	}
	if got := d.must(t, "rlm.vars", object{}); got != "(no variables)" {
		t.Errorf("there are %s", got)
	}
	d.c.is(t, "import sys, threading; hasattr(sys, 'mark'), [t.name for t in threading.enumerate() if t.name == 'mine']", "(False, [])")
}

// health: a kernel that died is replaced, and one that hangs without a call too.
func (d *document001) health(t *testing.T) {
	w := rlmOf(t, d.w)
	c := w.open(t, d.project)
	c.is(t, "x = 1; x", "1")
	w.killKernel(t)
	c.loses(t, "gone", "x")
	c.is(t, "x = 2; x", "2")
	if torture.Or(true, false) {
		c.leave(t)
		w.nothing(t)
		return
	}
	// One that is busy for longer than a check is left alone.
	if got, err := c.use("rlm_exec", object{"code": "import time\nfor _ in range(40): time.sleep(1)\nx", "timeout": 50}); err != nil || got != "2" {
		t.Errorf("a long call: %q, %v", got, err)
	}
	// One that hangs is found while a call waits for it.
	if w.engine == nil {
		_, _ = c.exec("import os, signal; os.kill(os.getppid(), signal.SIGSTOP)") // the process that keeps it
	} else if err := syscall.Kill(w.kernels(t)[0], syscall.SIGSTOP); err != nil { // which there is the first, and can't be stopped from inside
		t.Fatal(err)
	}
	found := false
	for began := time.Now(); !found && time.Since(began) < 5*time.Minute; {
		_, err := c.exec("1")
		found = failsAs(err, api.KindLost)
	}
	if !found {
		t.Fatal("a kernel that hangs is never found")
	}
	if _, err := c.exec("1"); err != nil && !failsAs(err, api.KindLost) {
		t.Error(err)
	}
	c.is(t, "1 + 1", "2")
	c.leave(t)
	w.nothing(t)
}

// rlmOf is another world of the same way.
func rlmOf(t *testing.T, w *rlmWorld) *rlmWorld {
	t.Helper()
	if w.engine != nil {
		return rlmDocker(t, w.engine)
	}
	return rlmSandbox(t)
}
