package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/gate"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

const (
	// queued is how many answers may wait before their writers do.
	queued = 16
	// atOnce is how many requests of one link run at once.
	atOnce = 256
)

var errLinkClosed = fmt.Errorf("link to an orchestrator: %w", os.ErrClosed)

// A stream is an MCP server with tools alone, in this process, whose calls the
// orchestrator answers. Results pass through it as they are.
type stream struct {
	i      *instance
	out    chan []byte
	places chan struct{}

	life context.Context
	cut  context.CancelFunc
	once sync.Once
	gone chan struct{}
	left atomic.Bool // it was the gateway that closed it

	ended bool // ReadFrame has reported the end; its one reader's own

	mu    sync.Mutex
	calls map[string]context.CancelFunc // by their raw id
}

var _ driver.Stream = (*stream)(nil)

func newStream(i *instance) *stream {
	s := &stream{
		i: i, out: make(chan []byte, queued), places: make(chan struct{}, atOnce),
		gone: make(chan struct{}), calls: make(map[string]context.CancelFunc),
	}
	s.life, s.cut = context.WithCancel(i.life)
	return s
}

func (s *stream) isClosed() bool { return isOver(s.gone) }

func (s *stream) close() {
	s.once.Do(func() {
		close(s.gone)
		s.cut()
	})
}

// Close implements driver.Stream. Running calls are cancelled.
func (s *stream) Close() error {
	s.left.Store(true)
	s.close()
	return nil
}

// ReadFrame implements driver.Stream.
func (s *stream) ReadFrame() ([]byte, error) {
	switch {
	case s.left.Load():
		return nil, errLinkClosed
	case s.ended:
		return nil, io.EOF
	}
	select {
	case f := <-s.out:
		return f, nil
	case <-s.gone:
	}
	if s.left.Load() {
		return nil, errLinkClosed
	}
	// What was written before the end still counts.
	select {
	case f := <-s.out:
		return f, nil
	default:
		s.ended = true
		return nil, io.EOF
	}
}

