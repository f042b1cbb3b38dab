package egress

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tine-mcp/tine/internal/config/domains"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// maxHello bounds what is kept of a client's first bytes.
const maxHello = 32 << 10

// unrecognized is a fatal alert of TLS: unrecognized_name. Of all that can be sent
// inside of a tunnel, clients understand it best.
var unrecognized = []byte{21, 3, 1, 0, 2, 2, 112}

var errFronted = errors.New("the client asked for another host")

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copyBuffers lends buffers to httputil.
type copyBuffers struct{}

// Get implements httputil.BufferPool.
func (copyBuffers) Get() []byte { return *buffers.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (copyBuffers) Put(b []byte) { buffers.Put(&b) }

// tunnel moves bytes between a client and a link until both directions have ended. early
// is what the client has sent already. The end of one direction is passed on, and the
// other may go on.
func (p *Proxy) tunnel(c *client, early []byte, l *link, t target) {
	l.mu.Lock()
	l.client = c
	cut := l.cut
	l.mu.Unlock()
	if cut {
		_ = c.Close()
	}
	var down sync.WaitGroup
	defer func() {
		down.Wait()
		_ = c.Close()
		_ = l.Close()
	}()
	defer telemetry.Contain(p.log, telemetry.InEgress, p.o.Server, func(error) { l.end() })
	down.Go(func() {
		defer telemetry.Contain(p.log, telemetry.InEgress, p.o.Server, func(error) { l.end() })
		if in, out := move(c, l); in != nil || out != nil || c.CloseWrite() != nil {
			l.end()
		}
	})
	switch in, out := p.up(c, early, l, t); {
	case in != nil:
		l.end()
	case out != nil:
		// It may have answered before it stopped listening. That ends soon.
	case l.CloseWrite() != nil:
		l.end()
	}
}

// up moves what the client says. Its first bytes wait until they are known to be
// no attempt to reach another host.
func (p *Proxy) up(c *client, early []byte, l *link, t target) (in, out error) {
	first := append([]byte(nil), early...)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var end error
	for {
		names, state := readHello(first)
		if state == helloPart && len(first) > maxHello {
			state = helloBad
		}
		switch {
		case state == helloPart && end == nil:
			var n int
			n, end = c.Read(*buf)
			first = append(first, (*buf)[:n]...)
			continue
		case state == helloBad:
			_, _ = c.Write(unrecognized)
			l.refuse(fmt.Sprintf("the TLS in a connection to %s begins in a way that can't be read", t))
			return errFronted, nil
		case state == helloWhole:
			l.protocol(ProtocolTLS)
			if f := p.fronted(names, t); f != nil {
				_, _ = c.Write(unrecognized)
				l.refuse(f.text)
				return errFronted, nil
			}
		case len(first) > 0:
			l.protocol(ProtocolTCP)
		}
		break
	}
	if len(first) > 0 {
		if _, err := l.Write(first); err != nil {
			return nil, err
		}
	}
	if end != nil {
		return ended(end), nil
	}
	return move(l, c)
}

// fronted refuses a ClientHello for another host than the one that was asked
// for. An address has no name to compare with, and was allowed as such.
func (p *Proxy) fronted(names []string, t target) *failure {
	if t.addr.IsValid() {
		return nil
	}
	for _, n := range names {
		if name, err := domains.Name(n); err != nil || name != t.host {
			return refused(fmt.Sprintf("a connection to %s was used to ask for %q; ask for that host itself, which must be in the list of this sandbox", t, clip(n)))
		}
	}
	return nil
}

// move copies until src ends, which is no error. in is what went wrong with src
// and out what went wrong with dst.
func move(dst io.Writer, src io.Reader) (in, out error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := src.Read(*buf)
		if n > 0 {
			if _, err := dst.Write((*buf)[:n]); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return ended(err), nil
		}
	}
}

func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
