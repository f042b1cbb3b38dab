//go:build linux && (amd64 || arm64)

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// A kernelWay is one way to run the kernel of rlm.
type kernelWay struct {
	name string
	yaml string // of its entry, after builtin
	*gateway
	c *client.Client
	// files is a folder of the host that may be loaded from.
	files string
}

// onKernels runs a test with a kernel in a sandbox, and in a container.
func onKernels(t *testing.T, f func(t *testing.T, k *kernelWay)) {
	begin := func(t *testing.T, name, yaml string) *kernelWay {
		k := &kernelWay{name: name, yaml: yaml, files: t.TempDir()}
		k.gateway = startGateway(t, fmt.Sprintf("servers:\n  rlm:\n    builtin: rlm\n    connect_timeout: 5m\n    settings: {allow_read: [%q]}\n%s", k.files, yaml))
		k.c = k.client(t)
		return k
	}
	t.Run("sandbox", func(t *testing.T) {
		t.Parallel()
		f(t, begin(t, "sandbox", ""))
	})
	onEngines(t, oneEngine, func(t *testing.T, e *engine) {
		var id string
		e.sweepAfter(t, &id)
		k := begin(t, "docker", fmt.Sprintf("    docker: {host: %q, image: %q, pull: never}\n", e.host, imageServers))
		id = gatewayID(t, k.gateway)
		f(t, k)
	})
}

// run has code run in a session's kernel.
func (k *kernelWay) run(t testing.TB, session, code string) string {
	t.Helper()
	return mustUse(t, k.c, session, "rlm_exec", object{"code": code, "timeout": 120})
}

func (k *kernelWay) is(t testing.TB, session, code, want string) {
	t.Helper()
	if got := k.run(t, session, code); got != want {
		t.Errorf("%s: %s gives %q, want %q", k.name, code, got, want)
	}
}

// loses holds that one call says that variables are gone, and names them.
func (k *kernelWay) loses(t testing.TB, session string, names ...string) {
	t.Helper()
	_, err := use(t.Context(), k.c, session, "rlm_exec", object{"code": "1"})
	if !failsAs(err, api.KindLost) {
		t.Errorf("%s: no loss is told: %v", k.name, err)
		return
	}
	testkit.Has(t, "the loss", err.Error(), names...)
}

// failsAs reports whether an error is of a kind.
func failsAs(err error, kind api.Kind) bool {
	e := kindOf(err)
	return e != nil && e.Kind == kind
}

// TestKernel goes through what document 001 asks of the tools, by its numbers.
func TestKernel(t *testing.T) {
	t.Parallel()
	onKernels(t, func(t *testing.T, k *kernelWay) {
		s := openSession(t, k.c, api.NewSession{}).ID
		t.Run("AC-1 tools are listed, REQ-2 and nothing is started", func(t *testing.T) {
			out := k.mustTine(t, "tools", "--json", "--session", s)
			for _, tool := range []string{"rlm_exec", "rlm_load", "rlm_get", "rlm_vars", "rlm_reset"} {
				testkit.Has(t, "the list", out, `"`+tool+`"`)
			}
			if made, err := os.ReadDir(filepath.Join(k.state(), "instances")); err == nil && len(made) > 0 {
				t.Errorf("there are instances: %v", made)
			}
		})
		t.Run("AC-2 the first call starts a kernel, the next ones use it", func(t *testing.T) {
			k.is(t, s, "x = 1", "(no output)")
			if a, b := k.run(t, s, "import os; os.getpid()"), k.run(t, s, "os.getpid()"); a != b {
				t.Errorf("it was %s, and is %s", a, b)
			}
		})
		src := filepath.Join(k.files, "file.py")
		text := "print('é 😀')\n"
		if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run("AC-3 a file is loaded", func(t *testing.T) {
			want := fmt.Sprintf("Loaded %s into src (%d chars)", src, len([]rune(text)))
			if got := mustUse(t, k.c, s, "rlm.load", object{"path": src, "var_name": "src"}); got != want {
				t.Errorf("it says %s", got)
			}
			if _, err := use(t.Context(), k.c, s, "rlm_load", object{"path": "/etc/hostname", "var_name": "no"}); !failsAs(err, api.KindRefused) {
				t.Errorf("another file: %v", err)
			}
		})
		t.Run("AC-4 a variable is had, and a query of it", func(t *testing.T) {
			quoted, _ := json.Marshal(text)
			if got := mustUse(t, k.c, s, "rlm_get", object{"name": "src"}); got != string(quoted) {
				t.Errorf("it is %s", got)
			}
			if got := mustUse(t, k.c, s, "rlm_get", object{"name": "src", "query": "len(src)"}); got != fmt.Sprint(len([]rune(text))) {
				t.Errorf("its length is %s", got)
			}
		})
		t.Run("AC-5 variables are listed", func(t *testing.T) {
			testkit.Has(t, "the list", mustUse(t, k.c, s, "rlm_vars", object{}), "src: str = ", "x: int = 1")
		})
		t.Run("there is no network", func(t *testing.T) {
			got, err := use(t.Context(), k.c, s, "rlm_exec", object{"code": "import socket; socket.create_connection(('192.0.2.1', 80), 3)", "timeout": 20})
			if err == nil {
				t.Errorf("it says %s", got)
			}
		})
		t.Run("AC-7 a reset forgets", func(t *testing.T) {
			if got := mustUse(t, k.c, s, "rlm_reset", object{}); got != "Sandbox reset." {
				t.Errorf("it says %s", got)
			}
			if got := mustUse(t, k.c, s, "rlm_vars", object{}); got != "(no variables)" {
				t.Errorf("there are %s", got)
			}
		})
	})
}