// WriteFrame implements driver.Stream.
func (s *stream) WriteFrame(ctx context.Context, frame []byte) error {
	if s.isClosed() {
		return errLinkClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	msg, err := wire.Scan(bytes.Clone(frame))
	if err != nil {
		return fmt.Errorf("frame is not a JSON-RPC message: %w", err)
	}
	if !msg.IsRequest() {
		if msg.Method == wire.NoteCancelled {
			s.cancel(msg.Params)
		}
		return nil
	}
	select {
	case s.places <- struct{}{}:
	case <-s.gone:
		return errLinkClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	life, cut := context.WithCancel(s.life)
	id := string(msg.ID)
	s.mu.Lock()
	s.calls[id] = cut
	s.mu.Unlock()
	if !s.i.begin(func() {
		defer func() {
			s.mu.Lock()
			delete(s.calls, id)
			s.mu.Unlock()
			cut()
			<-s.places
		}()
		defer telemetry.Contain(s.i.d.log, telemetry.InDriver, s.i.handle.Server, func(err error) {
			select {
			case s.out <- s.i.failure(msg, err):
			case <-s.gone:
			}
		})
		s.serve(life, msg)
	}) {
		cut()
		return errLinkClosed
	}
	return nil
}

// begin does something that the end of the instance waits for.
func (i *instance) begin(f func()) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.left || i.stopping != nil {
		return false
	}
	i.work.Go(f)
	return true
}

func (s *stream) cancel(params []byte) {
	at, err := wire.Find(params, "requestId")
	if err != nil {
		return
	}
	s.mu.Lock()
	cut := s.calls[string(at.Of(params))]
	s.mu.Unlock()
	if cut != nil {
		cut()
	}
}

// serve answers one request.
func (s *stream) serve(ctx context.Context, msg wire.Message) {
	result, err := s.i.answer(ctx, msg)
	if err != nil && ctx.Err() != nil {
		return // no caller waits for it
	}
	frame := wire.AppendResult(nil, msg.ID, result)
	if err != nil {
		frame = s.i.failure(msg, err)
	}
	select {
	case s.out <- frame:
	case <-s.gone:
	}
	if errors.Is(err, driver.ErrLost) {
		s.i.fail(err)
	}
}

var errMethod = &wire.Error{Code: wire.CodeMethodNotFound, Message: "method not found"}

// answer is the result of a request.
func (i *instance) answer(ctx context.Context, msg wire.Message) ([]byte, error) {
	switch msg.Method {
	case wire.MethodInitialize:
		return i.hello(msg.Params), nil
	case wire.MethodPing:
		return []byte("{}"), nil
	case wire.MethodListTools, wire.MethodCallTool:
	default:
		return nil, errMethod
	}
	if err := i.gate.Enter(ctx); err != nil {
		return nil, err
	}
	defer i.gate.Leave()
	if msg.Method == wire.MethodListTools {
		params := []byte("{}")
		if cursor := wire.FindString(msg.Params, "cursor"); cursor != "" {
			params = append(wire.AppendQuote([]byte(`{"cursor":`), cursor), '}')
		}
		return i.o.list(ctx, i.e, params)
	}
	name := wire.FindString(msg.Params, "name")
	if name == "" {
		return nil, &wire.Error{Code: wire.CodeInvalidParams, Message: "params.name must name a tool"}
	}
	arguments := []byte("{}")
	if at, err := wire.Find(msg.Params, "arguments"); err == nil && at.Ok() && string(at.Of(msg.Params)) != "null" {
		arguments = at.Of(msg.Params)
	}
	return i.o.call(ctx, i.e, name, arguments)
}

// hello answers the handshake.
func (i *instance) hello(params []byte) []byte {
	version := wire.FindString(params, "protocolVersion")
	if !wire.Known(version) || wire.Modern(version) {
		version = wire.LatestLegacy
	}
	name := i.e.Access.Remote.Resource
	if name == "" {
		name = i.handle.Server
	}
	out := wire.AppendQuote([]byte(`{"protocolVersion":`), version)
	out = append(out, `,"capabilities":{"tools":{}},"serverInfo":{"name":`...)
	return append(wire.AppendQuote(out, name), `,"version":"remote"}}`...)
}

// failure is the answer to a request that the orchestrator did not answer. That
// of a call is a tool's result, whose _meta says that the tool is not to blame.
func (i *instance) failure(msg wire.Message, err error) []byte {
	var rpc *wire.Error
	if errors.As(err, &rpc) {
		return wire.AppendFailure(nil, msg.ID, wire.AppendError(nil, rpc))
	}
	e := &api.Error{Kind: api.KindInfrastructure, Server: i.handle.Server, Message: err.Error()}
	var f *fault
	var failed *toolError
	switch {
	case errors.Is(err, driver.ErrLost), errors.Is(err, gate.ErrClosed):
		e.Kind = api.KindLost
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = api.KindTimeout
	case errors.As(err, &failed):
		e.Kind = cmp.Or(failed.kind, api.KindRefused)
	case errors.As(err, &f):
		// Any other may have been carried out.
		e.Retryable = f.unsent || f.status == http.StatusTooManyRequests || f.status == http.StatusServiceUnavailable
		e.RetryAfter = int(f.after.Seconds())
		if f.status >= 400 && f.status < 500 && !f.passing() {
			e.Kind = api.KindRefused
		}
		e.Kind = cmp.Or(f.kind, e.Kind)
	}
	detail, jsonErr := json.Marshal(e)
	if jsonErr != nil {
		detail = []byte("{}")
	}
	detail = append(append([]byte(`{"`+wire.MetaTineError+`":`), detail...), '}')
	if msg.Method != wire.MethodCallTool {
		return wire.AppendFailure(nil, msg.ID, wire.AppendError(nil, &wire.Error{Code: wire.CodeTine, Message: e.Message, Data: detail}))
	}
	out := append([]byte(`{"_meta":`), detail...)
	out = wire.AppendQuote(append(out, `,"content":[{"type":"text","text":`...), e.Message)
	return wire.AppendResult(nil, msg.ID, append(out, `}],"isError":true}`...))
}
