package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

const two = `
servers:
  own: {command: own}
  all: {command: all, scope: shared}
`

func TestWhatIsSharedAndWhatIsNot(t *testing.T) {
	w := newWorld(t, two)
	a, b := w.session("ada"), w.session("bob")
	if w.m.running() != "" {
		t.Errorf("%q runs before use", w.m.running())
	}
	if one, two := call(t, a, "own", "x"), call(t, b, "own", "x"); one == two {
		t.Errorf("two sessions have one instance of their own: %s", one)
	}
	if one, two := call(t, a, "all", "x"), call(t, b, "all", "x"); one != two || !strings.HasPrefix(one, `{"pid":`) {
		t.Errorf("two sessions share %s and %s", one, two)
	}
	w.runs("all own own")
	for _, s := range []*session.Session{a, b} {
		if up := s.Peek("own"); up == nil || up.Session() != s.ID || up.Server() != "own" {
			t.Errorf("session %s holds %v", s.ID, up)
		}
		if up := s.Peek("all"); up == nil || up.Session() != "" {
			t.Errorf("the shared one is of session %q", up.Session())
		}
	}
	if n := len(w.Upstreams("own")); n != 2 {
		t.Errorf("%d holds on own", n)
	}
	if n := len(w.Upstreams("all")); n != 1 {
		t.Errorf("%d holds on all", n)
	}
	// The end of a session ends what is its own, and only that.
	w.CloseSession(t.Context(), a)
	w.CloseSession(t.Context(), a)
	w.runs("all own")
	if w.Get(a.ID) != nil || w.Get(b.ID) != b || len(w.Sessions()) != 1 {
		t.Errorf("sessions are %v", w.Sessions())
	}
	testkit.Has(t, "a call in a closed session", call(t, a, "own", "x"), "refused: ", "closed")
	testkit.Has(t, "a shared call in a closed session", call(t, a, "all", "x"), "refused: ", "closed")
	testkit.Has(t, "a call in the other", call(t, b, "all", "x"), `{"pid":`)
	if again := w.session("ada"); again.ID == a.ID {
		t.Error("a closed session came back")
	}
	if got := w.handles(); got != "all own" {
		t.Errorf("handles of %s", got)
	}
}

func TestDefaultSession(t *testing.T) {
	w := newWorld(t, two)
	ids := make(chan string, 50)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			s, err := w.Default(context.Background(), "ada")
			if err != nil {
				t.Error(err)
				return
			}
			ids <- s.ID
		})
	}
	wg.Wait()
	first := <-ids
	for range 49 {
		if id := <-ids; id != first {
			t.Fatalf("one principal has default sessions %s and %s", first, id)
		}
	}
	if !strings.HasPrefix(first, "ses_") {
		t.Errorf("a session's id is %s", first)
	}
	stored, err := w.db.Sessions(t.Context())
	if err != nil || len(stored) != 1 || stored[0].ID != first || stored[0].Owner != "ada" {
		t.Errorf("stored %+v, %v", stored, err)
	}
	anonymous := w.session("")
	if anonymous.ID == first || w.session("") != anonymous {
		t.Error("the anonymous session is a principal's, or is not one")
	}
	one, err := w.ForClient(t.Context(), "ada", nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := w.ForClient(t.Context(), "ada", nil)
	if err != nil {
		t.Fatal(err)
	}
	if one.ID == two.ID || one.ID == first || one.Kind != session.KindClient {
		t.Errorf("sessions of connections are %s and %s", one.ID, two.ID)
	}
}

func TestServersThatCannotBeUsed(t *testing.T) {
	w := newWorld(t, `
servers:
  off: {command: x, enabled: false}
  far: {url: "http://127.0.0.1:9/mcp"}
  lost: {command: missing}
`)
	s := w.session("ada")
	for server, want := range map[string][]string{
		"none": {"invalid: ", `"none"`},
		"off":  {"refused: ", `"off"`, "disabled in the config"},
		"far":  {"refused: ", "url", "process"},
		"lost": {"infrastructure: ", `"lost"`, "not found on PATH"},
	} {
		testkit.Has(t, server, call(t, s, server, "x"), want...)
	}
	w.m.scopes = []string{"shared"}
	w.apply("servers:\n  own: {command: x}\n")
	testkit.Has(t, "a scope that can't be", call(t, s, "own", "x"), "refused: ", "session", "shared")
}

func TestEager(t *testing.T) {
	const yaml = `
servers:
  own: {command: x, eager: true}
  all: {command: x, eager: true, scope: shared}
  lazy: {command: x}
`
	w := newWorld(t, yaml)
	w.runs("all")
	w.session("ada")
	w.runs("all own")
	w.apply(yaml + "  more: {command: x, eager: true}\n")
	w.runs("all more own")
}

