// Package record records calls: every request of a server that a client causes is
// counted, traced and, depending on the server's journal mode, kept in the journal
// before it is answered.
package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// Options are the places to record to. Each may be nil.
type Options struct {
	Journal *journal.Journal
	Metrics *telemetry.Metrics
	Tracing *telemetry.Tracing
	Redact  *telemetry.Redactor
	Log     *slog.Logger
	Trouble *Trouble // with the journal, of all servers together
}

// Trouble logs once that calls are not in the journal. On a full disk small ones
// still fit where large ones don't, so it ends only after a while without a lost
// call.
type Trouble struct {
	last atomic.Int64 // when a call was last lost, in Unix nanoseconds; zero for never
}

const troubleOver = time.Minute

func (t *Trouble) note(log *slog.Logger, err error) {
	if t == nil || err == nil {
		return
	}
	now := time.Now()
	if last := t.last.Swap(now.UnixNano()); last == 0 || now.Sub(time.Unix(0, last)) > troubleOver {
		log.Error("calls are not in the journal; tine_journal_errors_total counts them", "err", err)
	}
}

// A Server is what is known of the calls of one server, in all sessions.
type Server struct {
	id      string
	began   time.Time
	o       Options
	metrics *telemetry.ServerMetrics
	mode    atomic.Pointer[string]

	calls    atomic.Int64
	failures atomic.Int64

	mu   sync.Mutex
	last *api.LastError
	ring [latencies]time.Duration
	next int
	full bool
}

// latencies is how many calls the figures of latency are of.
const latencies = 256

// NewServer makes the record of a server.
func NewServer(id, mode string, o Options) *Server {
	s := &Server{id: id, began: time.Now(), o: o, metrics: o.Metrics.Server(id)}
	s.SetMode(mode)
	return s
}

// inlineLabel is the server in the metrics of all servers that are in no config: their
// names are made at run time, and there is no end of them. No server has this id.
const inlineLabel = "(inline)"

// NewInlineServer makes the record of a server that is in no config.
func NewInlineServer(id, mode string, o Options) *Server {
	s := &Server{id: id, began: time.Now(), o: o, metrics: o.Metrics.Server(inlineLabel)}
	s.SetMode(mode)
	return s
}

// SetMode says how much the journal keeps from now on: full, meta or off.
func (s *Server) SetMode(mode string) { s.mode.Store(&mode) }

// Metrics returns the server's counters, for the policies.
func (s *Server) Metrics() *telemetry.ServerMetrics { return s.metrics }

// Wrap records the calls of a Caller, under the name that its session has for
// the server.
func (s *Server) Wrap(member string, next upstream.Caller) upstream.Caller {
	return &recorder{s, member, next}
}

type recorder struct {
	s      *Server
	member string
	next   upstream.Caller
}

// Call implements upstream.Caller.
func (r *recorder) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	s := r.s
	var span *telemetry.Span
	if s.o.Tracing != nil {
		span = s.o.Tracing.Start(telemetry.Parent{Traceparent: req.Trace, Tracestate: req.TraceState}, spanName(req), telemetry.Client,
			telemetry.Str(telemetry.MCPMethod, req.Method), telemetry.Str(telemetry.TineServer, s.id))
		if req.Method == wire.MethodCallTool {
			span.Set(telemetry.Str(telemetry.ToolName, req.Name), telemetry.Str(telemetry.OperationName, "execute_tool"))
		}
		if trace, state := span.Trace(); trace != "" {
			req.Trace, req.TraceState = trace, state
		}
	}
	began := time.Now()
	if note := s.begin(r.member, req, began); note != 0 {
		defer s.o.Journal.End(note)
	}
	res, err := r.next.Call(ctx, req)
	err = upstream.Cut(ctx, r.member, err)
	took := time.Since(began)
	outcome, message := Outcome(ctx, res, err)
	message = s.shown(message)
	s.note(req.Method, outcome, message, took, failed(outcome, err))
	if span != nil {
		span.End(outcome, message)
	}
	s.journal(r.member, req, res, began, took, outcome, message, span.ID())
	return res, err
}

// shown is a failure's text as it is kept. It is masked while its secrets are known,
// and before it is cut: half a secret would not be found.
func (s *Server) shown(message string) string {
	if message == "" {
		return ""
	}
	return clip(s.o.Redact.Text(message[:min(len(message), maxMessage)]))
}

func spanName(req *upstream.Request) string {
	if req.Method == wire.MethodCallTool || req.Method == wire.MethodGetPrompt {
		return req.Method + " " + req.Name
	}
	return req.Method
}

var isError = []byte(`"isError"`)

