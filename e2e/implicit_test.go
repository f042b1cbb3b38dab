//go:build unix

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func remembers(t *testing.T, who, text string, want bool) {
	t.Helper()
	if strings.Contains(text, "wrote the first program") != want {
		t.Errorf("%s remembers %s", who, text)
	}
}

// TestMemoryStays remembers something in one connection and asks for it in others, of
// both eras, after a restart, and in a session of a name, which has a memory of its own.
func TestMemoryStays(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "servers:\n  memory: {builtin: memory}\n"+yamlServer("own", program, []string{"-dir", "${state.data}"}, "state: [data]"))
	read := func(path string) string {
		t.Helper()
		s := mustOpen(t, g.url+path)
		defer s.close(t.Context())
		return s.mustCall(t, "memory__read_graph", map[string]any{})
	}
	s := mustOpen(t, g.url+"/mcp")
	s.mustCall(t, "memory__create_entities", map[string]any{"entities": []any{map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"wrote the first program"}}}})
	s.mustCall(t, "own__put", map[string]any{"key": "k", "value": "mine"})
	other := mustOpen(t, g.url+"/mcp")
	remembers(t, "another connection", other.mustCall(t, "memory__read_graph", map[string]any{}), true)
	if r, err := other.call(t.Context(), "own__all", map[string]any{}); err == nil && strings.Contains(r.text(), "mine") {
		t.Errorf("another connection has the program of the first: %s", r.text())
	}
	if err := s.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	remembers(t, "a connection after the first has left", read("/mcp"), true)
	r, err := post(t.Context(), g.url+"/mcp", modernHeader("tools/call", "memory__read_graph"), modernCall(1, "memory__read_graph", map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.answer()
	if err != nil {
		t.Fatal(err)
	}
	remembers(t, "a caller without a connection", string(m.Result), true)
	remembers(t, "a session of a name", read("/mcp?session=work"), false)
	named := mustOpen(t, g.url+"/mcp?session=work")
	named.mustCall(t, "own__put", map[string]any{"key": "k", "value": "named"})

	g.again(t, g.kill)
	remembers(t, "a connection after a kill", read("/mcp"), true)
	named = mustOpen(t, g.url+"/mcp?session=work")
	if got := named.mustCall(t, "own__all", map[string]any{}); !strings.Contains(got, "named") {
		t.Errorf("a session of a name has %q after a kill", got)
	}
	if r, err := post(t.Context(), g.url+"/mcp?session=a%2Fb", nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); err != nil || r.status != http.StatusBadRequest {
		t.Errorf("a session of a wrong name: %d, %v", r.status, err)
	}

	// What a connection sees is not all its own, and can't be forked as if it were.
	mustOpen(t, g.url+"/mcp")
	c, forked := g.client(t), false
	for one, err := range c.AllSessions(t.Context(), client.SessionQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if one.Kind != api.SessionClient {
			continue
		}
		forked = true
		if _, err := c.Fork(t.Context(), one.ID, api.ForkRequest{Count: 1}); err == nil || !strings.Contains(err.Error(), "is one connection's") {
			t.Errorf("a fork of one connection's session: %v", err)
		}
	}
	if !forked {
		t.Error("no connection has a session")
	}
}

// TestSharedConnections puts all connections into one session.
func TestSharedConnections(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "sessions: {implicit: shared}\nservers:\n"+yamlServer("own", program, []string{"-dir", "${state.data}"}, "state: [data]"))
	a, b := mustOpen(t, g.url+"/mcp"), mustOpen(t, g.url+"/mcp")
	a.mustCall(t, "own__put", map[string]any{"key": "k", "value": "ours"})
	if got := b.mustCall(t, "own__all", map[string]any{}); !strings.Contains(got, "ours") {
		t.Errorf("the other connection has %q", got)
	}
	c := g.client(t)
	all, err := c.Sessions(t.Context(), client.SessionQuery{})
	if err != nil || len(all.Sessions) != 1 {
		t.Fatalf("sessions: %+v, %v", all, err)
	}
	id := all.Sessions[0].ID
	if err := c.CloseSession(t.Context(), id); err == nil || !strings.Contains(err.Error(), "while others are connected") {
		t.Errorf("closing what others use: %v", err)
	}
	for _, s := range []*session{a, b} {
		if err := s.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.CloseSession(t.Context(), id); err != nil {
		t.Errorf("closing an unused session: %v", err)
	}
}

// TestNamedSessionOverAStop works in a session of a name by that, on every way in. An orderly
// stop ends its program, which neither marks it nor locks its memory.
func TestNamedSessionOverAStop(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "sessions: {on_loss: refuse}\nservers:\n  memory: {builtin: memory}\n"+yamlServer("own", program, []string{"-dir", t.TempDir()}, ""))
	s := mustOpen(t, g.url+"/mcp?session=work")
	s.mustCall(t, "memory__create_entities", map[string]any{"entities": []any{map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"wrote the first program"}}}})
	s.mustCall(t, "own__put", map[string]any{"key": "k", "value": "v"})
	read := func(who string) {
		t.Helper()
		by := mustOpen(t, g.url+"/s/work/mcp")
		defer by.close(t.Context())
		remembers(t, who, by.mustCall(t, "memory__read_graph", map[string]any{}), true)
	}
	read("who comes in by the name")
	g.again(t, func() {
		if _, err := g.stop(); err != nil {
			t.Fatal(err)
		}
	})
	read("who comes in by the name after a stop")
	c := g.client(t)
	work, err := c.Session(t.Context(), "work")
	if err != nil || work.Name != "work" || work.Kind != api.SessionNamed || len(work.Damaged) != 0 {
		t.Fatalf("after a stop the session is %+v, %v", work, err)
	}
	ended := 0
	for step, err := range c.Trajectory(t.Context(), "work") {
		if err != nil {
			t.Fatal(err)
		}
		if step.Type == "damage" && step.Server == "own" {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("the trajectory has %d ends of the program", ended)
	}
	if out, err := g.tine(t.Context(), "session", "close", "work"); err == nil || !strings.Contains(err.Error(), "add --yes") {
		t.Errorf("closing it unasked: %v, %s", err, out)
	}
	if out, err := g.tine(t.Context(), "session", "show", "work"); err != nil || !strings.Contains(out, work.ID) {
		t.Errorf("showing it: %v, %s", err, out)
	}
}
