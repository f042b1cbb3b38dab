package upstream

import (
	"errors"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// An instance whose memory is what its server remembers may end while nobody calls
// it. The next one begins anew, and would answer as if nothing had been: so the
// first call after that fails and says what is lost, unless a call that was under
// way has said so already.

// loss is a memory that ended with its instance.
type loss struct {
	err  error
	conn *Conn // whose calls may have said so; nil for none
}

// owe notes that somebody has to be told of a loss. u.mu is held.
func (u *Upstream) owe(why error, conn *Conn) {
	if u.o.Driver.Info().Memory && errors.Is(why, driver.ErrLost) {
		u.owed = &loss{goneError{failure(api.KindLost, u.Server(), false, "%v; the next call begins anew", why)}, conn}
	}
}

// tell returns what somebody has to be told before a request is sent to an instance
// that knows nothing; nil for nothing.
func (u *Upstream) tell(method string) error {
	switch method {
	case wire.MethodCallTool, wire.MethodReadResource, wire.MethodGetPrompt:
	default:
		return nil // what it can do is the same as before
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.owed
	if l == nil {
		return nil
	}
	u.owed = nil
	if l.conn != nil && l.conn.told.Load() {
		return nil
	}
	return l.err
}
