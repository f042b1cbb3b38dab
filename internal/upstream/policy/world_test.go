package policy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server is a scripted upstream. It counts what reaches it.
type server struct {
	mu    sync.Mutex
	seen  []string // "method name" in the order of arrival
	who   []string
	reply func(ctx context.Context, req *upstream.Request, n int) (*upstream.Result, error)
	tools string // what tools/list answers; empty to ask reply
}

func (s *server) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	s.mu.Lock()
	what := req.Method
	if req.Name != "" {
		what += " " + req.Name
	}
	s.seen = append(s.seen, what)
	s.who = append(s.who, req.Who)
	n := 0
	for _, w := range s.seen {
		if w == what {
			n++
		}
	}
	s.mu.Unlock()
	if req.Method == wire.MethodListTools && s.tools != "" {
		return &upstream.Result{Result: []byte(s.tools)}, nil
	}
	if s.reply == nil {
		return &upstream.Result{Result: []byte(`{"content":[]}`)}, nil
	}
	return s.reply(ctx, req, n)
}

// count returns how often something reached the server.
func (s *server) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.seen {
		if w == what {
			n++
		}
	}
	return n
}

// tools has a tool of each kind.
const toolList = `{"tools":[
	{"name":"look","annotations":{"readOnlyHint":true}},
	{"name":"set","annotations":{"readOnlyHint":false,"idempotentHint":true}},
	{"name":"add","annotations":{"destructiveHint":false}},
	{"name":"bare"}]}`

// counts are metrics that can be read.
type counts struct {
	retries atomic.Int64
	mu      sync.Mutex
	refused map[string]int
	cache   map[string]int
}

func (c *counts) Retry() { c.retries.Add(1) }

func (c *counts) Refused(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = make(map[string]int)
	}
	c.refused[reason]++
}

func (c *counts) Cache(which string, hit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache == nil {
		c.cache = make(map[string]int)
	}
	c.cache[fmt.Sprint(which, " ", hit)]++
}

func (c *counts) get(m *map[string]int, key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (*m)[key]
}

// world makes a server's policies, closed at the end of the test.
func world(t testing.TB, p config.Policy) (*policy.Server, *counts) {
	t.Helper()
	c := &counts{}
	s := policy.NewServer("x", p, c, nil)
	t.Cleanup(s.Close)
	return s, c
}

var client = &upstream.Client{Key: "c", Caps: []byte(`{}`)}

// request makes a request of a principal.
func request(t testing.TB, who, method, params string) *upstream.Request {
	t.Helper()
	p, err := wire.ScanParams(method, []byte(params))
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Request{Method: method, Params: p, Name: p.Name(), Client: client, Who: who}
}

func tool(t testing.TB, who, name string) *upstream.Request {
	return request(t, who, wire.MethodCallTool, `{"name":"`+name+`","arguments":{"a":1}}`)
}

func fail(kind api.Kind) error {
	return &api.Error{Kind: kind, Server: "x", Message: `server "x": broke`, Retryable: kind == api.KindInfrastructure}
}

func unsent(kind api.Kind) error { return upstream.NotSent(fail(kind)) }

func limited(status, after int) error {
	kind := api.KindRefused
	if status != 429 {
		kind, status = api.KindInfrastructure, 0
	}
	return &api.Error{Kind: kind, Server: "x", Message: `server "x": slow down`, Retryable: true, Status: status, RetryAfter: after}
}

// ours returns an error as the API's.
func ours(t testing.TB, err error) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is not an *api.Error", err)
	}
	return e
}

func retries(n int) config.Retry {
	return config.Retry{Attempts: n, Pause: 10 * time.Millisecond, MaxPause: 50 * time.Millisecond}
}

// peer is a client's side of a call.
type peer struct{ asked, noted atomic.Int64 }

func (p *peer) Note(string, []byte) { p.noted.Add(1) }
func (p *peer) Ask(context.Context, string, []byte) upstream.Reply {
	p.asked.Add(1)
	return upstream.Reply{Result: []byte(`{"action":"accept"}`)}
}
