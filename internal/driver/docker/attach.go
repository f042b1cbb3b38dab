package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// demux takes the streams apart that an engine sends as one: pieces with a header
// that says whose they are and how long. It goes on where a deadline broke it
// off.
type demux struct {
	r    *bufio.Reader
	head [8]byte
	had  int    // bytes of head that are there
	left uint32 // bytes of the piece that are still to come
}

// next waits for the next piece, or for what is left of one, and says whose it is.
func (d *demux) next() (stdcopy.StdType, error) {
	for d.left == 0 {
		for d.had < len(d.head) {
			n, err := d.r.Read(d.head[d.had:])
			d.had += n
			if err != nil && d.had < len(d.head) {
				return 0, err
			}
		}
		d.had = 0
		if t := stdcopy.StdType(d.head[0]); t > stdcopy.Systemerr {
			return 0, fmt.Errorf("the engine sent a stream of the unknown type %d", t)
		}
		d.left = binary.BigEndian.Uint32(d.head[4:])
	}
	return stdcopy.StdType(d.head[0]), nil
}

// read reads of the piece that next found.
func (d *demux) read(b []byte) (int, error) {
	if uint64(len(b)) > uint64(d.left) {
		b = b[:d.left]
	}
	n, err := d.r.Read(b)
	d.left -= uint32(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// systemError reads what the engine itself has to say.
func (d *demux) systemError() error {
	text := make([]byte, min(d.left, 2<<10))
	n, err := io.ReadFull(d.r, text)
	d.left -= uint32(n)
	if err != nil {
		return err
	}
	return fmt.Errorf("the engine says: %s", text)
}

// pipe is a container's input and output.
type pipe struct {
	conn net.Conn
	in   demux
	// why says what the end of the connection means: io.EOF when the server has
	// closed its side.
	why   func() error
	ended atomic.Bool // the container is gone
	lost  atomic.Bool // the connection does not work any more
}

var _ lines.Pipe = (*pipe)(nil)

// attach connects to a container's input and output, which need not run yet.
func (e *engine) attach(ctx context.Context, container string) (*pipe, error) {
	res, err := e.cli.ContainerAttach(ctx, container, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true})
	if err != nil {
		return nil, e.explain("attach to the container", err)
	}
	// What is on the way to a container that does not read is little, so that it
	// has come to its end before the next gateway writes.
	if c, ok := res.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		c.SetWriteBuffer(32 << 10)
	}
	return &pipe{conn: res.Conn, in: demux{r: res.Reader}, why: func() error { return io.EOF }}, nil
}

// Fill implements lines.Pipe.
func (p *pipe) Fill(f *lines.Frames) (int, error) {
	n, err := p.fill(f)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !p.ended.Load() {
			return n, err
		}
		// What the server wrote before it died is on its way.
		p.conn.SetReadDeadline(time.Now().Add(time.Second))
		if n, err = p.fill(f); errors.Is(err, os.ErrDeadlineExceeded) {
			err = io.EOF
		}
	}
	if err != nil {
		f.NoRoom()
	}
	return n, err
}

func (p *pipe) fill(f *lines.Frames) (int, error) {
	for {
		of, err := p.in.next()
		if err != nil {
			return 0, p.broken(err)
		}
		switch of {
		case stdcopy.Systemerr:
			return 0, p.broken(p.in.systemError())
		case stdcopy.Stderr: // which has a connection of its own
			if _, err := io.CopyN(io.Discard, p.in.r, int64(p.in.left)); err != nil {
				return 0, p.broken(err)
			}
			p.in.left = 0
			continue
		}
		n, err := p.in.read(f.Room())
		if err != nil {
			return 0, p.broken(err)
		}
		return n, nil
	}
}

// broken takes note that the connection is over, unless only a deadline is.
func (p *pipe) broken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	p.lost.Store(true)
	if p.ended.Load() || errors.Is(err, net.ErrClosed) {
		return io.EOF
	}
	return p.why()
}

// WriteSome implements lines.Pipe. It always may have to wait, so the first call
// only says so.
func (p *pipe) WriteSome(b []byte, wait bool) (int, error) {
	if !wait {
		return 0, lines.ErrWouldBlock
	}
	n, err := p.conn.Write(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		p.lost.Store(true)
	}
	return n, err
}

// Partial implements lines.Pipe.
func (p *pipe) Partial() bool { return true }

// SetReadDeadline implements lines.Pipe.
func (p *pipe) SetReadDeadline(t time.Time) error { return p.conn.SetReadDeadline(t) }

// SetWriteDeadline implements lines.Pipe.
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.conn.SetWriteDeadline(t) }

// End implements lines.Pipe.
func (p *pipe) End() {
	p.ended.Store(true)
	p.conn.SetReadDeadline(time.Now().Add(time.Second))
	p.conn.SetWriteDeadline(lines.LongAgo)
}

// Close implements lines.Pipe.
func (p *pipe) Close() error { return p.conn.Close() }
