//go:build unix

package e2e

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listServer is a server whose tools are the words of a file, and which writes a line
// to another one at every start. It begins slowly, as packages do that are fetched. While
// there is a file "mute" it does not list.
const listServer = `
import json, os, sys, time
folder = sys.argv[1]
open(folder + "/starts", "a").write("started\n")
time.sleep(float(open(folder + "/slow").read()))
tools = open(folder + "/tools").read().split()
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    a = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        a["result"] = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "lister", "version": "1"}, "instructions": "Call " + tools[0]}
    elif m["method"] == "tools/list" and os.path.exists(folder + "/mute"):
        continue
    elif m["method"] == "tools/list":
        a["result"] = {"tools": [{"name": t, "inputSchema": {"type": "object"}, "x": 12345678901234567890} for t in tools]}
    elif m["method"] == "tools/call" and m["params"]["name"] in tools:
        a["result"] = {"content": [{"type": "text", "text": "this is " + m["params"]["name"]}]}
    else:
        a["error"] = {"code": -32602, "message": "not known: " + m["method"]}
    print(json.dumps(a), flush=True)
`

type lister struct{ dir string }

func newLister(t *testing.T, slow string, tools ...string) *lister {
	l := &lister{t.TempDir()}
	l.write(t, "server.py", listServer)
	l.write(t, "slow", slow)
	l.write(t, "tools", strings.Join(tools, " "))
	return l
}

func (l *lister) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (l *lister) yaml(program, id string, more ...string) string {
	return yamlServer(id, program, []string{filepath.Join(l.dir, "server.py"), l.dir}, more...)
}

func (l *lister) starts() int {
	text, _ := os.ReadFile(filepath.Join(l.dir, "starts"))
	return strings.Count(string(text), "\n")
}

func (l *lister) wantStarts(t *testing.T, when string, want int) {
	t.Helper()
	if got := l.starts(); got != want {
		t.Errorf("%s the server was started %d times, want %d", when, got, want)
	}
}

// oneShot is a client that connects, lists and leaves.
func oneShot(ctx context.Context, g *gateway) ([]string, error) {
	s, err := open(ctx, g.url+"/mcp", nil)
	if err != nil {
		return nil, err
	}
	tools, err := s.tools(ctx)
	if err == nil {
		err = s.close(ctx)
	}
	slices.Sort(tools)
	return tools, err
}

func wantTools(t *testing.T, g *gateway, when string, want ...string) {
	t.Helper()
	if got, err := oneShot(t.Context(), g); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%s the tools are %q, %v; want %q", when, got, err, want)
	}
}

func (g *gateway) again(t *testing.T, end func()) {
	t.Helper()
	end()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
}

