package policy_test

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
)

func TestServersOwnLimit(t *testing.T) {
	tests := []struct {
		name string
		err  error
		hold time.Duration // zero for none
	}{
		{"429 with Retry-After", limited(429, 20), 20 * time.Second},
		{"429 without", limited(429, 0), time.Second},
		{"429 for a day", limited(429, 86400), 10 * time.Minute},
		{"429 to a handshake", upstream.NotSent(limited(429, 0)), time.Second},
		{"503 with Retry-After", limited(503, 5), 5 * time.Second},
		{"503 without", limited(503, 0), 0},
		{"not started, says when", upstream.NotSent(limited(503, 5)), 0},
		{"refused", fail(api.KindRefused), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &server{reply: func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
					if n == 1 {
						return nil, tt.err
					}
					return &upstream.Result{Result: []byte(`{}`)}, nil
				}}
				s, c := world(t, config.Policy{Retry: retries(1), Breaker: config.Breaker{Failures: 5, Open: time.Minute}})
				chain, other := s.Chain(up, policy.ChainOptions{}), s.Chain(up, policy.ChainOptions{})
				_, err := chain.Call(t.Context(), tool(t, "a", "add"))
				want := *ours(t, tt.err)
				if want.Status == 429 && want.RetryAfter == 0 {
					want.RetryAfter = 1 // for as long as it is held
				}
				if e := ours(t, err); !reflect.DeepEqual(*e, want) || upstream.Unsent(err) != upstream.Unsent(tt.err) {
					t.Errorf("the caller got %+v, want the server's own", e)
				}
				if tt.hold == 0 {
					if _, err := other.Call(t.Context(), tool(t, "b", "add")); err != nil {
						t.Errorf("held: %v", err)
					}
					return
				}
				time.Sleep(tt.hold / 4)
				_, err = other.Call(t.Context(), tool(t, "b", "add"))
				e := ours(t, err)
				if want := int((tt.hold*3/4 + time.Second - 1) / time.Second); e.Kind != api.KindRefused || e.Status != 429 || e.RetryAfter != want || !upstream.Unsent(err) {
					t.Errorf("refused with %+v, want to be told %d s", e, want)
				}
				if n := c.get(&c.refused, "upstream_limit"); n != 1 {
					t.Errorf("%d refusals counted", n)
				}
				time.Sleep(tt.hold * 3 / 4)
				if _, err := other.Call(t.Context(), tool(t, "b", "add")); err != nil {
					t.Errorf("after the hold: %v", err)
				}
				if n := up.count("tools/call add"); n != 2 {
					t.Errorf("%d calls reached the server", n)
				}
			})
		})
	}
}

// Calls that wait for the rate are refused at once as well, but not calls to
// another instance.
func TestHoldAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := make(chan struct{})
		up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
			<-limit
			return nil, limited(429, 60)
		}}
		s, _ := world(t, config.Policy{Rate: config.Rate{Calls: 0.01, Burst: 1}, Concurrency: config.Concurrency{Queue: 10, Wait: time.Hour}})
		busy, other := s.Chain(up, policy.ChainOptions{Own: true}), s.Chain(&server{}, policy.ChainOptions{Own: true})
		began := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := busy.Call(t.Context(), tool(t, "a", "add"))
				if e := ours(t, err); e.Status != 429 || !time.Now().Equal(began) {
					t.Errorf("%+v after %s", e, time.Since(began))
				}
			})
			synctest.Wait() // the first one takes the only token
		}
		wg.Go(func() {
			if _, err := other.Call(t.Context(), tool(t, "b", "add")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(limit)
		wg.Wait()
	})
}

func TestOwnHold(t *testing.T) {
	busy := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) { return nil, limited(429, 60) }}
	s, _ := world(t, config.Policy{})
	one, two := s.Chain(busy, policy.ChainOptions{Own: true}), s.Chain(&server{}, policy.ChainOptions{Own: true})
	for range 3 {
		_, _ = one.Call(t.Context(), tool(t, "a", "add"))
	}
	if n := busy.count("tools/call add"); n != 1 {
		t.Errorf("%d calls reached the busy one", n)
	}
	if _, err := two.Call(t.Context(), tool(t, "a", "add")); err != nil {
		t.Errorf("another session's instance: %v", err)
	}
}

// Calls that wait for a turn are refused at once, and a second attempt is not made.
func TestHoldSendsTheWaitingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := atOnce(2, 10, time.Hour)
		p.Retry = config.Retry{Attempts: 3, Pause: time.Second, MaxPause: time.Second}
		limit := make(chan struct{})
		up := &server{}
		up.reply = func(_ context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
			if req.Name == "add" && n == 1 {
				<-limit
				return nil, limited(429, 60)
			}
			return nil, unsent(api.KindInfrastructure) // to be repeated
		}
		s, _ := world(t, p)
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() { _, _ = chain.Call(t.Context(), tool(t, "a", "add")) })
		synctest.Wait()
		wg.Go(func() {
			_, err := chain.Call(t.Context(), tool(t, "a", "bare"))
			if e := ours(t, err); e.Status != 429 {
				t.Errorf("repeated into the hold: %+v", e)
			}
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() {
				_, err := chain.Call(t.Context(), tool(t, "b", "add"))
				if e := ours(t, err); e.Status != 429 || !strings.Contains(e.Message, "60 s") || !time.Now().Equal(began) {
					t.Errorf("%+v after %s", e, time.Since(began))
				}
			})
		}
		synctest.Wait()
		close(limit)
		wg.Wait()
		if n := up.count("tools/call add") + up.count("tools/call bare"); n != 2 {
			t.Errorf("%d calls reached the server", n)
		}
	})
}
