package egress

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var errTooMuch = errors.New("more bytes than one connection may move")

// A link is a connection to the outside. It counts what moves, ends itself when nothing
// does, and is reported when it is closed and the last Read and Write have returned, so
// that the counts are exact.
type link struct {
	net.Conn
	p        *Proxy
	began    time.Time // when it was there
	sent     atomic.Int64
	received atomic.Int64
	moved    atomic.Int64 // when something last did, after began; zero for never

	busy sync.RWMutex // held for reading while something is read or written
	once sync.Once

	mu     sync.Mutex
	record Connection
	client *client // of a tunnel, which ends with it
	cut    bool    // by cutOff
	timer  *time.Timer
}

// link wraps a connection so that it is reported. Nil, with the connection closed, when
// the proxy is closed.
func (p *Proxy) link(conn net.Conn, record Connection) *link {
	l := &link{Conn: conn, p: p, record: record, began: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return nil
	}
	p.links[l] = struct{}{}
	p.running.Add(1)
	l.mu.Lock()
	l.timer = time.AfterFunc(min(p.o.FirstByte, p.o.Idle), l.look)
	l.mu.Unlock()
	return l
}

// look ends the link if nothing moved for too long, and else looks again later.
func (l *link) look() {
	limit := l.p.o.FirstByte
	moved := time.Duration(l.moved.Load())
	if moved != 0 {
		limit = l.p.o.Idle
	}
	left := limit - (time.Since(l.began) - moved)
	if left <= 0 {
		l.cutOff(fmt.Sprintf("nothing moved for %s", limit))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		// Whatever moves first may make the limit a shorter one.
		l.timer.Reset(min(left, l.p.o.Idle))
	}
}

// cutOff ends the link, and the client of a tunnel, for a reason. It does not
// wait, so that Read and Write may call it.
func (l *link) cutOff(reason string) {
	l.mu.Lock()
	if l.cut {
		l.mu.Unlock()
		return
	}
	l.cut = true
	if l.record.Reason == "" {
		l.record.Reason = reason
	}
	l.mu.Unlock()
	l.end()
}

// end closes both sides. Close reports the link.
func (l *link) end() {
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	_ = l.Conn.Close()
	if c != nil {
		_ = c.Close()
	}
}

// refuse ends the link as one that is not allowed.
func (l *link) refuse(reason string) {
	l.mu.Lock()
	if !l.cut {
		l.record.Allowed, l.record.Reason = false, reason
	}
	l.mu.Unlock()
	l.p.log.Debug("a connection of a sandbox was refused", "server", l.p.o.Server, "reason", reason)
	l.cutOff(reason)
}

func (l *link) protocol(name string) {
	l.mu.Lock()
	l.record.Protocol = name
	l.mu.Unlock()
}

// Read implements net.Conn.
func (l *link) Read(b []byte) (int, error) {
	l.busy.RLock()
	defer l.busy.RUnlock()
	n, err := l.Conn.Read(b)
	return n, l.count(&l.received, n, err)
}

// Write implements net.Conn.
func (l *link) Write(b []byte) (int, error) {
	l.busy.RLock()
	defer l.busy.RUnlock()
	n, err := l.Conn.Write(b)
	return n, l.count(&l.sent, n, err)
}

func (l *link) count(to *atomic.Int64, n int, err error) error {
	if n <= 0 {
		return err
	}
	to.Add(int64(n))
	l.moved.Store(max(1, int64(time.Since(l.began))))
	if most := l.p.o.MaxBytes; most > 0 && l.sent.Load()+l.received.Load() > most {
		l.cutOff(fmt.Sprintf("%s: %d", errTooMuch, most))
		return errTooMuch
	}
	return err
}

// CloseWrite tells the other side that nothing more comes.
func (l *link) CloseWrite() error { return closeWrite(l.Conn, l.Conn) }

// Close implements net.Conn. It must not be called by Read or Write.
func (l *link) Close() error {
	err := l.Conn.Close()
	l.once.Do(func() {
		l.busy.Lock()
		defer l.busy.Unlock()
		l.mu.Lock()
		l.cut = true
		l.timer.Stop()
		r := l.record
		l.mu.Unlock()
		r.Sent, r.Received, r.Took = l.sent.Load(), l.received.Load(), time.Since(r.Began)
		p := l.p
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
		p.o.Done(r)
		p.running.Done()
	})
	return err
}
