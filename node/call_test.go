package node

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An answered call ends when its answer's body was read, and without that a second later.
// A call without an answer ends at once.
func TestLifetime(t *testing.T) {
	for _, limit := range []time.Duration{30 * time.Second, -1} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{opts: Options{CallTimeout: limit}}
			begin := func() *lifetime {
				ctx, cancel := context.WithCancel(t.Context())
				b := s.lifetime(ctx)
				unbind := b.unbind
				b.unbind = func() bool { defer cancel(); return unbind() } // as callers do
				b.bodyOpened()
				return b
			}
			ended := func(b *lifetime) bool {
				synctest.Wait()
				return b.ctx.Err() != nil
			}

			b := begin()
			b.bodyEnded() // such as one that asked for input
			b.bodyOpened()
			b.done(true)
			if ended(b) {
				t.Error("an answered call ended before its body")
			}
			b.bodyEnded()
			if !ended(b) {
				t.Error("an answered call goes on after its body")
			}

			b = begin()
			b.bodyEnded()
			if ended(b) {
				t.Error("a call ended before it was answered")
			}
			b.done(true)
			if !ended(b) {
				t.Error("a call whose body was read goes on after its answer")
			}

			b = begin()
			b.done(true)
			time.Sleep(time.Second)
			if !ended(b) {
				t.Error("a call whose body has no end goes on")
			}

			b = begin()
			b.done(false)
			if !ended(b) {
				t.Error("a call without an answer goes on")
			}

			b = begin()
			time.Sleep(time.Minute)
			if ended(b) != (limit > 0) {
				t.Errorf("a minute later, a call with a limit of %v: %v", limit, context.Cause(b.ctx))
			}
			b.done(false)
		})
	}
}

// TestAnsweredTooLate has answers come after the end of a call's context and before the SDK's
// CallTool has returned.
func TestAnsweredTooLate(t *testing.T) {
	for _, failure := range []error{nil, errors.New("cancelled")} {
		answer := make(chan struct{})
		server := mcp.NewServer(&mcp.Implementation{Name: "late"}, nil)
		server.AddTool(&mcp.Tool{Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				<-answer
				return &mcp.CallToolResult{}, failure
			})
		ours, theirs := mcp.NewInMemoryTransports()
		if _, err := server.Connect(t.Context(), theirs, nil); err != nil {
			t.Fatal(err)
		}
		s := &Server{opts: Options{Implementation: &mcp.Implementation{Name: "caller"}}}
		l := &link{relay: &s.relay}
		watched := &watchedTransport{Transport: ours, seen: make(chan struct{})}
		var err error
		if l.session, err = s.client().Connect(t.Context(), transport{watched, l}, nil); err != nil {
			t.Fatal(err)
		}
		defer l.session.Close()

		ctx, cancel := context.WithCancelCause(t.Context())
		life := &lifetime{ctx: &lateContext{Context: ctx, ended: func() {
			watched.answering.Store(true)
			close(answer)
			<-watched.seen
		}}}
		time.AfterFunc(100*time.Millisecond, func() { cancel(timeoutError(time.Second)) })
		res, kind, err := l.call(life, "wait", json.RawMessage("{}"))
		if kind != ErrOutcomeUnknown || !errors.Is(err, context.DeadlineExceeded) || res != nil {
			t.Errorf("answered with the error %v: %v, %v, %v", failure, res, kind, err)
		}
	}
}

// A lateContext calls ended the first time that it says that it has ended.
type lateContext struct {
	context.Context
	ended func()
	once  sync.Once
}

func (c *lateContext) Err() error {
	err := c.Context.Err()
	if err != nil {
		c.once.Do(c.ended)
	}
	return err
}

// A watchedTransport closes seen when the first response since answering was looked at.
type watchedTransport struct {
	mcp.Transport
	mcp.Connection
	answering atomic.Bool
	response  bool
	seen      chan struct{}
}

func (w *watchedTransport) Connect(ctx context.Context) (_ mcp.Connection, err error) {
	w.Connection, err = w.Transport.Connect(ctx)
	return w, err
}

func (w *watchedTransport) Read(ctx context.Context) (jsonrpc.Message, error) {
	if w.response {
		close(w.seen)
	}
	msg, err := w.Connection.Read(ctx)
	_, ok := msg.(*jsonrpc.Response)
	w.response = ok && w.answering.CompareAndSwap(true, false)
	return msg, err
}
