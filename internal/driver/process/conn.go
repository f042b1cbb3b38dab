package process

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// pipe is our end of a child's standard input and output.
type pipe struct {
	r, w   *os.File // non-blocking
	rr, rw syscall.RawConn
	ended  atomic.Bool // the child is gone
	in     incoming
	out    outgoing
}

var _ lines.Pipe = (*pipe)(nil)

func newPipe(r, w *os.File) (*pipe, error) {
	rr, err := r.SyscallConn()
	if err != nil {
		return nil, err
	}
	rw, err := w.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &pipe{r: r, w: w, rr: rr, rw: rw}
	p.in.init()
	p.out.init()
	return p, nil
}

// SetReadDeadline implements lines.Pipe.
func (p *pipe) SetReadDeadline(t time.Time) error { return p.r.SetReadDeadline(t) }

// SetWriteDeadline implements lines.Pipe.
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.w.SetWriteDeadline(t) }

// End implements lines.Pipe.
func (p *pipe) End() {
	p.ended.Store(true)
	p.r.SetReadDeadline(lines.LongAgo)
	p.w.SetWriteDeadline(lines.LongAgo)
}

// Close implements lines.Pipe.
func (p *pipe) Close() error {
	p.r.Close()
	return p.w.Close()
}
