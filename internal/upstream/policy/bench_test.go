package policy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

// everything is a policy with all there is switched on.
func everything() config.Policy {
	return config.Policy{
		Retry:       retries(3),
		Breaker:     config.Breaker{Failures: 5, Open: time.Minute, Probes: 1},
		Rate:        config.Rate{Calls: 1e9, Burst: 1e9},
		Concurrency: config.Concurrency{Calls: 1000, Queue: 1000, Wait: time.Minute},
		Cache:       config.Cache{Lists: time.Hour, Results: time.Hour},
	}
}

func BenchmarkChain(b *testing.B) {
	answer := &upstream.Result{Result: []byte(`{"content":[{"type":"text","text":"hello"}]}`)}
	list := &upstream.Result{Result: []byte(toolList)}
	instant := callerFunc(func(_ context.Context, req *upstream.Request) (*upstream.Result, error) {
		if req.Method == wire.MethodListTools {
			return list, nil
		}
		return answer, nil
	})
	for _, bm := range []struct {
		name string
		p    config.Policy
		req  *upstream.Request
	}{
		{"all off", config.Policy{}, tool(b, "a", "add")},
		{"all on, a tool", everything(), tool(b, "a", "add")},
		{"all on, kept result", everything(), tool(b, "a", "look")},
		{"all on, kept list", everything(), request(b, "a", wire.MethodListTools, `{}`)},
	} {
		bm.req.Peer = &peer{}
		s := policy.NewServer("x", bm.p, nil, nil)
		chain := s.Chain(instant, policy.ChainOptions{})
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := chain.Call(b.Context(), bm.req); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint(bm.name, ", parallel"), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := chain.Call(b.Context(), bm.req); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
		s.Close()
	}
}
