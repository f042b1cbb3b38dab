package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// ServeStdio serves one client on a pair of streams, a message a line, until in
// ends or ctx does. The end of ctx stops the gateway: running calls have
// limits.drain, unless in has ended before. server names the view; empty is the
// merged one. With search two tools stand for all.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer, server string, search bool) error {
	if server != "" && g.reg.Catalog().Entry(server) == nil {
		return control.NoServer(server)
	}
	sess, err := g.sessionFor(ctx, identity.Local(), nil)
	if err != nil {
		return err
	}
	if sess.Kind == session.KindClient {
		defer g.reg.CloseSession(context.WithoutCancel(ctx), sess)
	}
	v := view{server, search}
	if v.merged() {
		v.server = g.reg.Catalog().Config.DefaultView
	}
	d := g.newDuplex(v, sess, identity.Local(), nil)
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		defer telemetry.Contain(g.log, telemetry.InEdge, "stdio", func(error) { d.out.fail() })
		_ = d.out.pump(context.WithoutCancel(ctx), -1, &lineSink{w: bufio.NewWriter(out)})
	}()
	read := make(chan error, 1)
	go func() {
		defer telemetry.Contain(g.log, telemetry.InEdge, "stdio", func(err error) { read <- err })
		read <- g.readLines(in, d)
	}()
	select {
	case err = <-read:
		// The client sends no more: its running requests are still answered,
		// and its subscriptions end.
		close(d.inputEnded)
		d.drain(ctx)
	case <-ctx.Done():
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.reg.Catalog().Config.Limits.Drain)
		g.Drain(wait)
		cancel()
	case <-g.open.Done():
		d.drain(ctx)
	case <-d.out.broken:
	}
	if ctx.Err() != nil { // calls are left that a stop does not wait for
		g.end(&upstream.CutOff{})
		d.wg.Wait()
	}
	d.close()
	select {
	case <-pumped:
	case <-d.out.broken: // the pump may wait for the client for ever
	}
	if d.out.isBroken() {
		return errUnread
	}
	return err
}

// drain waits for the running requests.
func (d *duplex) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// A LineTooLong is the end of a client that sent a message larger than limits.body.
type LineTooLong struct{ Limit int }

func (e *LineTooLong) Error() string {
	return fmt.Sprintf("a message is larger than %d bytes; limits.body can raise that", e.Limit)
}

func (g *Gateway) readLines(in io.Reader, d *duplex) error {
	limit := int(g.edge.Load().body)
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 64<<10), limit)
	for sc.Scan() {
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) > 0 {
			d.receive(bytes.Clone(line))
		}
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return &LineTooLong{Limit: limit}
	} else if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// lineSink writes a message a line.
type lineSink struct{ w *bufio.Writer }

func (s *lineSink) write(_ int, frame []byte) error {
	if _, err := s.w.Write(wire.OneLine(bytes.Clone(frame))); err != nil {
		return err
	}
	return s.w.WriteByte('\n')
}

func (s *lineSink) flush() error { return s.w.Flush() }

func (s *lineSink) ping() error { return nil }
