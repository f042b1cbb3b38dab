//go:build linux

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

// A pipeClient speaks to tine stdio or tine rlm by hand, one request at a time.
type pipeClient struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan message // closed at the end of the output
	notes testkit.Log  // what came without being asked for
	next  int
}

// pipe runs tine stdio and shakes hands with it.
func pipe(t *testing.T, args ...string) *pipeClient {
	t.Helper()
	return pipeIn(t, t.TempDir(), args...)
}

// pipeIn does so in a folder.
func pipeIn(t *testing.T, dir string, args ...string) *pipeClient {
	t.Helper()
	cmd := exec.Command(tineBinary, append([]string{"stdio"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	return pipeTo(t, cmd)
}

// pipeTo runs a command that serves over stdio and shakes hands with it.
func pipeTo(t *testing.T, cmd *exec.Cmd) *pipeClient {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &pipeClient{cmd: cmd, in: in, lines: make(chan message)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m message
			if json.Unmarshal(line, &m) == nil && m.Method == "" {
				p.lines <- m
			} else {
				p.notes.Write(line)
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		for range p.lines { // answers that are no longer needed
		}
		<-read
		cmd.Wait()
	})
	if _, err := p.request("initialize", map[string]any{
		"protocolVersion": legacyVersion, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "e2e", "version": "1"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pipeClient) request(method string, params any) (json.RawMessage, error) {
	p.next++
	id := strconv.Itoa(p.next)
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(p.in, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+string(raw)+"}\n"); err != nil {
		return nil, err
	}
	for {
		select {
		case m, ok := <-p.lines:
			switch {
			case !ok:
				return nil, fmt.Errorf("tine %s ended before it answered %s", p.cmd.Args[1], method)
			case string(m.ID) != id:
				continue // a late answer to a call that was given up
			case m.Error != nil:
				return nil, m.Error
			}
			return m.Result, nil
		case <-time.After(patience):
			return nil, fmt.Errorf("tine %s does not answer %s", p.cmd.Args[1], method)
		}
	}
}

func (p *pipeClient) call(tool string, args map[string]any) (toolResult, error) {
	var r toolResult
	raw, err := p.request("tools/call", map[string]any{"name": tool, "arguments": args})
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, err
}

func (p *pipeClient) mustCall(t *testing.T, tool string, args map[string]any) string {
	t.Helper()
	r, err := p.call(tool, args)
	if err != nil || r.IsError {
		t.Fatalf("call %s: %q %v", tool, r.text(), err)
	}
	return r.text()
}

// leave ends the client as its user does: standard input ends.
func (p *pipeClient) leave(t *testing.T) {
	t.Helper()
	p.in.Close()
	for range p.lines {
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("tine %s ends with %v", p.cmd.Args[1], err)
	}
}

// TestStdioAlone runs tine stdio where no gateway runs: it is its own, and
// takes its servers along when it ends.
func TestStdioAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "tine.yaml")
	if err := os.WriteFile(config, []byte("servers:\n"+yamlServer("mine", badServer, nil)), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	p := pipe(t, "--config", config, "--state", state)
	if got := p.mustCall(t, "mine__echo", map[string]any{"text": "alone"}); got != "alone" {
		t.Errorf("echo answers %q", got)
	}
	p.leave(t)
	if left := holders(state); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}

	// Killed, it can't; the next one on the state folder does it.
	p = pipe(t, "--config", config, "--state", state)
	p.mustCall(t, "mine__echo", map[string]any{"text": "x"})
	p.cmd.Process.Kill()
	for range p.lines {
	}
	p.cmd.Wait()
	p = pipe(t, "--config", config, "--state", state)
	if got := p.mustCall(t, "mine__echo", map[string]any{"text": "again"}); got != "again" {
		t.Errorf("echo answers %q", got)
	}
	p.leave(t)
	if left := holders(state); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

// TestStdioKeepsLists has several tine stdio on their own list the tools of a server,
// one after another and at once: it is started for the first of them alone.
func TestStdioKeepsLists(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a, dir := newLister(t, "0", "one"), t.TempDir()
	config, state := filepath.Join(dir, "tine.yaml"), filepath.Join(dir, "state")
	if err := os.WriteFile(config, []byte("servers:\n"+a.yaml(program, "a")), 0o600); err != nil {
		t.Fatal(err)
	}
	list := func(p *pipeClient) {
		t.Helper()
		if raw, err := p.request("tools/list", map[string]any{}); err != nil || !strings.Contains(string(raw), `"a__one"`) {
			t.Errorf("lists %s, %v", raw, err)
		}
	}
	client := func(dir string) *pipeClient { return pipeIn(t, dir, "--config", config, "--state", state) }
	p := client(dir)
	list(p)
	p.leave(t)
	a.wantStarts(t, "for the first client", 1)
	p, other := client(dir), client(dir)
	list(p)
	list(other)
	p.leave(t)
	other.cmd.Process.Kill()
	p = client(dir)
	list(p)
	a.wantStarts(t, "for the others", 1)
	if got := p.mustCall(t, "a__one", map[string]any{}); got != "this is one" {
		t.Errorf("a call answers %q", got)
	}
	p.leave(t)
	a.wantStarts(t, "for a call", 2)
	// A program may list what it finds where it is started.
	p = client(t.TempDir())
	list(p)
	p.leave(t)
	a.wantStarts(t, "in another folder", 3)
}

// TestStdioSearches has two tools stand for all, in a gateway of its own and in one
// that runs.
func TestStdioSearches(t *testing.T) {
	t.Parallel()
	g := startGateway(t, patientLists+"servers:\n"+yamlServer("mine", badServer, nil))
	for _, args := range [][]string{{"--state", g.state()}, {"--state", t.TempDir(), "--alone", "--config", g.configPath()}} {
		p := pipe(t, append(args, "--view", "search")...)
		raw, err := p.request("tools/list", map[string]any{})
		var list struct{ Tools []struct{ Name string } }
		if err != nil || json.Unmarshal(raw, &list) != nil || len(list.Tools) != 2 {
			t.Fatalf("lists %s, %v", raw, err)
		}
		if got := p.mustCall(t, "search_tools", map[string]any{"query": "echo"}); !strings.Contains(got, `"mine__echo"`) {
			t.Errorf("found %s", got)
		}
		if got := p.mustCall(t, "call_tool", map[string]any{"name": "mine__echo", "arguments": map[string]any{"text": "found"}}); got != "found" {
			t.Errorf("echo answers %q", got)
		}
		p.leave(t)
	}
	if out, err := exec.Command(tineBinary, "stdio", "--view", "all").CombinedOutput(); err == nil || !strings.Contains(string(out), "search") {
		t.Errorf("--view all: %s %v", out, err)
	}
}

// TestStdioInASession joins a session of a name, by the URL of its endpoint and by a flag, and
// is refused where that is wrong.
func TestStdioInASession(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n  memory: {builtin: memory}\n")
	state := g.state()
	other := t.TempDir() // the state of no gateway
	entity := map[string]any{"entities": []any{map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"wrote the first program"}}}}
	p := pipe(t, "--state", other, "--url", g.url+"/mcp?session=work")
	p.mustCall(t, "memory__create_entities", entity)
	p.leave(t)
	for who, tt := range map[string]struct {
		args []string
		has  bool
	}{
		"a flag":            {[]string{"--state", state, "--session", "work"}, true},
		"a flag and a URL":  {[]string{"--state", other, "--url", g.url, "--session", "work"}, true},
		"a URL without one": {[]string{"--state", other, "--url", g.url}, false},
		"neither":           {[]string{"--state", state}, false},
		"another":           {[]string{"--state", state, "--session", "play"}, false},
	} {
		p := pipe(t, tt.args...)
		remembers(t, who, p.mustCall(t, "memory__read_graph", map[string]any{}), tt.has)
		p.leave(t)
	}
	for says, args := range map[string][]string{
		"it is called session":        {"--state", state, "--url", g.url + "/mcp?sesion=work"},
		"must be one name":            {"--state", other, "--url", g.url + "/mcp?session="},
		"must be a name":              {"--state", state, "--session", "a/b"},
		"ses_000000000000":            {"--state", state, "--session", "ses_000000000000"},
		"needs a running gateway":     {"--state", other, "--session", "work"},
		"there is no server \"none\"": {"--state", other, "--url", g.url + "/mcp/none"},
	} {
		cmd := exec.Command(tineBinary, append([]string{"stdio"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v, %s; want %s", args, err, out, says)
		}
	}
}

// TestStdioWithAToken joins as the principal of the token, and as no other.
func TestStdioWithAToken(t *testing.T) {
	t.Parallel()
	const uma = "uma-uma-uma-uma-uma-uma"
	g := startGateway(t, "auth:\n  tokens: [{name: uma, token: "+uma+"}]\n  rules:\n    - {principals: [uma], servers: [clock]}\nservers:\n  clock: {builtin: time}\n  memory: {builtin: memory}\n")
	for token, want := range map[string]bool{"": true, uma: false} {
		p := pipe(t, "--state", g.state(), "--token", token)
		list, err := p.request("tools/list", map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(string(list), "memory__"); has != want || !strings.Contains(string(list), "clock__") {
			t.Errorf("with the token %q it lists %.300s", token, list)
		}
		p.leave(t)
	}
	for says, args := range map[string][]string{
		"token":                   {"--state", g.state(), "--token", "somebody-else-entirely"},
		"needs a running gateway": {"--state", t.TempDir(), "--token", uma},
	} {
		cmd := exec.Command(tineBinary, append([]string{"stdio"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v, %s; want %s", args, err, out, says)
		}
	}
}

// TestStdioJoins lets two tine stdio join a running gateway, kills the gateway
// under them, and holds that both go on with their own servers.
func TestStdioJoins(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlServer("mine", badServer, nil)+yamlServer("ours", badServer, nil, "scope: shared"))
	ann, bob := pipe(t, "--state", g.state()), pipe(t, "--state", g.state())
	ann.mustCall(t, "mine__remember", map[string]any{"key": "k", "value": "ann"})
	bob.mustCall(t, "mine__remember", map[string]any{"key": "k", "value": "bob"})
	ann.mustCall(t, "ours__remember", map[string]any{"key": "k", "value": "both"})

	for round := range 2 {
		g.kill()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		for name, p := range map[string]*pipeClient{"ann": ann, "bob": bob} {
			if got := p.mustCall(t, "mine__recall", map[string]any{"key": "k"}); got != name {
				t.Errorf("round %d: the server of %s remembers %q", round, name, got)
			}
			if got := p.mustCall(t, "ours__recall", map[string]any{"key": "k"}); got != "both" {
				t.Errorf("round %d: the shared server remembers %q", round, got)
			}
		}
	}
	ann.leave(t)
	bob.leave(t)
	if err := eventually(func() error {
		if n := len(children(g)); n > 1 {
			return fmt.Errorf("%d children after both left, want the shared one alone", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
