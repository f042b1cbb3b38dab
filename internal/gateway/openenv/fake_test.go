package openenv

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a host whose sessions count.
type fake struct {
	stopping chan struct{}

	mu       sync.Mutex
	envs     map[string]Environment
	sessions map[string]*fakeSession // open ones
	opened   []api.NewSession
	calls    []Call
	notes    []api.NewAnnotation
	openErr  error
	callErr  error
	blocks   chan struct{}                       // calls tell it that they wait for the end of their context; nil where they don't
	answer   func(s *fakeSession, c Call) string // a CallToolResult
	tools    []string
}

func newFake() *fake {
	env := Environment{Environment: config.Environment{Name: "game", Servers: []string{"game"}, Episodes: 2, TTL: time.Hour, Idle: time.Minute}, Separator: "__"}
	f := &fake{
		stopping: make(chan struct{}), envs: map[string]Environment{"game": env}, sessions: make(map[string]*fakeSession),
		tools: []string{`{"name":"add","description":"Adds","inputSchema":{"type":"object"},"outputSchema":{"x-fastmcp-wrap-result":true}}`, `{"name":"odd","description":null}`},
	}
	f.answer = func(s *fakeSession, _ Call) string {
		s.n++
		return fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}],"structuredContent":{"result":%d}}`, s.n, s.n)
	}
	return f
}

func (f *fake) set(name string, change func(e *Environment)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.envs[name]
	change(&e)
	f.envs[name] = e
}

func (f *fake) Environment(name string) (Environment, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.envs[name]
	return e, ok
}

func (f *fake) Environments() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.envs))
}

func (f *fake) Open(_ context.Context, _ identity.Principal, in api.NewSession) (Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openErr != nil {
		return nil, f.openErr
	}
	s := &fakeSession{f: f, id: fmt.Sprintf("ses_%d", len(f.opened)+1), labels: in.Labels, gone: make(chan struct{})}
	f.opened = append(f.opened, in)
	f.sessions[s.id] = s
	return s, nil
}

func (f *fake) Tools(_ context.Context, _ identity.Principal, session string, v View) ([]json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callErr != nil {
		return nil, f.callErr
	}
	var all []json.RawMessage
	for _, t := range f.tools {
		if strings.Contains(t, `"score"`) == v.Aside {
			all = append(all, json.RawMessage(t))
		}
	}
	return all, nil
}

func (f *fake) Call(ctx context.Context, _ identity.Principal, c Call) (Result, error) {
	if f.blocks != nil {
		f.blocks <- struct{}{}
		<-ctx.Done()
		return Result{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[c.Session]
	if s == nil {
		return Result{}, &api.Error{Kind: api.KindRefused, Message: "the session is closed"}
	}
	f.calls = append(f.calls, c)
	if f.callErr != nil {
		return Result{}, f.callErr
	}
	return Result{Raw: json.RawMessage(f.answer(s, c)), Call: fmt.Sprintf("call_%d", len(f.calls))}, nil
}

func (f *fake) Annotate(_ context.Context, _ identity.Principal, _ string, in api.NewAnnotation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, in)
	return nil
}

func (f *fake) Told(_ identity.Principal, err error) *api.Error {
	if e, ok := err.(*api.Error); ok {
		return e
	}
	return &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
}

func (f *fake) While(ctx context.Context, _ identity.Principal) (context.Context, func()) {
	return context.WithCancel(ctx)
}

func (f *fake) Stopping() <-chan struct{} { return f.stopping }
func (f *fake) MaxBody() int64            { return 1 << 16 }
func (f *fake) Body(_ http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(r.Body)
}

// open are the ids of the open sessions.
func (f *fake) open() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.sessions))
}

type fakeSession struct {
	f      *fake
	id     string
	n      int // what its tool has counted
	labels map[string]string
	lost   string
	gone   chan struct{}
}

func (s *fakeSession) ID() string            { return s.id }
func (s *fakeSession) Gone() <-chan struct{} { return s.gone }

func (s *fakeSession) Lost() string {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return s.lost
}

func (s *fakeSession) Relabel(_ context.Context, labels map[string]string) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.labels = labels
	return nil
}

func (s *fakeSession) Close() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	delete(s.f.sessions, s.id)
	return nil
}

// serve serves a fake host. Its connections end with the test.
func serve(t *testing.T, f *fake) (url string, s *Server) {
	t.Helper()
	s = New(f, new(testkit.Log).Logger())
	http := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Serve(w, r, identity.Principal{Name: "ada"}); err != nil {
			e := f.Told(identity.Principal{}, err)
			status := e.Status
			if status == 0 {
				status = 500
			}
			w.WriteHeader(status)
			io.WriteString(w, e.Message)
		}
	}))
	t.Cleanup(func() {
		if f.stopping != nil {
			select {
			case <-f.stopping:
			default:
				close(f.stopping)
			}
		}
		s.Close()
		http.Close()
	})
	return http.URL + Prefix + "game", s
}

// dial connects.
func dial(t *testing.T, url string) *peer {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return &peer{t, c}
}

// begin dials, and begins an episode.
func begin(t *testing.T, url string) *peer {
	t.Helper()
	p := dial(t, url)
	testkit.Has(t, "a reset", p.say(`{"type":"reset"}`), `"type":"observation"`)
	return p
}

type peer struct {
	t *testing.T
	c *websocket.Conn
}

// say sends a message and returns the answer.
func (p *peer) say(message string) string {
	p.t.Helper()
	p.send(message)
	return p.hear()
}

func (p *peer) send(message string) {
	p.t.Helper()
	if err := p.c.Write(p.t.Context(), websocket.MessageText, []byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) hear() string {
	p.t.Helper()
	_, b, err := p.c.Read(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// over wants the connection to be at its end.
func (p *peer) over(code websocket.StatusCode) {
	p.t.Helper()
	_, b, err := p.c.Read(p.t.Context())
	if websocket.CloseStatus(err) != code {
		p.t.Errorf("the connection ends with %v after %s, want status %d", err, b, code)
	}
}
