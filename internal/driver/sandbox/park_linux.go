//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// parking stops the sandbox of an unused instance, which would use some CPU though its
// program does nothing, and lets it go on when the instance is used.
type parking struct {
	i      *instance
	needed atomic.Int64 // users that must not find it parked
	last   atomic.Int64 // when a byte was sent last
	parked atomic.Bool

	mu    sync.Mutex // held while it is stopped or let go on
	timer *time.Timer
	over  bool
}

func (p *parking) init(i *instance) {
	p.i = i
	p.touch()
}

func (p *parking) touch() { p.last.Store(time.Now().UnixNano()) }

// begin looks from now on whether the instance is needed.
func (p *parking) begin() {
	after := p.i.d.opts.ParkAfter
	if after < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(after, p.look)
}

// look parks the instance where it was not used for long enough.
func (p *parking) look() {
	after := p.i.d.opts.ParkAfter
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	idle := time.Since(time.Unix(0, p.last.Load()))
	if p.needed.Load() > 0 || idle < after {
		p.timer.Reset(max(after-idle, after/4))
		return
	}
	if p.parked.Load() {
		return
	}
	p.parked.Store(true)
	// A user that came in between has not seen that it is parked.
	if p.needed.Load() > 0 || p.i.rec.ID.Signal(unix.SIGSTOP) != nil {
		p.parked.Store(false)
		p.timer.Reset(after)
	}
}

// wake lets the instance go on where it is parked.
func (p *parking) wake() {
	p.touch()
	if !p.parked.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.parked.Load() {
		return
	}
	_ = p.i.rec.ID.Signal(unix.SIGCONT)
	p.parked.Store(false)
	if !p.over && p.timer != nil {
		p.timer.Reset(p.i.d.opts.ParkAfter)
	}
}

// add counts the users of the instance.
func (p *parking) add(n int64) {
	p.needed.Add(n)
	p.wake()
}

// end parks nothing any more.
func (p *parking) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// Acquire implements driver.Parker.
func (i *instance) Acquire() { i.park.add(1) }

// Release implements driver.Parker.
func (i *instance) Release() { i.park.add(-1) }

// waking is a pipe to an instance that may be parked.
type waking struct {
	*fifo.Pipe
	park *parking
}

// Fill implements lines.Pipe. The end of the pipe is seen when it is known what the
// program died of.
func (w waking) Fill(f *lines.Frames) (int, error) {
	n, err := w.Pipe.Fill(f)
	if errors.Is(err, io.EOF) {
		select {
		case <-w.park.i.Done():
		case <-w.park.i.Parted():
		case <-time.After(endingWait):
		}
	}
	return n, err
}

// WriteSome implements lines.Pipe.
func (w waking) WriteSome(b []byte, wait bool) (int, error) {
	if !wait { // as every frame begins
		w.park.i.follow()
		w.park.wake()
		return w.Pipe.WriteSome(b, wait)
	}
	// A parked instance would never read the input that is waited for.
	w.park.add(1)
	defer w.park.add(-1)
	return w.Pipe.WriteSome(b, wait)
}
