package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

func breaks(n int) config.Policy {
	return config.Policy{Breaker: config.Breaker{Failures: n, Open: 30 * time.Second, Probes: 1}}
}

// status is an answer of HTTP that is none of MCP.
func status(code int) func(context.Context, int) (*upstream.Result, error) {
	return func(context.Context, int) (*upstream.Result, error) {
		return nil, &api.Error{Kind: api.KindInfrastructure, Server: "x", Message: "HTTP", Status: code}
	}
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing = true
		up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			if failing {
				return nil, fail(api.KindLost)
			}
			return &upstream.Result{Result: []byte(`{}`)}, nil
		}}
		s, c := world(t, breaks(3))
		chain := s.Chain(up, policy.ChainOptions{})
		call := func() error {
			_, err := chain.Call(t.Context(), tool(t, "a", "add"))
			return err
		}
		for range 3 {
			if got := s.Figures().Breaker; got != api.BreakerClosed {
				t.Fatalf("breaker is %q", got)
			}
			_ = call()
		}
		if got := s.Figures().Breaker; got != api.BreakerOpen {
			t.Fatalf("breaker is %q after three failures", got)
		}
		time.Sleep(18 * time.Second)
		err := call()
		e := ours(t, err)
		if e.Kind != api.KindInfrastructure || !e.Retryable || e.RetryAfter != 12 || !upstream.Unsent(err) {
			t.Errorf("refused with %+v, unsent %v", e, upstream.Unsent(err))
		}
		if want := `server "x": 3 calls failed in a row; next try in 12s`; e.Message != want {
			t.Errorf("message %q, want %q", e.Message, want)
		}
		if n := up.count("tools/call add"); n != 3 {
			t.Errorf("%d calls reached the server", n)
		}
		if n := c.get(&c.refused, "breaker"); n != 1 {
			t.Errorf("%d refusals counted", n)
		}
		time.Sleep(12*time.Second + time.Millisecond)
		if got := s.Figures().Breaker; got != api.BreakerHalfOpen {
			t.Errorf("breaker is %q after its pause", got)
		}
		_ = call() // the probe fails
		if got := s.Figures().Breaker; got != api.BreakerOpen {
			t.Errorf("breaker is %q after a failed probe", got)
		}
		if e := ours(t, call()); !strings.Contains(e.Message, "4 calls failed in a row; next try in 30s") {
			t.Errorf("message %q", e.Message)
		}
		time.Sleep(31 * time.Second)
		failing = false
		if err := call(); err != nil {
			t.Errorf("the probe: %v", err)
		}
		if got := s.Figures().Breaker; got != api.BreakerClosed {
			t.Errorf("breaker is %q after a good probe", got)
		}
		if n := up.count("tools/call add"); n != 5 {
			t.Errorf("%d calls reached the server, want 5", n)
		}
	})
}

func TestHalfOpenLetsProbesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		up := &server{}
		up.reply = func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
			if n == 1 {
				return nil, fail(api.KindTimeout)
			}
			<-release
			return &upstream.Result{Result: []byte(`{}`)}, nil
		}
		p := breaks(1)
		p.Breaker.Probes = 2
		s, _ := world(t, p)
		chain := s.Chain(up, policy.ChainOptions{})
		_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
		time.Sleep(31 * time.Second)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var refused []error
		for range 10 {
			wg.Go(func() {
				if _, err := chain.Call(t.Context(), tool(t, "a", "add")); err != nil {
					mu.Lock()
					refused = append(refused, err)
					mu.Unlock()
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if n := up.count("tools/call add"); n != 3 {
			t.Errorf("%d calls reached the server, want one and two probes", n)
		}
		for _, err := range refused {
			if e := ours(t, err); e.RetryAfter < 1 || !upstream.Unsent(err) {
				t.Errorf("refused with %+v", e)
			}
		}
		if got := s.Figures().Breaker; len(refused) != 8 || got != api.BreakerClosed {
			t.Errorf("%d refused, breaker %q", len(refused), got)
		}
	})
}

func TestWhatTheBreakerCounts(t *testing.T) {
	tests := []struct {
		name  string
		reply func(ctx context.Context, n int) (*upstream.Result, error)
		open  bool
	}{
		{"infrastructure", func(context.Context, int) (*upstream.Result, error) { return nil, fail(api.KindInfrastructure) }, true},
		{"timeout", func(context.Context, int) (*upstream.Result, error) { return nil, fail(api.KindTimeout) }, true},
		{"lost", func(context.Context, int) (*upstream.Result, error) { return nil, fail(api.KindLost) }, true},
		{"not started", func(context.Context, int) (*upstream.Result, error) { return nil, unsent(api.KindInfrastructure) }, true},
		{"refused", func(context.Context, int) (*upstream.Result, error) { return nil, fail(api.KindRefused) }, false},
		{"invalid", func(context.Context, int) (*upstream.Result, error) { return nil, fail(api.KindInvalid) }, false},
		{"HTTP 400", status(400), false},
		{"HTTP 404", status(404), false},
		{"HTTP 413", status(413), false},
		{"HTTP 408", status(408), true},
		{"HTTP 302", status(302), true},
		{"HTTP 404 to a handshake", func(context.Context, int) (*upstream.Result, error) {
			_, err := status(404)(nil, 0)
			return nil, upstream.NotSent(err)
		}, true},
		{"HTTP 400 between", func(_ context.Context, n int) (*upstream.Result, error) {
			if n%3 == 0 {
				return status(400)(nil, 0)
			}
			return nil, fail(api.KindLost)
		}, false},
		{"JSON-RPC error", func(context.Context, int) (*upstream.Result, error) {
			return &upstream.Result{Error: []byte(`{"code":-32603}`)}, nil
		}, false},
		{"tool error", func(context.Context, int) (*upstream.Result, error) {
			return &upstream.Result{Result: []byte(`{"isError":true}`)}, nil
		}, false},
		{"successes between", func(_ context.Context, n int) (*upstream.Result, error) {
			if n%3 == 0 {
				return &upstream.Result{Result: []byte(`{}`)}, nil
			}
			return nil, fail(api.KindLost)
		}, false},
		{"errors of tools between", func(_ context.Context, n int) (*upstream.Result, error) {
			switch n % 3 {
			case 0:
				return &upstream.Result{Result: []byte(`{"isError":true}`)}, nil
			case 1:
				return &upstream.Result{Error: []byte(`{"code":-32603}`)}, nil
			}
			return nil, fail(api.KindLost)
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up := &server{reply: func(ctx context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
				return tt.reply(ctx, n)
			}}
			s, _ := world(t, breaks(3))
			chain := s.Chain(up, policy.ChainOptions{})
			for range 12 {
				_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
			}
			if got := s.Figures().Breaker == api.BreakerOpen; got != tt.open {
				t.Errorf("open %v, want %v", got, tt.open)
			}
		})
	}
	t.Run("the caller left", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			cancel()
			return nil, fail(api.KindTimeout)
		}}
		s, _ := world(t, breaks(1))
		_, _ = s.Chain(up, policy.ChainOptions{}).Call(ctx, tool(t, "a", "add"))
		if got := s.Figures().Breaker; got != api.BreakerClosed {
			t.Errorf("breaker is %q", got)
		}
	})
}

// A breaker that is open is no reason to try again, and a call's retries count.
func TestBreakerAndRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := breaks(2)
		p.Retry = retries(5)
		up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			return nil, unsent(api.KindInfrastructure)
		}}
		s, _ := world(t, p)
		chain := s.Chain(up, policy.ChainOptions{})
		_, err := chain.Call(t.Context(), tool(t, "a", "add"))
		if n := up.count("tools/call add"); n != 2 || !strings.Contains(err.Error(), "2 calls failed in a row") {
			t.Errorf("%d attempts, then %v", n, err)
		}
	})
}

func TestOwnBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			err := fail(api.KindLost)
			e := ours(t, err)
			e.Words, e.Own = "its words", true
			return nil, err
		}}
		good := &server{}
		s, _ := world(t, breaks(2))
		one, two := s.Chain(bad, policy.ChainOptions{Own: true}), s.Chain(good, policy.ChainOptions{Own: true})
		var kept error
		for range 4 {
			_, kept = one.Call(t.Context(), tool(t, "a", "add"))
		}
		if e := ours(t, kept); !strings.HasSuffix(e.Message, "2 calls failed in a row; next try in 30s; the last one: broke") || e.Words != "its words" || !e.Own {
			t.Errorf("message %q", e.Message)
		}
		if _, err := two.Call(t.Context(), tool(t, "a", "add")); err != nil {
			t.Errorf("another session's instance: %v", err)
		}
		if n := bad.count("tools/call add"); n != 2 {
			t.Errorf("%d calls reached the bad one", n)
		}
		if got := s.Figures().Breaker; got != api.BreakerOpen {
			t.Errorf("the worst breaker is %q", got)
		}
		time.Sleep(31 * time.Second)
		if got := s.Figures().Breaker; got != api.BreakerHalfOpen {
			t.Errorf("the worst breaker is %q", got)
		}
		// No call reaches it any more: its session is over.
		time.Sleep(11 * time.Minute)
		if got := s.Figures().Breaker; got != api.BreakerClosed {
			t.Errorf("the worst breaker is %q", got)
		}
		for range 2 {
			_, _ = one.Call(t.Context(), tool(t, "a", "add"))
		}
		if got := s.Figures().Breaker; got != api.BreakerOpen {
			t.Errorf("the worst breaker is %q", got)
		}
		one.Close()
		if got := s.Figures().Breaker; got != api.BreakerClosed {
			t.Errorf("the worst breaker is %q without the bad chain", got)
		}
	})
}

