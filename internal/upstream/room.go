package upstream

import (
	"errors"
	"time"

	"github.com/tine-mcp/tine/api"
)

// takeRoom takes the room that an instance needs, and waits for it.
func (u *Upstream) takeRoom() error {
	u.mu.Lock()
	has := u.room != nil
	u.mu.Unlock()
	if has || u.o.Room == nil {
		return nil
	}
	giveBack, err := u.o.Room(u.life)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.room = giveBack
	return nil
}

// freeRoom gives the room back. It may be called twice.
func (u *Upstream) freeRoom() {
	u.mu.Lock()
	giveBack := u.room
	u.room = nil
	u.mu.Unlock()
	if giveBack != nil {
		giveBack()
	}
}

// noRoom ends an attempt that found no room. The server is not at fault, so the
// next call may try again at once; an eager server is retried by the Upstream.
func (u *Upstream) noRoom(a *attempt, err error) {
	u.mu.Lock()
	u.attempt = nil
	a.err = err
	var ours *api.Error
	if !u.closed {
		reason := err.Error()
		if errors.As(err, &ours) {
			reason = Reason(ours)
		}
		u.set(api.StateIdle, reason)
		if ours != nil && ours.Retryable && (u.o.Eager || len(u.watchers) > 0) {
			u.retry = time.AfterFunc(time.Duration(max(1, ours.RetryAfter))*time.Second, u.Kick)
		}
	}
	u.mu.Unlock()
	close(a.done)
}
