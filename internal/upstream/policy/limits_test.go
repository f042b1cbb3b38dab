package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
)

func atOnce(n, queue int, wait time.Duration) config.Policy {
	return config.Policy{Concurrency: config.Concurrency{Calls: n, Queue: queue, Wait: wait}}
}

// a turnstile is a server that answers one call each time it is told to, and
// says who it served.
type turnstile struct {
	served chan string
	step   chan struct{}
	most   atomic.Int64
	now    atomic.Int64
}

func newTurnstile() *turnstile {
	return &turnstile{served: make(chan string, 10_000), step: make(chan struct{})}
}

func (s *turnstile) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for old := s.most.Load(); n > old && !s.most.CompareAndSwap(old, n); old = s.most.Load() {
	}
	s.served <- req.Who
	select {
	case <-s.step:
		return &upstream.Result{Result: []byte(`{}`)}, nil
	case <-ctx.Done():
		return nil, fail(api.KindRefused)
	}
}

func TestAGreedyPrincipalStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newTurnstile()
		s, _ := world(t, atOnce(2, 5000, time.Hour))
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		call := func(who string) {
			wg.Go(func() {
				if _, err := chain.Call(t.Context(), tool(t, who, "add")); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			})
			synctest.Wait() // in order
		}
		for range 1002 {
			call("greedy")
		}
		for range 3 {
			call("b")
			call("c")
		}
		if f := s.Figures(); f.InFlight != 2 || f.Queue != 1006 {
			t.Fatalf("figures %+v", f)
		}
		<-up.served
		<-up.served
		var order []string
		for range 9 {
			up.step <- struct{}{}
			order = append(order, <-up.served)
		}
		// One turn of the greedy one to one of each other: a round.
		if got, want := strings.Join(order, " "), "greedy b c greedy b c greedy b c"; got != want {
			t.Errorf("served %s, want %s", got, want)
		}
		close(up.step)
		wg.Wait()
		if n := up.most.Load(); n != 2 {
			t.Errorf("%d calls at once, want 2", n)
		}
		if f := s.Figures(); f.InFlight != 0 || f.Queue != 0 {
			t.Errorf("figures %+v at the end", f)
		}
	})
}

func TestRateIsKeptAndFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{}
		s, _ := world(t, config.Policy{Rate: config.Rate{Calls: 10, Burst: 5}, Concurrency: config.Concurrency{Queue: 1000, Wait: time.Hour}})
		chain := s.Chain(up, policy.ChainOptions{})
		began := time.Now()
		var wg sync.WaitGroup
		for range 95 {
			wg.Go(func() { _, _ = chain.Call(t.Context(), tool(t, "greedy", "add")) })
		}
		synctest.Wait()
		if n := up.count("tools/call add"); n != 5 {
			t.Errorf("%d calls at once with a burst of 5", n)
		}
		if _, err := chain.Call(t.Context(), tool(t, "b", "add")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("the other one waited %s", took)
		}
		wg.Wait()
		// 5 at once and 91 at ten a second.
		if took := time.Since(began); took < 9*time.Second || took > 9200*time.Millisecond {
			t.Errorf("96 calls took %s", took)
		}
	})
}

