package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

func keepsResults(tools ...string) config.Policy {
	return config.Policy{Cache: config.Cache{Results: time.Minute, Tools: tools}}
}

// numbered is a server that answers every call with how often it was called.
func numbered() *server {
	return &server{tools: toolList, reply: func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
		return &upstream.Result{Result: fmt.Appendf(nil, `{"n":"%d"}`, n)}, nil
	}}
}

func TestResultsOfReadOnlyToolsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := numbered()
		s, c := world(t, keepsResults())
		chain := s.Chain(up, policy.ChainOptions{})
		call := func(name, want string) {
			t.Helper()
			res, err := chain.Call(t.Context(), tool(t, "a", name))
			if err != nil {
				t.Fatal(err)
			}
			if got := wire.FindString(res.Result, "n"); got != want {
				t.Errorf("%s: answer %s, want %s", name, got, want)
			}
		}
		call("look", "1")
		call("look", "1")
		time.Sleep(time.Minute)
		call("look", "2")
		call("look", "2")
		if hit, miss := c.get(&c.cache, "results true"), c.get(&c.cache, "results false"); hit != 2 || miss != 2 {
			t.Errorf("%d hits and %d misses counted", hit, miss)
		}
		for i, name := range []string{"set", "add", "bare", "ghost"} {
			call(name, "1")
			call(name, "2")
			call("look", fmt.Sprint(3+i)) // emptied
			call("look", fmt.Sprint(3+i))
		}
		if n := up.count("tools/list"); n != 1 {
			t.Errorf("%d list requests", n)
		}
		chain.Note(wire.NoteToolsChanged)
		call("look", "7")
	})
}

func TestWhatIsNotKeptOfResults(t *testing.T) {
	base := `{"name":"look","arguments":{"a":1}}`
	tests := []struct {
		name   string
		params string
		body   string
		ask    bool
		tools  []string
		want   int // requests of two calls
	}{
		{"plain", base, `{"content":[]}`, false, nil, 1},
		{"a matching pattern", base, `{}`, false, []string{"x", "lo*"}, 1},
		{"no matching pattern", base, `{}`, false, []string{"x"}, 2},
		{"a bad pattern", base, `{}`, false, []string{"["}, 2},
		{"isError", base, `{"isError":true}`, false, nil, 2},
		{"isError false", base, `{"isError":false}`, false, nil, 1},
		{"input required", base, `{"resultType":"input_required"}`, false, nil, 2},
		{"some other type", base, `{"resultType":"task"}`, false, nil, 2},
		{"complete", base, `{"resultType":"complete"}`, false, nil, 1},
		{"with answers", `{"name":"look","inputResponses":{}}`, `{}`, false, nil, 2},
		{"with a state", `{"name":"look","requestState":"s"}`, `{}`, false, nil, 2},
		{"a person was asked", base, `{}`, true, nil, 2},
		{"too large", base, `{"x":"` + strings.Repeat("x", 1<<20) + `"}`, false, nil, 2},
		{"unreadable", base, `{"x"`, false, nil, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up := &server{tools: toolList, reply: func(ctx context.Context, req *upstream.Request, _ int) (*upstream.Result, error) {
				if tt.ask {
					req.Peer.Ask(ctx, wire.MethodElicit, nil)
				}
				return &upstream.Result{Result: []byte(tt.body)}, nil
			}}
			s, _ := world(t, keepsResults(tt.tools...))
			chain := s.Chain(up, policy.ChainOptions{})
			for range 2 {
				req := request(t, "a", wire.MethodCallTool, tt.params)
				req.Peer = &peer{}
				if res, err := chain.Call(t.Context(), req); err != nil || string(res.Result) != tt.body {
					t.Fatal(err)
				}
			}
			if n := up.count("tools/call look"); n != tt.want {
				t.Errorf("%d requests, want %d", n, tt.want)
			}
		})
	}
}

