//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
)

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func decodeInto(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%w in %s", err, raw)
	}
	return nil
}

// tineWith runs a subcommand with something on its standard input. It returns
// all that it wrote.
func (g *gateway) tineWith(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tineBinary, append(args, "--state", g.state())...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), g.env...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g *gateway) mustTine(t testing.TB, args ...string) string {
	t.Helper()
	out, err := g.tineWith(t, "", args...)
	if err != nil {
		t.Fatalf("tine %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// show is a server as the command line shows it to programs.
func (g *gateway) show(t testing.TB, id string) api.Server {
	t.Helper()
	var s api.Server
	if err := decodeInto([]byte(g.mustTine(t, "servers", "show", id, "--json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestServersSetKeepsTheProgram changes a program's policy by the command line:
// the same process goes on, over crashes of the gateway too.
func TestServersSetKeepsTheProgram(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, nil, "timeout: 30s", "scope: shared")
	s := mustOpen(t, f.url+"/mcp/f")
	pid := s.mustCall(t, "plain", args("", "pid"))
	same := func(when string) {
		t.Helper()
		s := mustOpen(t, f.url+"/mcp/f")
		if got := s.mustCall(t, "plain", args("", "pid")); got != pid {
			t.Errorf("%s: process %s, want %s", when, got, pid)
		}
	}
	out := f.mustTine(t, "servers", "set", "f", "timeout=11s", "policy.retry.attempts=1", "policy.breaker.failures=9", "journal=meta", "tools.deny=[destroys]")
	for _, key := range []string{"timeout", "policy.retry.attempts", "policy.breaker.failures", "journal", "tools.deny"} {
		if !strings.Contains(out, key) {
			t.Errorf("tine servers set does not say that %s is set: %s", key, out)
		}
	}
	check := func(when string) {
		t.Helper()
		same(when)
		got := f.show(t, "f")
		if !got.Overridden || strings.Join(got.Overrides, " ") != "journal policy.breaker.failures policy.retry.attempts timeout tools.deny" {
			t.Errorf("%s: overrides %q", when, got.Overrides)
		}
		if got.Policy == nil || got.Policy.Timeout != "11s" || got.Policy.Retry != 1 || got.Policy.Breaker != 9 || got.Policy.Journal != "meta" {
			t.Errorf("%s: %+v", when, got.Policy)
		}
		if names, err := mustOpen(t, f.url+"/mcp/f").tools(t.Context()); err != nil || strings.Contains(strings.Join(names, " "), "destroys") {
			t.Errorf("%s: listed %q, %v", when, names, err)
		}
		text := f.mustTine(t, "servers", "show", "f")
		for _, want := range []string{"11s", "policy.retry.attempts", "tools.deny"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: tine servers show does not have %q:\n%s", when, want, text)
			}
		}
	}
	check("set")
	f.kill()
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	check("after kill -9 of the gateway")
	if _, err := f.stop(); err != nil {
		t.Fatal(err)
	}
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	pid = mustOpen(t, f.url+"/mcp/f").mustCall(t, "plain", args("", "pid")) // a stop ends programs
	check("after a stop of the gateway")

	for _, bad := range [][]string{
		{"servers", "set", "f", "timeout=soon"},
		{"servers", "set", "f", "policy.retry.attempts=many"},
		{"servers", "set", "f", "policy.retry.attempts=0", "timeout=5s"},
		{"servers", "set", "f", "policy.retry.atempts=2"},
		{"servers", "set", "f", "command=sh"},
		{"servers", "set", "f", "headers.X-Key=seen-by-all"},
		{"servers", "set", "f", "auth.client_secret=seen-by-all"},
		{"servers", "unset", "f", "policy.cache"},
		{"servers", "set", "nosuch", "timeout=5s"},
		{"servers", "reset", "nosuch"},
		{"servers", "header", "f", "X-Key", "seen-by-all"},
	} {
		out, err := f.tineWith(t, "value\n", bad...)
		if err == nil || strings.TrimSpace(out) == "" {
			t.Errorf("tine %s: went through: %s", strings.Join(bad, " "), out)
		}
		if len(bad) > 3 && bad[1] == "set" && bad[2] == "f" {
			key, _, _ := strings.Cut(bad[3], "=")
			if key = key[strings.LastIndex(key, ".")+1:]; !strings.Contains(out, key) {
				t.Errorf("tine %s: does not name %s: %s", strings.Join(bad, " "), key, out)
			}
		}
	}
	check("after what was refused")

	f.mustTine(t, "servers", "unset", "f", "policy", "tools")
	if got := f.show(t, "f"); strings.Join(got.Overrides, " ") != "journal timeout" || got.Policy.Retry != 3 || got.Policy.Breaker != 5 {
		t.Errorf("unset: %q, %+v", got.Overrides, got.Policy)
	}
	same("unset")
	f.mustTine(t, "servers", "reset", "f")
	if got := f.show(t, "f"); got.Overridden || got.Policy.Timeout != "30s" {
		t.Errorf("reset: %+v, %+v", got, got.Policy)
	}
	same("reset")
	f.mustTine(t, "servers", "disable", "f")
	if got := f.show(t, "f"); got.Enabled || got.State != api.StateDisabled || strings.Join(got.Overrides, " ") != "enabled" {
		t.Errorf("disabled: %+v", got)
	}
	if s, err := open(t.Context(), f.url+"/mcp/f", nil); err == nil {
		if _, err := s.tools(t.Context()); err == nil {
			t.Error("a server that is off has tools")
		}
	}
	f.mustTine(t, "servers", "enable", "f")
	if got := f.show(t, "f"); !got.Enabled {
		t.Errorf("enabled: %+v", got)
	}
	mustOpen(t, f.url+"/mcp/f").mustCall(t, "plain", args("", "on"))
}

// A keyed is an MCP server over HTTP that remembers the key it was last sent, and
// repeats it in errors.
type keyed struct {
	*httptest.Server
	mu  sync.Mutex
	key string
}

func newKeyed(t *testing.T) *keyed {
	k := &keyed{}
	k.Server = httptest.NewServer(http.HandlerFunc(k.serve))
	t.Cleanup(k.Close)
	return k
}

func (k *keyed) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.key
}

func (k *keyed) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	key := r.Header.Get("X-Key")
	k.mu.Lock()
	k.key = key
	k.mu.Unlock()
	result := `{}`
	switch {
	case m.Method == "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"keyed","version":"1"}}`
	case m.Method == "tools/list":
		result = `{"tools":[{"name":"works","inputSchema":{"type":"object"}},{"name":"fails","inputSchema":{"type":"object"}}]}`
	case m.Method == "tools/call" && m.Params.Name == "fails":
		http.Error(w, "the key "+key+" is not welcome", http.StatusBadGateway)
		return
	case m.Method == "tools/call":
		result = `{"content":[{"type":"text","text":"fine"}]}`
	case m.Method == "server/discover":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// TestServersHeader sets a key by the command line: the next call has it, it is
// kept, and it is shown nowhere.
func TestServersHeader(t *testing.T) {
	t.Parallel()
	const secret = "key-that-was-renewed-by-hand"
	up := newKeyed(t)
	g := startGateway(t, fmt.Sprintf("log: {level: debug}\nservers:\n  k:\n    url: %s/mcp\n    headers: {X-Key: key-of-the-config}\n    policy: {retry: off}\n", up.URL))
	call := func(when, want string) {
		t.Helper()
		mustOpen(t, g.url+"/mcp").mustCall(t, "k__works", map[string]any{})
		if got := up.last(); got != want {
			t.Errorf("%s: the server was sent %q, want %q", when, got, want)
		}
	}
	call("at first", "key-of-the-config")
	var shown bytes.Buffer
	out, err := g.tineWith(t, secret+"\n", "servers", "header", "k", "X-Key")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shown.WriteString(out)
	call("set", secret)
	r, err := mustOpen(t, g.url+"/mcp").call(t.Context(), "k__fails", map[string]any{})
	if err != nil || !r.IsError {
		t.Fatalf("%v, %+v", err, r)
	}
	shown.WriteString(r.text())
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	call("after a restart", secret)
	if got := g.show(t, "k"); strings.Join(got.Overrides, " ") != "headers.X-Key" {
		t.Errorf("overrides %q", got.Overrides)
	}
	if _, err := mustOpen(t, g.url+"/mcp").call(t.Context(), "k__fails", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"servers"}, {"servers", "--json"}, {"servers", "show", "k"}, {"servers", "show", "k", "--json"}, {"calls"}, {"calls", "--json"},
		{"calls", "--failed"}, {"config", "show", "--config", filepath.Join(g.dir, "tine.yaml")}, {"tools"},
	} {
		shown.WriteString(g.mustTine(t, args...))
	}
	log, err := os.ReadFile(g.logPath())
	if err != nil {
		t.Fatal(err)
	}
	shown.Write(log)
	if i := bytes.Index(shown.Bytes(), []byte(secret)); i >= 0 {
		t.Errorf("the key is shown: ...%s", shown.Bytes()[max(0, i-300):i+len(secret)])
	}
	g.mustTine(t, "servers", "header", "k", "X-Key", "--remove")
	call("removed", "key-of-the-config")
}
