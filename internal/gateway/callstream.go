package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A callStream is the answer to POST /v1/call for a caller that takes lines: one
// whenever the server says how far it is, and at last one with the result or the
// error. As long as the server says nothing it is an answer like any other.
//
// Of what comes faster than the caller reads only the newest is sent.
type callStream struct {
	g *Gateway
	a *ask

	mu   sync.Mutex
	next []byte        // the newest line that is not sent yet
	wake chan struct{} // closed with the last one
	done chan struct{} // closed when nothing more is being sent; nil before the first line
	over bool
}

// wantsLines returns the stream of a caller that takes one; nil of others.
func (g *Gateway) wantsLines(a *ask) *callStream {
	if !strings.Contains(a.r.Header.Get("Accept"), mediaLines) {
		return nil
	}
	return &callStream{g: g, a: a, wake: make(chan struct{}, 1)}
}

var _ upstream.Peer = (*callStream)(nil)

// Note implements upstream.Peer.
func (s *callStream) Note(method string, params []byte) {
	if method != wire.NoteProgress {
		return
	}
	line := s.line(params)
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == nil || s.over {
		return
	}
	s.next = line
	if s.done == nil {
		s.done = make(chan struct{})
		go s.pump()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ask implements upstream.Peer.
func (s *callStream) Ask(_ context.Context, method string, _ []byte) upstream.Reply {
	return upstream.Refuse(method, "there is no client to answer")
}

// maxProgress bounds what is told of a message.
const maxProgress = 1024

// line is one about a server's progress; nil for what can't be read.
func (s *callStream) line(params []byte) []byte {
	var p api.CallProgress
	if json.Unmarshal(params, &p) != nil {
		return nil
	}
	if p.Message = s.g.o.Redact.Text(p.Message); len(p.Message) > maxProgress {
		p.Message = strings.ToValidUTF8(p.Message[:maxProgress], "") + "..."
	}
	line, err := json.Marshal(api.CallEvent{Progress: &p})
	if err != nil {
		return nil
	}
	return append(line, '\n')
}

// pump sends lines until the last one.
func (s *callStream) pump() {
	defer close(s.done)
	defer telemetry.Contain(s.g.log, telemetry.InEdge, "progress of a call", func(error) {})
	h := s.a.w.Header()
	h.Set("Content-Type", mediaLines)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s.a.w.WriteHeader(http.StatusOK)
	for range s.wake {
		s.mu.Lock()
		line := s.next
		s.next = nil
		s.mu.Unlock()
		if line != nil {
			_ = s.send(line) // a caller that does not read is noticed at the end
		}
	}
}

func (s *callStream) send(line []byte) error {
	ctl := http.NewResponseController(s.a.w)
	if err := sendPieces(s.a.w, ctl, line); err != nil {
		return err
	}
	return ctl.Flush()
}

// begun reports whether lines were sent already.
func (s *callStream) begun() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done != nil
}

// finish answers with what came of the call.
func (s *callStream) finish(result rawCall, err error) (rawCall, error) {
	if s == nil {
		return result, err
	}
	s.mu.Lock()
	s.over = true
	close(s.wake)
	done := s.done
	s.mu.Unlock()
	if done == nil {
		return result, err
	}
	<-done
	var line []byte
	if err != nil {
		e := asError(s.g.clean(s.a.who, err))
		if line, err = json.Marshal(api.CallEvent{Error: e, Status: httpStatus(e)}); err != nil {
			panic(http.ErrAbortHandler) // no other answer can be sent any more
		}
	} else {
		line = append(wire.OneLine(result.appendMembers([]byte{'{'})), '}')
	}
	if s.send(append(line, '\n')) != nil {
		panic(http.ErrAbortHandler)
	}
	return rawCall{}, errAnswered
}
