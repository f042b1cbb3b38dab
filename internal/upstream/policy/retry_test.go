package policy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestWhatIsRepeated(t *testing.T) {
	limit := &api.Error{Kind: api.KindInfrastructure, Message: "later", Retryable: true, RetryAfter: 3}
	tests := []struct {
		name   string
		method string
		params string
		err    error
		want   int // times it reaches the server, of three attempts
	}{
		{"mutation lost", wire.MethodCallTool, `{"name":"add"}`, fail(api.KindLost), 1},
		{"mutation, 500", wire.MethodCallTool, `{"name":"add"}`, fail(api.KindInfrastructure), 1},
		{"mutation, unknown tool", wire.MethodCallTool, `{"name":"ghost"}`, fail(api.KindLost), 1},
		{"mutation without annotations", wire.MethodCallTool, `{"name":"bare"}`, fail(api.KindLost), 1},
		{"mutation not sent", wire.MethodCallTool, `{"name":"add"}`, unsent(api.KindInfrastructure), 3},
		{"read-only lost", wire.MethodCallTool, `{"name":"look"}`, fail(api.KindLost), 3},
		{"read-only, 500", wire.MethodCallTool, `{"name":"look"}`, fail(api.KindInfrastructure), 3},
		{"idempotent lost", wire.MethodCallTool, `{"name":"set"}`, fail(api.KindLost), 3},
		{"read-only timeout", wire.MethodCallTool, `{"name":"look"}`, fail(api.KindTimeout), 1},
		{"read-only refused", wire.MethodCallTool, `{"name":"look"}`, fail(api.KindRefused), 1},
		{"read-only invalid", wire.MethodCallTool, `{"name":"look"}`, fail(api.KindInvalid), 1},
		{"read-only, answer no MCP", wire.MethodCallTool, `{"name":"look"}`, &api.Error{Kind: api.KindInfrastructure, Message: "HTTP 404"}, 1},
		{"not sent, not started in time", wire.MethodCallTool, `{"name":"look"}`, unsent(api.KindTimeout), 1},
		{"not sent, says when", wire.MethodCallTool, `{"name":"look"}`, upstream.NotSent(limit), 1},
		{"resource lost", wire.MethodReadResource, `{"uri":"a:b"}`, fail(api.KindLost), 3},
		{"prompt lost", wire.MethodGetPrompt, `{"name":"p"}`, fail(api.KindLost), 3},
		{"completion lost", wire.MethodComplete, `{"ref":{"type":"ref/prompt","name":"p"}}`, fail(api.KindLost), 3},
		{"list lost", wire.MethodListPrompts, `{}`, fail(api.KindLost), 3},
		{"unknown method lost", "tasks/cancel", `{}`, fail(api.KindLost), 1},
		{"unknown method not sent", "tasks/cancel", `{}`, unsent(api.KindInfrastructure), 3},
		{"subscription lost", wire.MethodSubscribe, `{"uri":"a:b"}`, fail(api.KindLost), 1},
	}
	for _, learned := range []bool{true, false} {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up := &server{tools: toolList, reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) { return nil, tt.err }}
					s, c := world(t, config.Policy{Retry: retries(3)})
					chain := s.Chain(up, policy.ChainOptions{})
					if learned {
						if _, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`)); err != nil {
							t.Fatal(err)
						}
					}
					req := request(t, "a", tt.method, tt.params)
					_, err := chain.Call(t.Context(), req)
					if !errors.Is(err, tt.err) {
						t.Errorf("error %v, want %v", err, tt.err)
					}
					what := tt.method
					if req.Name != "" {
						what += " " + req.Name
					}
					if got := up.count(what); got != tt.want {
						t.Errorf("reached the server %d times, want %d", got, tt.want)
					}
					if got := int(c.retries.Load()); got != tt.want-1 {
						t.Errorf("%d retries counted, want %d", got, tt.want-1)
					}
				})
			})
		}
	}
}

func TestRepeatedUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{tools: toolList}
		up.reply = func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
			if n < 3 {
				return &upstream.Result{Events: true}, fail(api.KindLost)
			}
			return &upstream.Result{Result: []byte(`{"n":3}`)}, nil
		}
		s, _ := world(t, config.Policy{Retry: retries(5)})
		res, err := s.Chain(up, policy.ChainOptions{}).Call(t.Context(), tool(t, "a", "look"))
		if err != nil || string(res.Result) != `{"n":3}` {
			t.Fatalf("%v, %v", res, err)
		}
		if n := up.count("tools/call look"); n != 3 {
			t.Errorf("reached the server %d times", n)
		}
	})
}

// A first attempt that may have been executed is not made forgotten by a second
// that was not sent.
func TestUncertaintyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{tools: toolList}
		up.reply = func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
			if n == 1 {
				return nil, fail(api.KindLost)
			}
			return nil, unsent(api.KindInfrastructure)
		}
		s, _ := world(t, config.Policy{Retry: retries(3)})
		_, err := s.Chain(up, policy.ChainOptions{}).Call(t.Context(), tool(t, "a", "set"))
		if upstream.Unsent(err) || ours(t, err).Kind != api.KindLost {
			t.Errorf("error %v, want the lost one", err)
		}
	})
}

func TestNobodyIsAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{tools: toolList}
		up.reply = func(ctx context.Context, req *upstream.Request, _ int) (*upstream.Result, error) {
			req.Peer.Note(wire.NoteProgress, nil)
			req.Peer.Ask(ctx, wire.MethodElicit, nil)
			return nil, fail(api.KindLost)
		}
		s, _ := world(t, config.Policy{Retry: retries(3)})
		p := &peer{}
		req := tool(t, "a", "look")
		req.Peer = p
		if _, err := s.Chain(up, policy.ChainOptions{}).Call(t.Context(), req); err == nil {
			t.Fatal("no error")
		}
		if n := up.count("tools/call look"); n != 1 {
			t.Errorf("reached the server %d times", n)
		}
		if p.asked.Load() != 1 || p.noted.Load() != 1 {
			t.Errorf("asked %d times, noted %d times", p.asked.Load(), p.noted.Load())
		}
	})
}

func TestNotRepeatedForOneWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		up := &server{tools: toolList}
		up.reply = func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			time.AfterFunc(time.Millisecond, cancel) // in the pause
			return nil, fail(api.KindLost)
		}
		s, _ := world(t, config.Policy{Retry: config.Retry{Attempts: 3, Pause: time.Hour, MaxPause: time.Hour}})
		if _, err := s.Chain(up, policy.ChainOptions{}).Call(ctx, tool(t, "a", "look")); err == nil {
			t.Fatal("no error")
		}
		if n := up.count("tools/call look"); n != 1 {
			t.Errorf("reached the server %d times", n)
		}
		// One whose time ends before the pause does is told at once.
		began := time.Now()
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := s.Chain(up, policy.ChainOptions{}).Call(short, tool(t, "a", "look")); err == nil || !time.Now().Equal(began) {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
	})
}

func TestHintsAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{}
		up.reply = func(_ context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
			if req.Method != wire.MethodListTools {
				return nil, fail(api.KindLost)
			}
			time.Sleep(time.Millisecond)
			if req.Client.Modern || req.Who != "a" {
				t.Errorf("list asked for as %q, modern %v", req.Who, req.Client.Modern)
			}
			if string(req.Params.Raw) == "" {
				return &upstream.Result{Result: []byte(`{"tools":[{"name":"one"}],"nextCursor":"2"}`)}, nil
			}
			return &upstream.Result{Result: []byte(`{"tools":[{"name":"two","annotations":{"readOnlyHint":true}}]}`)}, nil
		}
		s, _ := world(t, config.Policy{Retry: retries(2)})
		chain := s.Chain(up, policy.ChainOptions{})
		done := make(chan struct{})
		for range 20 {
			go func() {
				_, _ = chain.Call(t.Context(), tool(t, "a", "two"))
				_, _ = chain.Call(t.Context(), tool(t, "a", "ghost"))
				done <- struct{}{}
			}()
		}
		for range 20 {
			<-done
		}
		if n := up.count("tools/list"); n != 2 {
			t.Errorf("%d list requests for two pages", n)
		}
		if n := up.count("tools/call two"); n != 40 {
			t.Errorf("the read-only tool was called %d times, want 40", n)
		}
		if n := up.count("tools/call ghost"); n != 20 {
			t.Errorf("the unknown tool was called %d times, want 20", n)
		}
		chain.Note(wire.NoteToolsChanged)
		_, _ = chain.Call(t.Context(), tool(t, "a", "two"))
		if n := up.count("tools/list"); n != 4 {
			t.Errorf("%d list requests after the tools changed, want 4", n)
		}
	})
}

// A list that was asked for before the tools changed teaches nothing.
func TestHintsOfAnOldList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		up := &server{}
		up.reply = func(_ context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
			if req.Method != wire.MethodListTools {
				return nil, fail(api.KindLost)
			}
			if n == 1 {
				<-release
				return &upstream.Result{Result: []byte(`{"tools":[{"name":"t","annotations":{"readOnlyHint":true}}]}`)}, nil
			}
			return &upstream.Result{Result: []byte(`{"tools":[{"name":"t"}]}`)}, nil
		}
		s, _ := world(t, config.Policy{Retry: retries(3)})
		chain := s.Chain(up, policy.ChainOptions{})
		done := make(chan struct{})
		go func() {
			_, _ = chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`))
			close(done)
		}()
		synctest.Wait()
		chain.Note(wire.NoteToolsChanged)
		close(release)
		<-done
		_, _ = chain.Call(t.Context(), tool(t, "a", "t"))
		if n := up.count("tools/call t"); n != 1 {
			t.Errorf("called %d times by a hint that no longer holds", n)
		}
	})
}