// What the one client of a session can do is what its servers are told.
func TestCapabilitiesOfTheClient(t *testing.T) {
	w := newWorld(t, two)
	s, err := w.ForClient(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.SetCapabilities([]byte(`{"elicitation":{"url":{}},"roots":{}}`))
	w.session("ada").SetCapabilities([]byte(`{}`)) // may have several clients
	call(t, s, "own", "x")
	call(t, s, "all", "x")
	hello := w.m.one("own").hello()
	if len(hello) != 1 || !strings.Contains(hello[0], `"capabilities":{"elicitation":{"url":{}}}`) {
		t.Errorf("one's own server was told %q", hello)
	}
	hello = w.m.one("all").hello()
	if len(hello) != 1 || !strings.Contains(hello[0], `"sampling":{}`) || strings.Contains(hello[0], `"roots"`) {
		t.Errorf("a shared server was told %q", hello)
	}
	w.CloseSession(t.Context(), s)
	call(t, w.session("ada"), "own", "x")
	hello = w.m.one("own").hello()
	if len(hello) != 1 || !strings.Contains(hello[0], `"sampling":{}`) {
		t.Errorf("the server of a session with several clients was told %q", hello)
	}
}

func TestWatchers(t *testing.T) {
	w := newWorld(t, two)
	a, b := w.session("ada"), w.session("bob")
	mine, others := &ear{can: true, reply: `{"roots":[]}`}, &ear{can: true}
	stop := a.Watch(mine)
	defer b.Watch(others)()
	for _, s := range []*session.Session{a, b} {
		call(t, s, "own", "x")
		call(t, s, "all", "x")
	}
	own, _, err := a.Upstream("own")
	if err != nil {
		t.Fatal(err)
	}
	var proc *proc
	for _, p := range w.m.procs {
		if p.spec.Session == a.ID {
			proc = p
		}
	}
	proc.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	proc.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
	testkit.Eventually(t, "the question", func() bool { return mine.has("own roots/list asked") })
	if !mine.has("own " + wire.NoteToolsChanged) {
		t.Errorf("heard %q", mine.heard)
	}
	if others.has("own") {
		t.Errorf("another session heard %q", others.heard)
	}
	// What a shared server says, both hear; what it asks, neither is asked.
	all := w.m.one("all")
	all.say(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
	all.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}`)
	for _, e := range []*ear{mine, others} {
		testkit.Eventually(t, "an update", func() bool { return e.has(`all notifications/resources/updated {"uri":"a:b"}`) })
		if e.has("all roots/list") {
			t.Errorf("heard %q", e.heard)
		}
	}
	// With two clients in one session it can't be told which is meant.
	second := &ear{can: true}
	stopSecond := a.Watch(second)
	if reply := own.Ask(t.Context(), upstream.Origin{Client: "k"}, wire.MethodListRoots, nil); reply.Error == nil {
		t.Errorf("the server was told %s", reply.Result)
	}
	second.can = false
	if reply := own.Ask(t.Context(), upstream.Origin{Client: "k"}, wire.MethodListRoots, nil); string(reply.Result) != `{"roots":[]}` {
		t.Errorf("with one that can answer: %+v", reply)
	}
	stopSecond()
	stop()
	if reply := own.Ask(t.Context(), upstream.Origin{Client: "k"}, wire.MethodListRoots, nil); reply.Error == nil {
		t.Errorf("without a client the server was told %s", reply.Result)
	}
	if got := string(upstream.Refuse(wire.MethodElicit, "x").Result); got != `{"action":"decline"}` {
		t.Errorf("an elicitation is refused with %s", got)
	}
	a.Announce("own", wire.NotePromptsChanged)
	if mine.has(wire.NotePromptsChanged) {
		t.Error("one that stopped watching heard an announcement")
	}
}

func TestManySessionsAtOnce(t *testing.T) {
	w := newWorld(t, two)
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			s, err := w.ForClient(context.Background(), fmt.Sprint(n), nil)
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 {
				testkit.Has(t, "own", call(t, s, "own", "x"), `{"pid":`)
				testkit.Has(t, "all", call(t, s, "all", "x"), `{"pid":`)
			}
			if n%2 == 0 {
				w.CloseSession(context.Background(), s)
			}
		})
	}
	wg.Wait()
	if got := w.m.running(); got != strings.TrimSpace("all "+strings.Repeat("own ", 20)) {
		t.Errorf("%s runs", got)
	}
}