func TestRefusalsOfLimits(t *testing.T) {
	tests := []struct {
		name    string
		p       config.Policy
		reason  string
		message string
		after   int
	}{
		{"no room", atOnce(1, 1, time.Hour), "concurrency",
			`server "x": 1 calls at once and 1 waiting; servers.x.policy.concurrency can raise that`, 1},
		{"no queue", atOnce(2, 0, time.Hour), "concurrency",
			`server "x": 2 calls at once and 0 waiting; servers.x.policy.concurrency can raise that`, 1},
		{"rate", config.Policy{Rate: config.Rate{Calls: 0.25, Burst: 1}, Concurrency: config.Concurrency{Queue: 1, Wait: time.Hour}}, "rate",
			`server "x": 0.25 calls a second and 1 waiting; servers.x.policy.rate can raise that`, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newTurnstile()
				s, c := world(t, tt.p)
				chain := s.Chain(up, policy.ChainOptions{})
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { _, _ = chain.Call(ctx, tool(t, "a", "add")) })
				}
				synctest.Wait()
				_, err := chain.Call(ctx, tool(t, "a", "add"))
				e := ours(t, err)
				if e.Kind != api.KindRefused || !e.Retryable || e.Status != 429 || e.RetryAfter != tt.after || !upstream.Unsent(err) || e.Server != "x" {
					t.Errorf("refused with %+v", e)
				}
				if e.Message != tt.message {
					t.Errorf("message %q, want %q", e.Message, tt.message)
				}
				if n := c.get(&c.refused, tt.reason); n != 1 {
					t.Errorf("%d refusals for %s counted", n, tt.reason)
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

func TestWaitingTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newTurnstile()
		s, c := world(t, atOnce(1, 10, 7*time.Second))
		chain := s.Chain(up, policy.ChainOptions{})
		done := make(chan struct{})
		go func() {
			_, _ = chain.Call(t.Context(), tool(t, "a", "add"))
			close(done)
		}()
		synctest.Wait()
		_, err := chain.Call(t.Context(), tool(t, "b", "add"))
		e := ours(t, err)
		if want := `server "x": 1 calls at once, and no turn within 7s; servers.x.policy.concurrency can raise that`; e.Message != want {
			t.Errorf("message %q, want %q", e.Message, want)
		}
		if e.Kind != api.KindRefused || e.Status != 429 || e.RetryAfter < 1 || !upstream.Unsent(err) || c.get(&c.refused, "concurrency") != 1 {
			t.Errorf("refused with %+v", e)
		}
		if f := s.Figures(); f.Queue != 0 {
			t.Errorf("figures %+v", f)
		}
		up.step <- struct{}{}
		<-done
	})
}

// Where there is no room, the newest call of the one with most waiting goes.
func TestRoomIsMadeForTheModest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newTurnstile()
		s, _ := world(t, atOnce(1, 4, time.Hour))
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		outcome := map[string]error{}
		call := func(id, who string) {
			wg.Go(func() {
				_, err := chain.Call(t.Context(), tool(t, who, "add"))
				mu.Lock()
				outcome[id] = err
				mu.Unlock()
			})
			synctest.Wait()
		}
		call("first", "greedy")
		for i := range 4 {
			call(fmt.Sprint("greedy ", i), "greedy")
		}
		call("greedy 4", "greedy") // no room, and no principal has more
		call("b 0", "b")           // takes the place of greedy 3
		call("b 1", "b")           // of greedy 2
		call("b 2", "b")           // as many as the other: refused
		mu.Lock()
		got := fmt.Sprint(len(outcome), outcome["greedy 4"] != nil, outcome["greedy 3"] != nil, outcome["greedy 2"] != nil, outcome["b 2"] != nil)
		mu.Unlock()
		if got != "4 true true true true" {
			t.Errorf("refused: %s", got)
		}
		close(up.step)
		wg.Wait()
		for id, err := range outcome {
			switch id {
			case "greedy 2", "greedy 3", "greedy 4", "b 2":
				if e := ours(t, err); e.Status != 429 || !strings.Contains(e.Message, "4 waiting") {
					t.Errorf("%s: %+v", id, e)
				}
			default:
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		}
	})
}

func TestOneWhoLeavesTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newTurnstile()
		s, _ := world(t, atOnce(1, 10, time.Hour))
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = chain.Call(t.Context(), tool(t, "a", "add")) })
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		wg.Go(func() {
			_, err := chain.Call(ctx, tool(t, "b", "add"))
			if e := ours(t, err); e.Kind != api.KindRefused || e.Status != 0 || !upstream.Unsent(err) {
				t.Errorf("left with %+v", e)
			}
		})
		synctest.Wait()
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		wg.Go(func() {
			_, err := chain.Call(late, tool(t, "c", "add"))
			if e := ours(t, err); e.Kind != api.KindTimeout || !upstream.Unsent(err) {
				t.Errorf("left with %+v", e)
			}
		})
		synctest.Wait()
		cancel(upstream.Cancelled())
		time.Sleep(2 * time.Second)
		if f := s.Figures(); f.Queue != 0 || f.InFlight != 1 {
			t.Errorf("figures %+v", f)
		}
		close(up.step)
		wg.Wait()
		if n := len(up.served); n != 1 {
			t.Errorf("%d calls reached the server", n)
		}
	})
}

func TestLimitsSetAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newTurnstile()
		s, _ := world(t, atOnce(1, 10, time.Hour))
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if _, err := chain.Call(t.Context(), tool(t, "a", "add")); err != nil {
					t.Error(err)
				}
			})
		}
		check := func(inFlight, queue int) {
			t.Helper()
			synctest.Wait()
			if f := s.Figures(); f.InFlight != inFlight || f.Queue != queue {
				t.Errorf("figures %+v, want %d and %d", f, inFlight, queue)
			}
		}
		check(1, 5)
		s.Set(atOnce(3, 1, time.Hour)) // waiting calls keep their place
		check(3, 3)
		s.Set(atOnce(1, 1, time.Hour))
		up.step <- struct{}{}
		check(2, 3)
		p := atOnce(0, 10, time.Hour)
		p.Rate = config.Rate{Calls: 1, Burst: 1}
		s.Set(p)
		check(3, 2)
		time.Sleep(1100 * time.Millisecond)
		check(4, 1)
		s.Set(config.Policy{}) // no limits: all who wait may go
		check(5, 0)
		close(up.step)
		wg.Wait()
	})
}

// An attempt takes a token of the rate, but no second turn.
func TestRetriesAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := atOnce(1, 10, time.Hour)
		p.Rate = config.Rate{Calls: 1, Burst: 1}
		p.Retry = retries(3)
		up := &server{reply: func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
			if n < 3 {
				return nil, unsent(api.KindInfrastructure)
			}
			return &upstream.Result{Result: []byte(`{}`)}, nil
		}}
		s, _ := world(t, p)
		began := time.Now()
		if _, err := s.Chain(up, policy.ChainOptions{}).Call(t.Context(), tool(t, "a", "add")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began).Round(time.Second); took != 2*time.Second {
			t.Errorf("three attempts took %s at one a second", took)
		}
	})
}

func TestCloseRefusesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newTurnstile()
		s := policy.NewServer("x", atOnce(1, 10, time.Hour), nil, nil)
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := chain.Call(t.Context(), tool(t, "a", "add")); err != nil {
				t.Errorf("the one that runs: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				if _, err := chain.Call(t.Context(), tool(t, "a", "add")); err == nil || !upstream.Unsent(err) {
					t.Errorf("one that waits: %v", err)
				}
			})
		}
		synctest.Wait()
		s.Close()
		if _, err := chain.Call(t.Context(), tool(t, "a", "add")); err == nil {
			t.Error("called after Close")
		}
		close(up.step)
		wg.Wait()
	})
}

// Under everything at once the counts stay right and no turn is lost.
func TestGateUnderStorm(t *testing.T) {
	up := &server{}
	var now, most atomic.Int64
	next := callerFunc(func(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond) // calls take different times
		}
		return up.Call(ctx, req)
	})
	p := atOnce(4, 20, time.Millisecond)
	p.Rate = config.Rate{Calls: 20_000, Burst: 10}
	s, _ := world(t, p)
	chain := s.Chain(next, policy.ChainOptions{})
	var wg sync.WaitGroup
	var refused, ok atomic.Int64
	for i := range 40 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
				if _, err := chain.Call(ctx, tool(t, fmt.Sprint(i%7), "add")); err != nil {
					refused.Add(1)
				} else {
					ok.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if f := s.Figures(); f.InFlight != 0 || f.Queue != 0 {
		t.Errorf("figures %+v when nothing runs", f)
	}
	if n := most.Load(); n > 4 {
		t.Errorf("%d calls at once", n)
	}
	if n := int64(up.count("tools/call add")); n != ok.Load() {
		t.Errorf("%d reached the server, %d were answered, %d refused", n, ok.Load(), refused.Load())
	}
}

type callerFunc func(ctx context.Context, req *upstream.Request) (*upstream.Result, error)

func (f callerFunc) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	return f(ctx, req)
}