// TestFirstListsAreWhole has one-shot clients list as soon as a gateway serves: each
// of them sees every tool, and no server is started for them after it is known, not
// by a gateway that takes the place of one that was killed either.
func TestFirstListsAreWhole(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a, b := newLister(t, "2", "one", "two"), newLister(t, "0", "three")
	g := startGateway(t, "servers:\n"+a.yaml(program, "a")+b.yaml(program, "b", "tools: {rename: {three: drei}}"))
	all := []string{"a__one", "a__two", "b__drei"}
	errs := make(chan error, 3)
	for range cap(errs) { // all of them before it can be known
		go func() {
			got, err := oneShot(t.Context(), g)
			if err == nil && !slices.Equal(got, all) {
				err = fmt.Errorf("the tools are %q", got)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	wantTools(t, g, "later", all...)
	a.wantStarts(t, "for all lists", 1)
	b.wantStarts(t, "for all lists", 1)
	if err := eventually(func() error {
		if left := holders(g.state()); len(left) > 1 {
			return fmt.Errorf("processes %v use the state folder", left)
		}
		return nil
	}); err != nil {
		t.Errorf("a server that was only listed still runs: %v", err)
	}
	g.again(t, g.kill)
	wantTools(t, g, "after a kill", all...)
	a.wantStarts(t, "after a kill", 1)

	// It is started for a call, and a server's own view needs it no earlier.
	s := mustOpen(t, g.url+"/mcp/a")
	if got, err := s.tools(t.Context()); err != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("its own view has %q, %v", got, err)
	}
	a.wantStarts(t, "after its own view was listed", 1)
	if got := s.mustCall(t, "two", nil); got != "this is two" {
		t.Errorf("a call answers %q", got)
	}
	a.wantStarts(t, "after a call", 2)
	b.wantStarts(t, "at the end", 1)

	// Another spec is another server.
	g.writeConfig(t, "servers:\n"+a.yaml(program, "a", "env: {OTHER: yes}")+b.yaml(program, "b", "tools: {deny: [three]}"))
	if err := eventually(func() error {
		if got, err := oneShot(t.Context(), g); err != nil || !slices.Equal(got, all[:2]) {
			return fmt.Errorf("the tools are %q, %v", got, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	b.wantStarts(t, "after a change of what is shown of it", 1)
	if a.starts() < 3 {
		t.Error("what is kept of another spec was used")
	}
}

// listChanged opens a client's stream and gives nil once that says that tools changed.
func listChanged(t *testing.T, s *session) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = s.header.Clone()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("opening a stream: %v, %v", resp, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	heard := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
				heard <- nil
				return
			}
		}
		heard <- fmt.Errorf("the stream ended: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
	}()
	return heard
}

// TestDamagedListIsLearnedAgain flips what is kept of a server behind the gateway's back.
func TestDamagedListIsLearnedAgain(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a := newLister(t, "0", "one")
	g := startGateway(t, "servers:\n"+a.yaml(program, "a"))
	wantTools(t, g, "at first", "a__one")
	g.again(t, func() {
		g.stop()
		db, err := sql.Open("sqlite3", filepath.Join(g.state(), "tine.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("UPDATE server_lists SET data = CAST(replace(data, 'one', 'two') AS BLOB)"); err != nil {
			t.Fatal(err)
		}
	})
	wantTools(t, g, "after a damage", "a__one")
	a.wantStarts(t, "after a damage", 2)
	if log, err := os.ReadFile(g.logPath()); err != nil || !strings.Contains(string(log), "what is kept of a server's lists can't be read") {
		t.Errorf("%v, and the log is %s", err, log)
	}
}

// TestKeptListIsWrong changes the tools of a server that is known: the call of one that
// is gone says so, and the list is right from then on.
func TestKeptListIsWrong(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a := newLister(t, "0", "old", "stays")
	g := startGateway(t, "servers:\n"+a.yaml(program, "a"))
	wantTools(t, g, "at first", "a__old", "a__stays")
	a.write(t, "tools", "new stays")
	g.again(t, func() { g.stop() })

	s := mustOpen(t, g.url+"/mcp")
	if got, err := s.tools(t.Context()); err != nil || !slices.Equal(got, []string{"a__old", "a__stays"}) {
		t.Fatalf("what is kept is %q, %v", got, err)
	}
	a.wantStarts(t, "before a call", 1)
	other := mustOpen(t, g.url+"/mcp")
	if _, err := other.tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard, heardToo := listChanged(t, s), listChanged(t, other)
	_, err := s.call(t.Context(), "a__old", map[string]any{})
	if err == nil || !strings.Contains(err.Error(), "has it no longer") {
		t.Errorf("the call of a tool that is gone: %v", err)
	}
	for _, heard := range []<-chan error{heard, heardToo} {
		if err := <-heard; err != nil {
			t.Errorf("a client that has the old list is not told: %v", err)
		}
	}
	if got := s.mustCall(t, "a__stays", map[string]any{}); got != "this is stays" {
		t.Errorf("a call answers %q", got)
	}
	if got, err := s.tools(t.Context()); err != nil || !slices.Equal(got, []string{"a__new", "a__stays"}) {
		t.Errorf("while it runs the tools are %q, %v", got, err)
	}
	wantTools(t, g, "for another client", "a__new", "a__stays")
	g.again(t, func() { g.stop() })
	wantTools(t, g, "after a restart", "a__new", "a__stays")
	a.wantStarts(t, "at the end", 2)
}

// modernList is the answer to tools/list of a caller of 2026-07-28.
func (g *gateway) modernList(t *testing.T) []byte {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientInfo":{"name":"t","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, modernVersion)
	r, err := post(t.Context(), g.url+"/mcp", modernHeader("tools/list", ""), body)
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.answer()
	if err != nil || m.Error != nil || r.status != http.StatusOK {
		t.Fatalf("%v, %v", err, m.Error)
	}
	return m.Result
}

// TestLateServerIsNamed lists before a server can have answered: the list names it, may
// not be kept, and the log has it too.
func TestLateServerIsNamed(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a, b := newLister(t, "600", "one"), newLister(t, "0", "two")
	g := startGateway(t, "limits: {list_wait: 50ms}\nservers:\n"+a.yaml(program, "late")+b.yaml(program, "b"))
	result := g.modernList(t)
	var list struct {
		TTL  *int            `json:"ttlMs"`
		Meta json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(result, &list); err != nil || list.TTL == nil || *list.TTL != 0 || !strings.Contains(string(list.Meta), `"server":"late"`) {
		t.Errorf("a list without a server: %v, %s", err, result)
	}
	log, err := os.ReadFile(g.logPath())
	if err != nil || !strings.Contains(string(log), "a list goes out without a server") || !strings.Contains(string(log), "late") {
		t.Errorf("%v, and the log is %s", err, log)
	}
}