// TestKernelNames holds that a tool that is hidden by one of its names can't be called by the
// other, and that nothing is started for that.
func TestKernelNames(t *testing.T) {
	t.Parallel()
	g := startGateway(t, `servers:
  rlm: {builtin: rlm, tools: {deny: [rlm_exec]}}
  lab: {builtin: rlm, tools: {deny: [rlm_exec, rlm_sub_agent]}}
  dots: {builtin: rlm, settings: {names: dots}, tools: {allow: [rlm.get]}}
`)
	c := g.client(t)
	s := openSession(t, c, api.NewSession{}).ID
	for _, tool := range []string{
		"rlm_exec", "rlm.exec", "exec", "lab__rlm_exec", "lab__rlm.exec", "lab__rlm.sub_agent",
		"dots__rlm_exec", "dots__rlm.exec", "dots__rlm_load",
	} {
		if got, err := use(t.Context(), c, s, tool, object{"code": "1"}); err == nil || !strings.Contains(err.Error(), "Unknown tool") {
			t.Errorf("%s: %q, %v", tool, got, err)
		}
	}
	if made, err := os.ReadDir(filepath.Join(g.state(), "instances")); err == nil && len(made) > 0 {
		t.Errorf("there are instances: %v", made)
	}
}

// TestKernelForks forks a kernel with much in it: children have it, and what they do
// stays theirs.
func TestKernelForks(t *testing.T) {
	t.Parallel()
	onKernels(t, func(t *testing.T, k *kernelWay) {
		s := openSession(t, k.c, api.NewSession{}).ID
		size := 200 << 20
		if k.name != "sandbox" {
			size = torture.Or(20<<20, size) // it is written and copied
		}
		k.run(t, s, fmt.Sprintf("import random\nbig = bytearray(%d)\nbig[-1] = 7\ndef f(): return len(big)\nrandom.seed(1)", size))
		k.run(t, s, "import threading\nlock = threading.Lock()")
		children := fork(t, k.c, s, 2)
		seen := map[string]bool{}
		for n, child := range children {
			if k.name != "sandbox" {
				k.loses(t, child.ID, "lock (TypeError")
			} else {
				k.is(t, child.ID, "type(lock).__name__", "'lock'")
			}
			k.is(t, child.ID, "f(), big[-1]", fmt.Sprintf("(%d, 7)", size))
			k.run(t, child.ID, fmt.Sprintf("big[-1] = %d", n+100))
			if k.name == "sandbox" {
				seen[k.run(t, child.ID, "random.random()")] = true
			}
		}
		if k.name == "sandbox" && len(seen) != len(children) {
			t.Errorf("siblings have the same random numbers: %v", seen)
		}
		k.is(t, s, "big[-1]", "7")
		for n, child := range children {
			k.is(t, child.ID, "big[-1]", fmt.Sprint(n+100))
		}
	})
}

