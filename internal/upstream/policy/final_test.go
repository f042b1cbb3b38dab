package policy_test

import (
	"context"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
)

// What fails for good is neither repeated nor kept away by the breaker, which would
// call it something that passes.
func TestFinalFailures(t *testing.T) {
	up := &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
		return nil, upstream.NotSent(&api.Error{Kind: api.KindInfrastructure, Message: "no such image", Final: true})
	}}
	s, c := world(t, config.Policy{Retry: retries(3), Breaker: config.Breaker{Failures: 2, Open: 30e9, Probes: 1}})
	chain := s.Chain(up, policy.ChainOptions{})
	for range 5 {
		_, err := chain.Call(t.Context(), tool(t, "a", "x"))
		if e := ours(t, err); e.Retryable || e.Message != "no such image" {
			t.Errorf("failed with %+v", e)
		}
	}
	if n := c.retries.Load(); n != 0 {
		t.Errorf("repeated %d times", n)
	}
}
