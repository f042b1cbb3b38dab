package upstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// If the gateway itself ends an instance, that is a loss like any other for a
// session that stays, except that no call fails. Why is the reason given.

// Drain waits until no call is pending, at most until ctx ends, and ends the
// instance of a session that stays.
func (u *Upstream) Drain(ctx context.Context, why string) {
	u.quiet(ctx)
	u.because(why)
	u.Close()
}

// DrainToRest is Drain, but keeps the instance's memory as Rest does.
func (u *Upstream) DrainToRest(ctx context.Context, why string) {
	u.quiet(ctx)
	u.Suspend(context.WithoutCancel(ctx), why)
}

// because notes why an instance of a session that stays is about to be ended.
func (u *Upstream) because(why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.ending = why
	}
}

// quiet waits until no call is pending, at most until ctx ends.
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

// Close ends the instance and everything it started. Pending calls fail.
func (u *Upstream) Close() {
	u.finish(func(i driver.Instance, conn *Conn, _ json.RawMessage) {
		died := over(i)
		u.discard(i)
		u.loseOwn(conn, died)
	}, func(i driver.Instance, _ json.RawMessage) bool {
		u.discard(i)
		return false
	}, false)
}

// Leave releases the instance, so that the next gateway can adopt it. One that
// can't be adopted ends.
func (u *Upstream) Leave(why string) {
	u.because(why)
	u.mu.Lock()
	u.leaving = !u.closed
	u.mu.Unlock()
	u.finish(func(i driver.Instance, conn *Conn, _ json.RawMessage) {
		died := over(i)
		u.leave(i)
		if u.o.Keep == nil {
			u.loseOwn(conn, died)
		}
	}, nil, u.o.Keep != nil)
}

func (u *Upstream) leave(inst driver.Instance) {
	if err := inst.Leave(); err != nil {
		u.o.Log.Warn("instance not left in order", "server", u.Server(), "err", err)
	}
}

// finish releases everything. end ends the instance, with the connection and what its
// server said; with stays, a later gateway resumes that server.
func (u *Upstream) finish(end func(driver.Instance, *Conn, json.RawMessage), unadopted func(driver.Instance, json.RawMessage) bool, stays bool) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		<-u.finished // a second caller must find it gone, too
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
		end(inst, conn, hello)
	}
	u.wg.Wait()
	u.mu.Lock()
	adopt := u.adopt
	u.adopt = nil
	u.mu.Unlock()
	if adopt != nil && unadopted != nil {
		u.endUnadopted(adopt, unadopted)
	}
	u.freeRoom()
	if u.o.Closed != nil {
		u.o.Closed()
	}
}
