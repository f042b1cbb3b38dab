package upstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// Drain waits until no call is under way, at most as long as ctx lasts, and
// closes.
func (u *Upstream) Drain(ctx context.Context) {
	u.quiet(ctx)
	u.Close()
}

// DrainToRest is Drain for a session that stays.
func (u *Upstream) DrainToRest(ctx context.Context) {
	u.quiet(ctx)
	u.Rest(context.WithoutCancel(ctx))
}

// quiet waits until no call is under way, at most as long as ctx lasts.
func (u *Upstream) quiet(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for u.calls.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the instance and everything it started. Calls under way fail.
func (u *Upstream) Close() {
	u.finish(func(i driver.Instance, _ json.RawMessage) { u.discard(i) }, func(a *Adoption) { u.endUnadopted(a, u.discard) }, false)
}

// Leave lets go of the instance, so that the next gateway can adopt it.
func (u *Upstream) Leave() {
	u.mu.Lock()
	u.leaving = !u.closed
	u.mu.Unlock()
	u.finish(func(i driver.Instance, _ json.RawMessage) { u.leave(i) }, func(*Adoption) {}, u.o.Keep != nil)
}

func (u *Upstream) leave(inst driver.Instance) {
	if err := inst.Leave(); err != nil {
		u.o.Log.Warn("instance not left in order", "server", u.Server(), "err", err)
	}
}

// finish lets go of everything. The instance is ended by end, which gets what
// its server said; with stays somebody comes back to that server later.
func (u *Upstream) finish(end func(driver.Instance, json.RawMessage), unadopted func(*Adoption), stays bool) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		<-u.finished // who comes second must find it gone, too
		return
	}
	u.closed = true
	defer close(u.finished)
	conn, inst := u.conn, u.inst
	u.conn, u.inst = nil, nil
	if u.retry != nil {
		u.retry.Stop()
	}
	u.mu.Unlock()
	u.end()
	var hello json.RawMessage
	if conn != nil {
		hello = conn.greeting()
		if stays {
			conn.leave()
		} else {
			conn.close()
		}
	}
	u.clock.stop(failure(api.KindLost, u.Server(), false, "was removed or disabled during the call"))
	if inst != nil {
		end(inst, hello)
	}
	u.wg.Wait()
	u.mu.Lock()
	adopt := u.adopt
	u.adopt = nil
	u.mu.Unlock()
	if adopt != nil {
		unadopted(adopt)
	}
	u.freeRoom()
	if u.o.Closed != nil {
		u.o.Closed()
	}
}
