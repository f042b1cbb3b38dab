package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

const (
	// sendTimeout bounds a write that no caller waits for.
	sendTimeout = 10 * time.Second
	// maxAsks and maxAskBytes bound the requests of one server that may wait for
	// clients. A single one may be larger.
	maxAsks     = 256
	maxAskBytes = 64 << 20
)

// streamTransport talks over frames: stdio, in-process servers, legacy SSE.
// One goroutine reads and hands answers to the calls that wait for them.
type streamTransport struct {
	c *Conn
	s driver.Stream

	mu      sync.Mutex
	pending map[string]*waiting
	failed  error

	closing sync.Once
	ended   chan struct{}
	reader  sync.WaitGroup
	spoke   atomic.Bool // a message has come
	stray   strayOutput
	wake    *watchdog // of a server that was restored; nil else
}

type waiting struct {
	call   *call
	answer chan answer // holds one
}

type answer struct {
	msg wire.Message
	err error
}

func newStreamTransport(c *Conn, s driver.Stream, o ConnOptions) *streamTransport {
	t := &streamTransport{
		c: c, s: s,
		pending: make(map[string]*waiting),
		ended:   make(chan struct{}),
	}
	if o.restored {
		t.wake = &watchdog{heard: make(chan struct{})}
	}
	t.spoke.Store(o.Hello != nil)
	c.t = t // before the first message is read: a server may speak first
	t.reader.Add(1)
	go t.read()
	return t
}

func (t *streamTransport) read() {
	defer t.reader.Done()
	defer telemetry.Contain(t.c.log, telemetry.InUpstream, t.c.server, t.fail)
	for {
		frame, err := t.s.ReadFrame()
		if err != nil {
			var large *driver.FrameTooLarge
			if errors.As(err, &large) {
				if !t.spoke.Load() {
					t.fail(errNoMessage)
					return
				}
				t.c.garbage.Add(1)
				t.c.log.Warn("a message was dropped", "server", t.c.server, "err", err)
				t.failSole(err)
				continue
			}
			if stray := (*driver.StrayLine)(nil); errors.As(err, &stray) {
				if !t.strays(stray.Text) {
					return
				}
				continue
			}
			if t.c.why != nil && errors.Is(err, io.EOF) {
				if why := t.c.why(t.ended); why != nil {
					t.fail(why)
					return
				}
			}
			t.fail(fmt.Errorf("connection ended: %w", err))
			return
		}
		t.c.traffic.Add(1)
		t.wake.hears()
		msg, err := wire.Scan(frame)
		if err != nil {
			t.c.garbage.Add(1)
			if !t.strays(frame) {
				return
			}
			continue
		}
		switch {
		case msg.IsRequest():
			if t.echoes(msg) {
				t.fail(errEcho(t.c.server))
				return
			}
			t.spoke.Store(true)
			if err := t.c.handleRequest(msg, nil); err != nil {
				t.fail(err)
				return
			}
		case msg.IsNotification():
			t.spoke.Store(true)
			t.c.handleNote(msg, nil)
		default:
			id, ok := wire.Unquote(msg.ID)
			if !ok {
				if msg.Result == nil && msg.Error == nil && !t.strays(frame) {
					return
				}
				continue
			}
			t.spoke.Store(true)
			t.c.callers.answered(id)
			t.mu.Lock()
			w := t.pending[id]
			delete(t.pending, id)
			t.mu.Unlock()
			if w != nil {
				w.answer <- answer{msg: msg}
			}
		}
	}
}

// failSole fails the only pending call, whose answer a dropped message may have
// been. With several pending calls the right one is unknown, and they wait on. A
// call that listens has no answer.
func (t *streamTransport) failSole(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sole *waiting
	for _, w := range t.pending {
		if w.call.req.Method == wire.MethodListen {
			continue
		}
		if sole != nil {
			return
		}
		sole = w
	}
	if sole != nil {
		delete(t.pending, sole.call.id)
		t.c.callers.answered(sole.call.id)
		sole.answer <- answer{err: tooLarge(t.c.server, err)}
	}
}

func (t *streamTransport) fail(err error) {
	t.mu.Lock()
	if t.failed == nil {
		t.failed = err
	}
	t.mu.Unlock()
	t.closing.Do(func() { close(t.ended) })
}

func (t *streamTransport) roundTrip(ctx context.Context, k *call, frame []byte) (wire.Message, error) {
	w := &waiting{call: k, answer: make(chan answer, 1)}
	t.mu.Lock()
	if t.failed != nil {
		err := t.failed
		t.mu.Unlock()
		// Nothing was sent, so nothing is lost.
		return wire.Message{}, NotSent(failure(api.KindInfrastructure, t.c.server, true, "%v", err))
	}
	t.pending[k.id] = w
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.pending, k.id)
		t.mu.Unlock()
	}()
	if err := t.send(ctx, frame); err != nil {
		var status *statusError
		if errors.As(err, &status) {
			return wire.Message{}, refusal(t.c, status)
		}
		if _, posted := t.s.(*sseStream); posted && ctx.Err() != nil {
			k.sent = true
			t.cancel(k) // the POST was interrupted, but the server may have read it
		}
		if ctx.Err() == nil && t.c.why != nil {
			if why := t.c.why(ctx.Done()); why != nil {
				return wire.Message{}, why
			}
		}
		return wire.Message{}, fmt.Errorf("sending the request: %w", err)
	}
	k.sent = true
	t.wake.watch(t)
	select {
	case a := <-w.answer:
		return a.msg, a.err
	case <-ctx.Done():
		t.cancel(k)
		return wire.Message{}, context.Cause(ctx)
	case <-t.ended:
		select {
		case a := <-w.answer:
			return a.msg, a.err
		default:
		}
		return wire.Message{}, t.err()
	}
}

// cancel tells the server that the caller no longer waits for an answer, without
// making the caller wait: it may have given up because the server does not read.
func (t *streamTransport) cancel(k *call) {
	if k.req.Method == wire.MethodInitialize {
		return
	}
	params := append(append([]byte(`{"requestId":`), quoted(k.id)...), '}')
	note := outgoing{frame: wire.AppendRequest(nil, nil, wire.NoteCancelled, params, nil)}
	if err := t.c.backlog.add(t.c, note); err != nil {
		t.c.log.Debug("cancellation of a call not sent to its server", "server", t.c.server, "id", k.id, "err", err)
	}
}

func (t *streamTransport) send(ctx context.Context, frame []byte) error {
	t.c.sending.Add(1)
	defer t.c.sending.Add(-1)
	t.c.traffic.Add(1)
	return t.s.WriteFrame(ctx, wire.OneLine(frame))
}

// standalone has nothing to do: a stream carries everything.
func (t *streamTransport) standalone(context.Context, func()) {}

// private implements transport: no other connection has the stream.
func (t *streamTransport) private() bool { return true }

// find returns the call with the id.
func (t *streamTransport) find(id string) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.pending[id]; w != nil {
		return w.call
	}
	return nil
}

func (t *streamTransport) done() <-chan struct{} { return t.ended }

func (t *streamTransport) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *streamTransport) close() {
	err := errors.New("the gateway ended it during the call")
	if t.c.why != nil {
		now := make(chan struct{})
		close(now)
		if why := t.c.why(now); why != nil {
			err = why // it is closed because the server ended
		}
	}
	t.fail(err)
	_ = t.s.Close()
	t.reader.Wait()
}