// TestKernelAndGateway ends the gateway in order, and not: the next one goes on with
// the kernel.
func TestKernelAndGateway(t *testing.T) {
	t.Parallel()
	onKernels(t, func(t *testing.T, k *kernelWay) {
		s := openSession(t, k.c, api.NewSession{}).ID
		k.run(t, s, "x = 1\nf = open('/proc/self/status')")
		again := func() {
			t.Helper()
			if err := k.start(); err != nil {
				t.Fatal(err)
			}
			k.c = k.client(t)
		}
		k.kill()
		again()
		k.is(t, s, "x, f.closed", "(1, False)")
		if _, err := k.stop(); err != nil {
			t.Fatal(err)
		}
		again()
		if k.name == "sandbox" {
			k.is(t, s, "x, f.closed", "(1, False)")
			return
		}
		if got, err := use(t.Context(), k.c, s, "rlm_exec", object{"code": "x"}); err == nil {
			if got != "1" {
				t.Errorf("the variable is %s", got)
			}
			return
		}
		k.is(t, s, "x", "1")
	})
}

// TestKernelEnds does what ends a kernel, and what should not: each is an error, and the
// next call works.
func TestKernelEnds(t *testing.T) {
	t.Parallel()
	onKernels(t, func(t *testing.T, k *kernelWay) {
		for name, code := range map[string]string{
			"loop":      "while True: pass",
			"exit":      "import os; os._exit(0)",
			"memory":    "x = []\nwhile True: x.append(bytearray(100 << 20)); [x[-1].__setitem__(i, 1) for i in range(0, 100 << 20, 4096)]",
			"fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: raise",
			"crash":     "import ctypes; ctypes.string_at(0)",
			"files":     "import shutil, sys, os\nfor d in [sys.argv[1], '/usr', '/home', '/tmp']: shutil.rmtree(d, ignore_errors=True)\n1/0",
			"secrets":   fmt.Sprintf("open(%q).read()", k.configPath()),
		} {
			if k.name != "sandbox" && torture.Or(true, false) && name != "exit" && name != "memory" {
				continue // what the kernel does is the same in both
			}
			t.Run(name, func(t *testing.T) {
				s := openSession(t, k.c, api.NewSession{}).ID
				k.run(t, s, "1")
				if got, err := use(t.Context(), k.c, s, "rlm_exec", object{"code": code, "timeout": 5}); err == nil {
					t.Errorf("it says %s", tail(got, 500))
				}
				next := func() (string, error) {
					return use(t.Context(), k.c, s, "rlm_exec", object{"code": "1 + 1"})
				}
				got, err := next()
				if err != nil && strings.Contains(err.Error(), "took more memory than") {
					got, err = next() // what the code left behind ended the kernel after its timeout
				}
				if failsAs(err, api.KindLost) {
					got, err = next() // the call before it told that a kernel had ended
				}
				if err != nil || got != "2" {
					t.Errorf("the next call: %q, %v", got, err)
				}
				if err := k.c.CloseSession(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run("prints", func(t *testing.T) {
			s := openSession(t, k.c, api.NewSession{}).ID
			lines := torture.Or(1<<16, 1<<20) // a gigabyte
			got := k.run(t, s, fmt.Sprintf("line = 'x' * 1023\nfor i in range(%d): print(line)", lines))
			testkit.Has(t, "the answer", got, fmt.Sprintf("[... cut: %d bytes in all", lines<<10))
			if len(got) > 50_000 {
				t.Errorf("it is %d bytes", len(got))
			}
		})
	})
}

// TestKernelRules holds rules about a tool for each of its names, and tells of a failed
// call by either name what failed.
func TestKernelRules(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers: {rlm: {builtin: rlm, driver: process, tools: {deny: [rlm_reset, rlm.vars]}}}\n")
	c := g.client(t)
	s := openSession(t, c, api.NewSession{}).ID
	for _, name := range []string{"rlm_reset", "rlm.reset", "reset", "rlm_vars", "rlm.vars", "vars"} {
		if got, err := use(t.Context(), c, s, name, object{}); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{"rlm_get", "rlm.get"} {
		if _, err := use(t.Context(), c, s, name, object{"name": "nothing"}); err == nil || !strings.Contains(err.Error(), "there is no variable") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