func TestBreakerSetAtRunTime(t *testing.T) {
	fails := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
		return nil, fail(api.KindLost)
	}}
	set := func(failures int, open time.Duration, probes int) config.Policy {
		return config.Policy{Breaker: config.Breaker{Failures: failures, Open: open, Probes: probes}}
	}
	for _, other := range []time.Duration{30 * time.Second, time.Minute} {
		t.Run(fmt.Sprint("counted stays counted, open ", other), func(t *testing.T) {
			s, _ := world(t, set(5, 30*time.Second, 1))
			chain := s.Chain(fails, policy.ChainOptions{})
			for range 3 {
				_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
			}
			s.Set(set(4, other, 1))
			if got := s.Figures().Breaker; got != api.BreakerClosed {
				t.Fatalf("breaker is %q", got)
			}
			_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
			if got := s.Figures().Breaker; got != api.BreakerOpen {
				t.Errorf("breaker is %q after the fourth failure", got)
			}
		})
	}
	t.Run("open stays open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _ := world(t, set(1, time.Hour, 1))
			chain := s.Chain(fails, policy.ChainOptions{})
			_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
			s.Set(set(5, 10*time.Second, 2))
			_, err := chain.Call(t.Context(), tool(t, "a", "add"))
			if e := ours(t, err); e.RetryAfter != 10 || s.Figures().Breaker != api.BreakerOpen {
				t.Errorf("%v, breaker %q", e, s.Figures().Breaker)
			}
			time.Sleep(11 * time.Second)
			if got := s.Figures().Breaker; got != api.BreakerHalfOpen {
				t.Errorf("breaker is %q", got)
			}
		})
	})
	t.Run("off and on", func(t *testing.T) {
		s, _ := world(t, set(1, time.Hour, 1))
		chain := s.Chain(fails, policy.ChainOptions{})
		_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
		s.Set(config.Policy{})
		if got := s.Figures().Breaker; got != "" {
			t.Errorf("breaker is %q without one", got)
		}
		if _, err := chain.Call(t.Context(), tool(t, "a", "add")); strings.Contains(err.Error(), "in a row") {
			t.Error(err)
		}
		s.Set(set(1, time.Hour, 1))
		if got := s.Figures().Breaker; got != api.BreakerClosed {
			t.Errorf("breaker is %q", got)
		}
	})
}

// A subscription is no call.
func TestListenPassesBy(t *testing.T) {
	up := &server{reply: func(_ context.Context, req *upstream.Request, _ int) (*upstream.Result, error) {
		if req.Method == wire.MethodListen {
			return &upstream.Result{Result: []byte(`{}`)}, nil
		}
		return nil, fail(api.KindLost)
	}}
	p := breaks(1)
	p.Concurrency.Calls = 1
	s, _ := world(t, p)
	chain := s.Chain(up, policy.ChainOptions{})
	_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
	if _, err := chain.Call(t.Context(), request(t, "a", wire.MethodListen, `{}`)); err != nil {
		t.Error(err)
	}
}

// A server's last failure is only logged: any caller's call may have caused it.
func TestBreakerLogsTheLastFailure(t *testing.T) {
	var log bytes.Buffer
	s := policy.NewServer("x", breaks(2), nil, slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(s.Close)
	up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
		return nil, fail(api.KindLost)
	}}
	chain := s.Chain(up, policy.ChainOptions{})
	for range 2 {
		_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
	}
	if got := log.String(); !strings.Contains(got, "server=x") || !strings.Contains(got, "last=broke") {
		t.Errorf("log %q", got)
	}
}

// A server that died with many pending calls has failed once.
func TestBreakerCountsADeathOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := "one"
		up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			return nil, upstream.Died(&api.Error{Kind: api.KindLost, Server: "x", Message: "died"}, conn)
		}}
		s, _ := world(t, breaks(3))
		chain := s.Chain(up, policy.ChainOptions{})
		for range 10 {
			if _, err := chain.Call(t.Context(), tool(t, "a", "add")); ours(t, err).Kind != api.KindLost {
				t.Fatalf("got %v", err)
			}
		}
		if got := s.Figures().Breaker; got != api.BreakerClosed {
			t.Errorf("after one death the breaker is %q", got)
		}
		for _, conn = range []string{"two", "three"} {
			_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
		}
		if got := s.Figures().Breaker; got != api.BreakerOpen {
			t.Errorf("after three deaths the breaker is %q", got)
		}
	})
}