// Outcome tells how a call with a context ended, and its error text if it failed.
func Outcome(ctx context.Context, res *upstream.Result, err error) (outcome, message string) {
	switch {
	case err != nil:
		var ours *api.Error
		if !errors.As(err, &ours) {
			return string(api.KindInfrastructure), err.Error()
		}
		if ours.Kind == api.KindRefused && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return api.OutcomeCancelled, ours.Message
		}
		return string(ours.Kind), ours.Message
	case res.Error != nil:
		e := wire.ParseError(res.Error)
		switch {
		case e.Mistake():
			return string(api.KindInvalid), e.Message
		case e.Code == wire.CodeTine:
			return kindIn(e.Data, "kind"), e.Message
		}
		return string(api.KindTool), e.Message
	case bytes.Contains(res.Result, isError):
		if at, err := wire.Find(res.Result, "isError"); err == nil && string(at.Of(res.Result)) == "true" {
			return kindIn(res.Result, "_meta", wire.MetaTineError, "kind"), firstText(res.Result)
		}
	}
	return api.OutcomeOK, ""
}

// kindIn is the kind that a failure of a gateway names at a path, such as one of the
// control tools or of a gateway behind this one. Any other failure is the tool's own.
func kindIn(raw []byte, path ...string) string {
	at, err := wire.Find(raw, path...)
	var kind api.Kind
	if err != nil || !at.Ok() || json.Unmarshal(at.Of(raw), &kind) != nil {
		return string(api.KindTool)
	}
	switch kind {
	case api.KindInfrastructure, api.KindTimeout, api.KindRefused, api.KindInvalid, api.KindLost:
		return string(kind)
	}
	return string(api.KindTool)
}

// firstText is the beginning of the first text of a tool's result.
func firstText(result []byte) string {
	at, err := wire.Find(result, "content")
	if err != nil || !at.Ok() {
		return ""
	}
	list := at.Of(result)
	items, err := wire.Items(list)
	if err != nil || len(items) == 0 {
		return ""
	}
	return wire.FindString(items[0].Of(list), "text")
}

// maxMessage is how much of a failure's text is read. Far less is kept, so a secret
// that is cut in two here is not shown.
const maxMessage = 16 << 10

func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not inside of a character
		cut--
	}
	return s[:cut] + "..."
}

// failed reports whether a call failed through the server's fault. A tool's own error is
// an answer, and the caller's mistakes and refusals are no failure of the server either;
// a refusal to the gateway itself, such as of its credential, is one.
func failed(outcome string, err error) bool {
	switch outcome {
	case string(api.KindInfrastructure), string(api.KindTimeout), string(api.KindLost):
		return true
	}
	var ours *api.Error
	return errors.As(err, &ours) && ours.Final && outcome != api.OutcomeCancelled
}

// note counts a call.
func (s *Server) note(method, outcome, message string, took time.Duration, failed bool) {
	s.metrics.Call(outcome, took)
	counts := journalled(method) // lists are asked for by the gateway itself, too
	if counts {
		s.calls.Add(1)
	}
	if failed {
		s.failures.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if counts { // lists come out of a cache, and would look like speed
		s.ring[s.next] = took
		if s.next++; s.next == latencies {
			s.next, s.full = 0, true
		}
	}
	if failed {
		s.last = &api.LastError{At: time.Now(), Kind: api.Kind(outcome), Message: message}
	}
}

// journalled reports whether a method's calls are kept. Lists are read all the time
// and change nothing.
func journalled(method string) bool {
	switch method {
	case wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates, wire.MethodListen:
		return false
	}
	return true
}

// begin notes a running call in the journal; journal completes it when the call has
// ended.
func (s *Server) begin(member string, req *upstream.Request, began time.Time) journal.Note {
	mode := *s.mode.Load()
	if s.o.Journal == nil || mode == config.JournalOff || !journalled(req.Method) {
		return 0
	}
	return s.o.Journal.Begin(&journal.Entry{
		At: began, Principal: req.Who, Session: req.Session, Run: req.Run, Server: member, Method: req.Method, Name: req.Name, Mode: mode,
	})
}

func (s *Server) journal(member string, req *upstream.Request, res *upstream.Result, began time.Time, took time.Duration, outcome, message, trace string) {
	mode := *s.mode.Load()
	if s.o.Journal == nil || mode == config.JournalOff || !journalled(req.Method) {
		return
	}
	e := journal.Entry{
		At: began, Principal: req.Who, Session: req.Session, Run: req.Run, Server: member, Method: req.Method, Name: req.Name,
		Duration: took, Outcome: outcome, Mode: mode, Trace: trace,
	}
	if mode == config.JournalFull {
		e.Params, e.Error = req.Params.Raw, message
		if res != nil {
			if e.Result = res.Result; res.Error != nil {
				e.Result = res.Error
			}
		}
	}
	// The call was made, so its answer does not wait for a journal that can't be
	// written; the log and a counter report that.
	err := s.o.Journal.Append(&e)
	if err != nil {
		s.o.Metrics.JournalError()
	} else {
		req.Call = e.ID
	}
	s.o.Trouble.note(s.o.Log, err)
}
