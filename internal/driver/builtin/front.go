package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
)

// A Saver is what a front is closed with, where its body remembers things that are not
// in its state until it is told to write them.
type Saver interface {
	io.Closer
	Save(ctx context.Context) error
}

// closeTime is how long a front may take to close, with what it has to save.
const closeTime = 30 * time.Second

// Edition implements [driver.Fronter].
func (d *Driver) Edition(front string) string { return d.kinds[front].Edition }

// Front implements [driver.Fronter].
func (d *Driver) Front(ctx context.Context, spec driver.Spec, body driver.Body) (link driver.Link, err error) {
	outer := body.Stream
	defer func() {
		if err != nil {
			outer.Close()
		}
	}()
	kind, err := d.kind(spec)
	if err != nil {
		return link, err
	}
	l := newLink()
	body.Stream = &ending{outer, l}
	env := d.env(spec)
	env.Body = &body
	server, closer, err := kind.New(env)
	if err != nil {
		return link, fmt.Errorf("server %q: built-in server %q: %w", spec.Server, spec.Front, err)
	}
	server.AddReceivingMiddleware(containPanics(spec.Server, env.Log))
	var o *mcp.ServerSessionOptions
	if !body.Fresh {
		// The gateway has shaken hands with the front before this one.
		o = &mcp.ServerSessionOptions{State: &mcp.ServerSessionState{
			InitializeParams: &mcp.InitializeParams{}, InitializedParams: &mcp.InitializedParams{},
		}}
	}
	ss, err := server.Connect(context.WithoutCancel(ctx), l, o)
	if err != nil {
		return link, errors.Join(fmt.Errorf("server %q: connect: %w", spec.Server, err), closer.Close())
	}
	closed := make(chan struct{})
	d.fronts.Go(func() {
		defer close(closed)
		if err := ss.Wait(); err != nil && !errors.Is(err, errLinkClosed) {
			env.Log.Debug("session of a front ended", "server", spec.Server, "err", err)
		}
		if err := closer.Close(); err != nil {
			env.Log.Debug("front not closed in order", "server", spec.Server, "err", err)
		}
	})
	link = driver.Link{Stream: &fronted{(*stream)(l), outer, closed}, Own: true}
	if saver, ok := closer.(Saver); ok {
		link.Save = saver.Save
	}
	return link, nil
}

// ending is a body's stream. When the body has ended so has the front's link, and the
// gateway asks the body's driver why; calls in progress are not answered.
type ending struct {
	driver.Stream
	link *link
}

func (s *ending) ReadFrame() ([]byte, error) {
	frame, err := s.Stream.ReadFrame()
	var stray *driver.StrayLine
	var large *driver.FrameTooLarge
	if err != nil && !errors.As(err, &stray) && !errors.As(err, &large) {
		s.link.close()
	}
	return frame, err
}

// fronted is the gateway's end of a front's link.
type fronted struct {
	driver.Stream
	body   driver.Stream
	closed <-chan struct{} // the front has let go of the body
}

// Close implements [driver.Stream]. The instance can be dialed again when it returns.
func (s *fronted) Close() error {
	err := s.Stream.Close()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-s.closed:
	case <-timer.C:
	}
	return errors.Join(err, s.body.Close())
}
