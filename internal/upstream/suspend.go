package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// suspendTime bounds how long keeping the memory of one instance may take.
const suspendTime = 5 * time.Minute

// Suspend is Close for a session that stays: the instance's memory is kept in its
// state if its driver can do that, and the next instance continues with it.
// Otherwise the memory is lost, for the reason why.
func (u *Upstream) Suspend(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(ctx, suspendTime)
	defer cancel()
	u.because(why)
	u.mu.Lock()
	u.suspended = !u.closed
	u.mu.Unlock()
	u.finish(func(i driver.Instance, conn *Conn, hello json.RawMessage) {
		died := over(i)
		if !u.suspend(ctx, i, hello) {
			u.loseOwn(conn, died)
		}
	}, func(i driver.Instance, hello json.RawMessage) bool { return u.suspend(ctx, i, hello) }, true)
}

// suspend ends an instance and keeps its memory, and reports whether that was
// possible.
func (u *Upstream) suspend(ctx context.Context, inst driver.Instance, hello json.RawMessage) bool {
	r, ok := inst.(driver.Suspender)
	if !ok || over(inst) {
		u.discard(inst)
		return false
	}
	var err error
	if len(hello) == 0 {
		err = errors.New("it had not finished its handshake")
	} else {
		err = r.Suspend(ctx, hello)
	}
	switch {
	case err == nil:
		u.drop()
		return true
	case errors.Is(err, errors.ErrUnsupported):
		u.o.Log.Debug("server has no memory to keep", "server", u.Server(), "session", u.o.Spec.Session)
	default:
		u.o.Log.Warn("what a server had in memory is lost: it could not be kept, and is ended; its files stay",
			"server", u.Server(), "session", u.o.Spec.Session, "err", err)
	}
	u.discard(inst)
	return false
}
