//go:build unix

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts of testdata. Beside what testscript knows, they
// have:
//
//	gateway ARG...      run tine serve with the arguments until the script ends
//	                    or stops it; sets URL and HOSTPORT; its output is
//	                    appended to gateway.log. A second one comes back at the
//	                    same address
//	stop TERM|KILL      end it; after TERM the exit code has to be 0
//	until COMMAND...    run the command until it succeeds
//	badserver ARG...    run the server that misbehaves over HTTP; sets BADURL
//	envsubst FILE...    fill in the script's variables
//	line N NAME         set a variable to a line of the last standard output
func TestScripts(t *testing.T) {
	t.Parallel()
	var s scripts
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", strings.Join([]string{filepath.Dir(tineBinary), filepath.Dir(badServer), os.Getenv("PATH")}, string(os.PathListSeparator)))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_STATE_HOME", "")
			env.Setenv("XDG_CONFIG_HOME", "")
			env.Setenv("TINE_STATE", filepath.Join(env.WorkDir, "state"))
			env.Setenv("BADSERVER", badServer)
			return os.MkdirAll(filepath.Join(env.WorkDir, "home"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"gateway":   s.gateway,
			"stop":      s.stop,
			"until":     scriptUntil,
			"badserver": scriptBadServer,
			"envsubst":  scriptEnvsubst,
			"line":      scriptLine,
		},
	})
}

// scripts keeps the gateway of each running script, by the script's folder.
type scripts struct{ gateways sync.Map }

func (s *scripts) gateway(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("to see a gateway refuse to start, use exec tine serve")
	}
	g := &gateway{dir: ts.Getenv("WORK"), args: args, url: ts.Getenv("URL")}
	for _, name := range []string{"PATH", "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TINE_STATE", "MCP_REMOTE_SERVERS", "SECRET"} {
		g.env = append(g.env, name+"="+ts.Getenv(name))
	}
	ts.Check(g.start())
	s.gateways.Store(ts.Getenv("WORK"), g)
	ts.Defer(func() { g.end() })
	ts.Setenv("URL", g.url)
	ts.Setenv("HOSTPORT", strings.TrimPrefix(g.url, "http://"))
}

func (s *scripts) stop(ts *testscript.TestScript, neg bool, args []string) {
	v, ok := s.gateways.Load(ts.Getenv("WORK"))
	if !ok || len(args) != 1 || neg {
		ts.Fatalf("usage: stop TERM|KILL, after gateway")
	}
	g := v.(*gateway)
	switch args[0] {
	case "KILL":
		g.kill()
	case "TERM":
		code, err := g.stop()
		ts.Check(err)
		if code != 0 {
			ts.Fatalf("the gateway's exit code is %d", code)
		}
	default:
		ts.Fatalf("stop: unknown signal %s", args[0])
	}
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] until COMMAND...")
	}
	ts.Check(eventually(func() error {
		err := ts.Exec(args[0], args[1:]...)
		if neg && err == nil {
			return errors.New("the command still succeeds")
		}
		if neg {
			return nil
		}
		return err
	}))
}

func scriptBadServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("badserver can't be negated")
	}
	addr, err := freeAddress()
	ts.Check(err)
	cmd := exec.Command(badServer, append([]string{"-http", addr}, args...)...)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	ts.Check(accepts(addr))
	ts.Setenv("BADURL", "http://"+addr+"/mcp")
}

// scriptEnvsubst fills in what only the script knows; other ${...} are Tine's.
func scriptEnvsubst(ts *testscript.TestScript, neg bool, args []string) {
	for _, arg := range args {
		text := ts.ReadFile(arg)
		for _, name := range []string{"BADSERVER", "BADURL", "URL"} {
			text = strings.ReplaceAll(text, "${"+name+"}", ts.Getenv(name))
		}
		ts.Check(os.WriteFile(ts.MkAbs(arg), []byte(text), 0o644))
	}
}

func scriptLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: line N NAME")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	if n < 1 || n > len(lines) {
		ts.Fatalf("there is no line %d in %q", n, lines)
	}
	ts.Setenv(args[1], lines[n-1])
}
