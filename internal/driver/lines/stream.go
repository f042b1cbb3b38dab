package lines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// stream is a link: the right to use the conn until it is closed.
type stream struct {
	c    *Conn
	quit chan struct{}
	once sync.Once
}

var _ driver.Stream = (*stream)(nil)

func (s *stream) isClosed() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

func (s *stream) closedError() error {
	return fmt.Errorf("server %q: the link is closed: %w", s.c.server, os.ErrClosed)
}

// ReadFrame implements driver.Stream.
func (s *stream) ReadFrame() ([]byte, error) {
	c := s.c
	c.reading.Lock()
	defer c.reading.Unlock()
	if s.isClosed() {
		return nil, s.closedError()
	}
	frame, err := c.frames.next()
	switch {
	case err == nil:
		return frame, nil
	case s.isClosed():
		return nil, s.closedError()
	case errors.Is(err, io.EOF), errors.As(err, new(*driver.FrameTooLarge)), errors.As(err, new(*driver.StrayLine)):
		return nil, err
	}
	return nil, fmt.Errorf("server %q: read its output: %w", c.server, err)
}

// WriteFrame implements driver.Stream.
func (s *stream) WriteFrame(ctx context.Context, frame []byte) error {
	c := s.c
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.enter(ctx, s); err != nil {
		return err
	}
	defer func() { <-c.writing }()
	if s.isClosed() {
		return s.closedError()
	}
	return c.write(ctx, s, frame)
}

// enter takes the token of writing, when the instance is not held.
func (c *Conn) enter(ctx context.Context, s *stream) error {
	for {
		select {
		case c.writing <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("server %q does not read its input: %w", c.server, ctx.Err())
		case <-s.quit:
			return s.closedError()
		}
		held := c.held.Load()
		if held == nil {
			return nil
		}
		<-c.writing
		select {
		case <-held.over:
		case <-c.over: // nothing will be written, and the error says why
			c.writing <- struct{}{}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("server %q is held while its state is copied: %w", c.server, ctx.Err())
		case <-s.quit:
			return s.closedError()
		}
	}
}

// write sends one line. The caller holds writing.
func (c *Conn) write(ctx context.Context, s *stream, frame []byte) error {
	ends := 0 // bytes that only end a torn line
	if c.torn {
		ends = 1
	}
	var parts [3][]byte
	if len(frame)+2 <= BufferSize {
		buf := c.buffers.Get().(*[]byte)
		defer c.buffers.Put(buf)
		b := (*buf)[:0]
		if c.torn {
			b = append(b, '\n')
		}
		b = append(b, frame...)
		blankBreaks(b[ends:])
		parts[0] = append(b, '\n')
	} else {
		if hasBreak(frame) {
			frame = bytes.Clone(frame)
			blankBreaks(frame)
		}
		if c.torn {
			parts[0] = []byte{'\n'}
		}
		parts[1], parts[2] = frame, []byte{'\n'}
	}

	if len(frame)+ends >= wholeLine {
		c.setMark()
	}
	defer c.takeMark()
	p := pusher{c: c, s: s, ctx: ctx}
	defer p.disarm()
	sent := 0
	for _, part := range parts {
		n, err := p.push(part)
		sent += n
		if err != nil {
			switch {
			case p.unsure || sent > ends:
				c.torn = true
			case sent > 0:
				c.torn = false
			}
			return c.writeError(ctx, s, err)
		}
	}
	c.torn = false
	return nil
}

// setMark says that a long line is being written. Where that fails, the next gateway
// after a death writes to a line without an end, and the program refuses that one.
func (c *Conn) setMark() {
	if c.mark != "" && !c.marked {
		c.marked = os.WriteFile(c.mark, nil, 0o600) == nil
	}
}

// takeMark takes the mark away once no line is without an end.
func (c *Conn) takeMark() {
	if c.marked && !c.torn {
		c.marked = os.Remove(c.mark) != nil
	}
}

func (c *Conn) writeError(ctx context.Context, s *stream, err error) error {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	switch {
	case s.isClosed():
		return s.closedError()
	case ended:
		return fmt.Errorf("server %q: the instance has ended: %w", c.server, io.ErrClosedPipe)
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return fmt.Errorf("server %q does not read its input: %w", c.server, ctx.Err())
	case errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("server %q has closed its input: %w", c.server, err)
	}
	return fmt.Errorf("server %q: write to its input: %w", c.server, err)
}

// pusher writes for one frame. Only a write that has to wait pays for watching
// the context.
type pusher struct {
	c      *Conn
	s      *stream
	ctx    context.Context
	stop   func() bool
	fired  chan struct{}
	unsure bool // a write was broken off after an unknown number of bytes
}

func (p *pusher) push(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		n, err := p.c.pipe.WriteSome(b[sent:], p.fired != nil)
		sent += n
		switch {
		case err == nil:
		case errors.Is(err, ErrWouldBlock):
			p.arm()
		default:
			p.unsure = !p.c.pipe.Partial()
			return sent, err
		}
	}
	return sent, nil
}

func (p *pusher) arm() {
	fired := make(chan struct{})
	p.fired = fired
	p.stop = context.AfterFunc(p.ctx, func() {
		p.c.writeDeadline(p.s, LongAgo)
		close(fired)
	})
}

func (p *pusher) disarm() {
	if p.fired == nil {
		return
	}
	if !p.stop() {
		<-p.fired
	}
	p.c.writeDeadline(p.s, time.Time{})
}

// writeDeadline sets the deadline, unless one was set for good.
func (c *Conn) writeDeadline(s *stream, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.isClosed() || c.ended {
		t = LongAgo
	}
	c.pipe.SetWriteDeadline(t)
}

// Close implements driver.Stream.
func (s *stream) Close() error {
	c := s.c
	s.once.Do(func() {
		c.mu.Lock()
		close(s.quit)
		c.pipe.SetReadDeadline(LongAgo)
		c.pipe.SetWriteDeadline(LongAgo)
		c.mu.Unlock()
		// The next link must not meet a reader or writer of this one.
		c.reading.Lock()
		defer c.reading.Unlock()
		c.writing <- struct{}{}
		defer func() { <-c.writing }()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.link = nil
	})
	return nil
}

// blankBreaks makes spaces of line breaks. In JSON they stand only between
// tokens, and some servers take a carriage return for the end of a line.
func blankBreaks(b []byte) {
	if !hasBreak(b) {
		return
	}
	for i, x := range b {
		if x == '\n' || x == '\r' {
			b[i] = ' '
		}
	}
}

func hasBreak(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0
}
