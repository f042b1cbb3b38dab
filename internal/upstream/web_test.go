package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// reach makes an Upstream on a server that is reached over HTTP.
func reach(t testing.TB, h http.Handler, change ...func(*upstream.Options, *driver.Endpoint)) (*rig, *httptest.Server) {
	t.Helper()
	return reachBy(t, h, nil, change...)
}

// reachBy is reach where instances are what as makes of them.
func reachBy(t testing.TB, h http.Handler, as func(*instance) driver.Instance, change ...func(*upstream.Options, *driver.Endpoint)) (*rig, *httptest.Server) {
	t.Helper()
	ts := httptest.NewServer(h)
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		ts.CloseClientConnections()
		ts.Close()
	})
	ep := &driver.Endpoint{URL: ts.URL + "/mcp", Client: &http.Client{Transport: tr}, Header: http.Header{"X-Api-Key": {"k3y"}}, Transport: "auto"}
	r := &rig{t: t}
	o := r.options()
	for _, c := range change {
		c(&o, ep)
	}
	start := func() (driver.Instance, error) {
		i := &instance{r: r, done: make(chan struct{})}
		i.link = func() (driver.Link, error) { return driver.Link{HTTP: ep}, nil }
		if as != nil {
			return as(i), nil
		}
		return i, nil
	}
	o.Driver = &fakeDriver{
		start: func(context.Context, driver.Spec) (driver.Instance, error) { return start() },
		adopt: func(context.Context, driver.Handle) (driver.Instance, error) { return start() },
	}
	r.Upstream = upstream.New(o)
	t.Cleanup(r.Close)
	return r, ts
}

// A web is a scripted server over HTTP. Its handler gets every request but the
// handshake.
type web struct {
	t      testing.TB
	modern bool
	handle func(w http.ResponseWriter, r *http.Request, m message)
	get    http.HandlerFunc // nil answers 405

	mu       sync.Mutex
	session  string // what initialize gives out; empty for none
	sessions int
	lost     func(w http.ResponseWriter) // what an unknown session gets; nil for an empty 404
	seen     []string
	deleted  []string
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Api-Key") != "k3y" {
		s.t.Errorf("%s came without the credentials", r.Method)
	}
	switch r.Method {
	case http.MethodGet:
		if s.get == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		s.get(w, r)
		return
	case http.MethodDelete:
		s.mu.Lock()
		s.deleted = append(s.deleted, r.Header.Get("Mcp-Session-Id"))
		s.mu.Unlock()
		return
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	scanned, err := wire.Scan(b)
	if err != nil {
		s.t.Errorf("the server got %q: %v", b, err)
	}
	m := message{string(scanned.ID), scanned.Method, string(scanned.Params), string(scanned.Result), string(scanned.Error), string(b)}
	for _, want := range []string{"application/json", "text/event-stream"} {
		if !strings.Contains(r.Header.Get("Accept"), want) {
			s.t.Errorf("%s came with Accept %q", m.method, r.Header.Get("Accept"))
		}
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		s.t.Errorf("%s came with Content-Type %q", m.method, ct)
	}
	s.mu.Lock()
	s.seen = append(s.seen, m.method)
	current := s.session
	s.mu.Unlock()
	if s.modern {
		s.serveModern(w, r, m)
		return
	}
	version := r.Header.Get("Mcp-Protocol-Version")
	switch {
	case m.method == wire.MethodInitialize:
		if r.Header.Get("Mcp-Session-Id") != "" || version != "" {
			s.t.Errorf("initialize came with session %q and version %q", r.Header.Get("Mcp-Session-Id"), version)
		}
		s.mu.Lock()
		if s.session != "" {
			s.sessions++
			s.session = fmt.Sprintf("session-%d", s.sessions)
			w.Header().Set("Mcp-Session-Id", s.session)
		}
		s.mu.Unlock()
		answer(w, m, legacyHello)
	case wire.Modern(version):
		http.Error(w, "Bad Request: Unsupported protocol version", http.StatusBadRequest)
	case r.Header.Get("Mcp-Session-Id") != current:
		if s.lost != nil {
			s.lost(w)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	case version != wire.V20251125:
		s.t.Errorf("%s came with version %q", m.method, version)
	case m.method == wire.NoteInitialized:
		w.WriteHeader(http.StatusAccepted)
	default:
		s.handle(w, r, m)
	}
}

func (s *web) serveModern(w http.ResponseWriter, r *http.Request, m message) {
	head := func(name, want string) {
		if got := r.Header.Get(name); got != want {
			s.t.Errorf("%s came with %s %q, want %q", m.method, name, got, want)
		}
	}
	if m.method == wire.MethodInitialize {
		fail(w, http.StatusBadRequest, m, wire.CodeUnsupportedVersion, "this server speaks 2026-07-28")
		return
	}
	head("Mcp-Session-Id", "")
	if m.id != "" {
		head("Mcp-Protocol-Version", wire.V20260728)
		head("Mcp-Method", m.method)
		if v := at(m.params, "_meta", wire.MetaVersion); v != `"2026-07-28"` {
			s.t.Errorf("%s came with _meta version %s", m.method, v)
		}
		name, _ := wire.DecodeHeader(r.Header.Get("Mcp-Name"))
		switch m.method {
		case wire.MethodCallTool, wire.MethodGetPrompt:
			if want := wire.FindString([]byte(m.params), "name"); name != want {
				s.t.Errorf("%s of %q came with Mcp-Name %q", m.method, want, name)
			}
		case wire.MethodReadResource:
			if want := wire.FindString([]byte(m.params), "uri"); name != want {
				s.t.Errorf("%s of %q came with Mcp-Name %q", m.method, want, name)
			}
		}
	}
	if m.method == wire.MethodDiscover {
		answer(w, m, modernHello)
		return
	}
	s.handle(w, r, m)
}

// times is how often a method was sent.
func (s *web) times(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.seen {
		if m == method {
			n++
		}
	}
	return n
}

// forget is what a restart does to a server's sessions.
func (s *web) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = "another"
}

func answer(w http.ResponseWriter, m message, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id, fmt.Sprintf(format, args...))
}

func fail(w http.ResponseWriter, status int, m message, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, m.id, code, wire.Quote(text))
}

// stream begins an event stream and returns how to send events.
func stream(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	return func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		flush()
	}
}