func TestWhatMakesAnotherResult(t *testing.T) {
	base := func() *upstream.Request {
		return request(t, "a", wire.MethodCallTool, `{"name":"look","arguments":{"a":1}}`)
	}
	tests := []struct {
		name string
		req  func() *upstream.Request
		same bool
	}{
		{"a progress token", func() *upstream.Request {
			return request(t, "a", wire.MethodCallTool, `{"_meta":{"progressToken":1},"name":"look","arguments":{"a":1}}`)
		}, true},
		{"a prefixed name", func() *upstream.Request {
			r := request(t, "a", wire.MethodCallTool, `{"name":"x__look","arguments":{"a":1}}`)
			r.Name = "look"
			r.Edits = []wire.Edit{{At: r.Params.Target, With: []byte(`"look"`)}}
			return r
		}, true},
		{"other arguments", func() *upstream.Request {
			return request(t, "a", wire.MethodCallTool, `{"name":"look","arguments":{"a":2}}`)
		}, false},
		{"arguments changed on the way", func() *upstream.Request {
			r := base()
			r.Edits = []wire.Edit{{At: wire.Span{Start: 28, End: 33}, With: []byte(`"b":1`)}}
			return r
		}, false},
		{"another principal", func() *upstream.Request {
			r := base()
			r.Who = "b"
			return r
		}, false},
		{"the other era", func() *upstream.Request {
			r := base()
			r.Client = &upstream.Client{Caps: client.Caps, Modern: true}
			return r
		}, false},
		{"repeated in headers", func() *upstream.Request {
			r := base()
			r.Header = map[string][]string{"Mcp-Param-A": {"2"}}
			return r
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up := numbered()
			s, _ := world(t, keepsResults())
			chain := s.Chain(up, policy.ChainOptions{})
			for _, req := range []*upstream.Request{base(), tt.req(), base(), tt.req()} {
				if _, err := chain.Call(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			want := 2
			if tt.same {
				want = 1
			}
			if n := up.count("tools/call look"); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		})
	}
}

// What is read while something is being changed is not kept beyond that.
func TestFillDuringAMutation(t *testing.T) {
	for _, order := range []string{"mutation ends last", "fill ends last"} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mutate, read := make(chan struct{}), make(chan struct{})
				up := &server{tools: toolList}
				up.reply = func(_ context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
					if req.Name == "add" {
						<-mutate
						return nil, fail(api.KindLost)
					}
					if n == 1 {
						<-read
					}
					return &upstream.Result{Result: fmt.Appendf(nil, `{"n":"%d"}`, n)}, nil
				}
				s, _ := world(t, keepsResults())
				one, two := s.Chain(up, policy.ChainOptions{}), s.Chain(up, policy.ChainOptions{})
				done := make(chan struct{}, 2)
				look := func() string {
					res, err := one.Call(t.Context(), tool(t, "a", "look"))
					if err != nil {
						t.Error(err)
					}
					return wire.FindString(res.Result, "n")
				}
				go func() { look(); done <- struct{}{} }()
				synctest.Wait()
				go func() { _, _ = two.Call(t.Context(), tool(t, "b", "add")); done <- struct{}{} }()
				synctest.Wait()
				first, second := read, mutate
				if order == "fill ends last" {
					first, second = mutate, read
				}
				close(first)
				<-done
				close(second)
				<-done
				if got := look(); got != "2" {
					t.Errorf("answer %s, want a new one", got)
				}
			})
		})
	}
}

// While something is being changed nothing from before is told, and what is read
// then is not kept beyond.
func TestReadsDuringAMutation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutate := make(chan struct{})
		up := numbered()
		plain := up.reply
		up.reply = func(ctx context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
			if req.Name == "add" {
				<-mutate
			}
			return plain(ctx, req, n)
		}
		s, _ := world(t, keepsResults())
		chain := s.Chain(up, policy.ChainOptions{})
		look := func(want string) {
			t.Helper()
			res, err := chain.Call(t.Context(), tool(t, "a", "look"))
			if err != nil || wire.FindString(res.Result, "n") != want {
				t.Errorf("%s, %v; want answer %s", res.Result, err, want)
			}
		}
		look("1")
		done := make(chan struct{})
		go func() {
			_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
			close(done)
		}()
		synctest.Wait()
		look("2")
		close(mutate)
		<-done
		look("3")
	})
}

// A change in one session's own instance is none in another's.
func TestOwnResults(t *testing.T) {
	up := numbered()
	s, _ := world(t, keepsResults())
	one, two := s.Chain(up, policy.ChainOptions{Own: true}), s.Chain(up, policy.ChainOptions{Own: true})
	for _, chain := range []*policy.Chain{one, two} {
		_, _ = chain.Call(t.Context(), tool(t, "a", "look"))
	}
	_, _ = two.Call(t.Context(), tool(t, "a", "add"))
	_, _ = one.Call(t.Context(), tool(t, "a", "look"))
	if n := up.count("tools/call look"); n != 2 {
		t.Errorf("%d requests, want one each", n)
	}
}

func TestResultsOffAndOn(t *testing.T) {
	up := numbered()
	s, _ := world(t, keepsResults())
	chain := s.Chain(up, policy.ChainOptions{})
	_, _ = chain.Call(t.Context(), tool(t, "a", "look"))
	s.Set(config.Policy{})
	_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
	s.Set(keepsResults())
	_, _ = chain.Call(t.Context(), tool(t, "a", "look"))
	if n := up.count("tools/call look"); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}
