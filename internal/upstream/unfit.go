package upstream

import (
	"context"
	"errors"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// A server that was suspended may find that its memory does not fit any more: its
// program has changed, or the machine. The memory stays in its state. The first
// call fails and says so, so that the change can be undone; the next one tries
// again, and begins anew only if the memory still does not fit.
//
//	call: unfit -> lost     call: fits  -> continues with the memory
//	                        call: unfit -> begins anew, the memory is removed

// unfitError is the failure of a start for a memory that does not fit.
type unfitError struct {
	error
	why string
}

func (e unfitError) Unwrap() error { return e.error }

// unfit is the error of a request that can't make the server begin anew.
func (u *Upstream) unfit(why error) (*api.Error, error) {
	ours := failure(api.KindLost, u.Server(), false, "%v; its memory is kept: undo the change, or call the server, which may begin anew", why)
	return ours, unfitError{goneError{ours}, Reason(failure(api.KindLost, u.Server(), false, "%v", why))}
}

// connFor is Conn for a request, which may make the server begin anew. A request
// that needs no memory, such as a list, never does.
func (u *Upstream) connFor(ctx context.Context, req *Request) (*Conn, error) {
	c, err := u.Conn(ctx)
	var unfit unfitError
	if !errors.As(err, &unfit) || !recalls(req.Method) {
		return c, err
	}
	if m := &u.o.Memory; m.Unfit != nil {
		if err := m.Unfit(u.caller(req), unfit.why); err != nil {
			return nil, err
		}
	}
	// An attempt that another caller began may fail for the same reason meanwhile.
	for range 3 {
		u.mu.Lock()
		u.anew = true
		u.mu.Unlock()
		if c, err = u.Conn(ctx); !errors.As(err, &unfit) {
			break
		}
	}
	return c, err
}

// fits reports that a server continues after its memory did not fit.
func (u *Upstream) fits(inst driver.Instance) {
	u.losing.Lock()
	u.stateLost = false
	u.losing.Unlock()
	if u.o.Memory.Fits == nil {
		return
	}
	anew := true
	if r, ok := inst.(driver.Suspender); ok {
		hello, _ := r.Greeted()
		anew = len(hello) == 0
	}
	u.o.Memory.Fits(anew)
}
