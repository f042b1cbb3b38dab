package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// call calls a tool of the server, on a new connection if the one there was turns
// out to be lost before the server has seen the call.
func (s *Server) call(ctx context.Context, tool string, args json.RawMessage) (_ *Result, err error) {
	life := s.lifetime(ctx)
	defer func() { life.done(err == nil) }()
	fail := func(kind, cause error) error {
		return &callError{kind, tool, s.place(), withoutURL(cause)}
	}
	for again := true; ; again = false {
		l, err := s.connected(life.ctx)
		if err != nil {
			return nil, fail(ErrNotSent, err)
		}
		if !l.begin() {
			continue // replaced meanwhile
		}
		res, kind, err := l.call(life, tool, args)
		l.end()
		switch {
		case err == nil:
			return res, nil
		case kind == errStale:
			l.lost.Store(true)
			if again && life.ctx.Err() == nil {
				continue
			}
			kind = ErrNotSent
		case s.ctx.Err() != nil:
			if kind == ErrTool {
				kind = ErrOutcomeUnknown // servers that are closed answer their calls so
			}
			err = errClosed
		}
		return nil, fail(kind, err)
	}
}

// A lifetime is the context of all requests of a call. Until there is an answer, the end
// of the caller's context and the limit of a call end it. After an answer the end of the
// answer's body does, at the latest a second later: the connection can be used again only
// if the body was read to its end. A call without an answer ends it at once, since the SDK
// leaves requests open when a session is closed.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	unbind func() bool // nil if the caller's context has no end
	timer  *time.Timer // nil without a limit

	mu       sync.Mutex
	bodies   int // that were not read to their end
	answered bool
}

func (s *Server) lifetime(ctx context.Context) *lifetime {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	life := &lifetime{ctx: own, cancel: cancel}
	if ctx.Done() != nil {
		life.unbind = context.AfterFunc(ctx, func() { cancel(ended(ctx)) })
	}
	if ctx.Err() != nil {
		cancel(ended(ctx)) // before the call is sent
	}
	if limit := s.opts.CallTimeout; limit > 0 {
		life.timer = time.AfterFunc(limit, func() { cancel(timeoutError(limit)) })
	}
	return life
}

// done says that the call has returned, with or without an answer.
func (l *lifetime) done(answered bool) {
	if l.unbind != nil {
		l.unbind()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.answered = answered; {
	case !answered || l.bodies == 0:
		l.end()
	case l.timer != nil:
		l.timer.Reset(time.Second)
	default:
		l.timer = time.AfterFunc(time.Second, func() { l.cancel(nil) })
	}
}

func (l *lifetime) end() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.cancel(nil)
}

func (l *lifetime) bodyOpened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies++
}

func (l *lifetime) bodyEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bodies--; l.bodies == 0 && l.answered {
		l.end()
	}
}

// A timeoutError is the end of Options.CallTimeout.
type timeoutError time.Duration

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(e)) }
func (e timeoutError) Unwrap() error { return context.DeadlineExceeded }

// errStale is the kind of an error of a call that the server has not seen, over a
// connection that is gone.
var errStale = errors.New("stale connection")

// codeRejected is the code of the SDK's own errors, of requests that it could not
// send or that were refused.
const codeRejected = -32005

// call makes one call over a link. The error comes with its kind.
func (l *link) call(life *lifetime, tool string, args json.RawMessage) (_ *Result, kind, _ error) {
	ctx := life.ctx
	switch {
	case ctx.Err() != nil: // net/http may send it all the same
		return nil, ErrNotSent, context.Cause(ctx)
	case tooLong(args):
		return nil, ErrNotSent, errLongArgs
	}
	asking, c := withCapture(ctx)
	c.life = life
	meta, hearing := l.relay.join(ctx, l.blind, forwarded(ctx))
	defer hearing.leave()
	params := &mcp.CallToolParams{Meta: meta, Name: tool, Arguments: args}
	res, err := l.session.CallTool(asking, params)
	sent, answered, status, raw := c.done()
	if err == nil {
		hearing.wait(ctx)
		r, err := received(raw, res)
		return r, ErrTool, err
	}
	if !json.Valid(args) {
		return nil, ErrNotSent, errNotJSON
	}
	answered = answered && c.valid()
	if answered && len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, new(mcp.CallToolResult)) != nil {
		// The SDK can't decode it, such as a content of a type that is newer.
		return &Result{Raw: raw}, nil, nil
	}
	closed := errors.Is(err, mcp.ErrConnectionClosed)
	var wire *jsonrpc.Error
	told := errors.As(err, &wire) && wire.Code != codeRejected
	if l.blind {
		// The SDK's error of a call that was in flight when the connection ended is
		// another one.
		sent, answered = !closed, told
	}
	if cause := context.Cause(ctx); cause != nil && !told {
		// What was answered came too late: servers answer a call that is cancelled.
		answered, err = false, cause
	}
	switch {
	case status == http.StatusNotFound && errors.Is(err, mcp.ErrSessionMissing), status == http.StatusBadRequest && noSession(err):
		return nil, errStale, err
	case told && wire.Code == mcp.CodeHeaderMismatch:
		// The SDK reads a name only from a message without such a number.
		if bad := json.Unmarshal(args, new(any)); bad != nil {
			err = fmt.Errorf("arguments: %w", bad)
		}
		return nil, ErrNotSent, err
	case answered:
		return nil, kindIn(wire), err
	case status >= 400 && status < 500:
		return nil, ErrNotSent, l.denied(err, status)
	case !sent && closed:
		return nil, errStale, err
	case !sent:
		return nil, ErrNotSent, err
	}
	if closed {
		l.lost.Store(true)
	}
	if why := c.reason(nil, l); why != nil && ctx.Err() == nil {
		return nil, ErrOutcomeUnknown, why
	}
	if l.program != nil && ctx.Err() == nil {
		err = l.ended(err)
	}
	return nil, ErrOutcomeUnknown, err
}

// Messages around arguments and results have some more bytes.
const maxBody = maxMessage - 64<<10

const (
	errLongArgs   = localError("the arguments are too long; the limit of a message is 64 MiB")
	errLongResult = localError("the result is too long; the limit of a message is 64 MiB")
)

// tooLong reports whether a message with data in it would be longer than the limit. The
// SDK writes some characters as six.
func tooLong(data []byte) bool {
	if len(data) <= maxBody/6 {
		return false
	}
	size := len(data) + 3*(bytes.Count(data, []byte("\u2028"))+bytes.Count(data, []byte("\u2029")))
	for _, c := range []byte("<>&") {
		size += 5 * bytes.Count(data, []byte{c})
	}
	return size > maxBody
}

// noSession recognizes servers that answer 400 where the specification has 404.
func noSession(err error) bool { return strings.Contains(strings.ToLower(err.Error()), "session") }

// ended adds to err what is known of a program that ended in a call.
func (l *link) ended(err error) error {
	l.lost.Store(true)
	_ = l.connection().Close() // returns when it has ended
	return l.program.explain(err)
}
