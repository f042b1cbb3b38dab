package gateway

import (
	"context"
	"time"

	"github.com/tine-mcp/tine/internal/identity"
)

// A stream that stays open outlives the request that was let in. Before anything
// is said on it, its principal is looked at again, and when its token is revoked
// or runs out the stream ends.

// hears reports whether somebody who listens may be told of a server, as the
// rules and tokens are now; the empty server is the gateway itself.
func (g *Gateway) hears(who identity.Principal, server string) bool {
	now, ok := g.guard.Load().Again(who)
	return ok && (server == "" || now.MaySee(server))
}

// signal is raised once.
type signal struct{ up chan struct{} }

func newSignal() *signal { return &signal{make(chan struct{})} }

func (s *signal) raise() { close(s.up) }

// lookAgain is how often a token's time is looked at while its stream is open.
const lookAgain = 15 * time.Second

// whileAdmitted derives the context of a stream: it ends when its principal may
// no longer come in. The returned function ends the looking and waits for it.
func (g *Gateway) whileAdmitted(ctx context.Context, who identity.Principal) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			changed := g.guarded.Load().up
			if _, ok := g.guard.Load().Again(who); !ok {
				return
			}
			select {
			case <-changed:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}
