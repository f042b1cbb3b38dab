package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

const (
	// writeWait is how long a client may take to read one piece of an answer.
	writeWait = 30 * time.Second
	piece     = 64 << 10
	// heldBack is what net/http keeps of an answer until its handler has
	// returned: so little holds no handler up.
	heldBack = 2 << 10
)

// send writes an answer. A client that does not read it in time loses its
// connection.
func send(w http.ResponseWriter, b []byte) error {
	if len(b) <= heldBack {
		_, err := w.Write(b)
		return err
	}
	return sendPieces(w, http.NewResponseController(w), b)
}

func sendPieces(w http.ResponseWriter, ctl *http.ResponseController, b []byte) error {
	for {
		part := b[:min(len(b), piece)]
		_ = ctl.SetWriteDeadline(time.Now().Add(writeWait))
		if _, err := w.Write(part); err != nil {
			return err
		}
		if b = b[len(part):]; len(b) == 0 {
			return nil
		}
	}
}

// A responder answers one POST: with plain JSON as long as there is only the
// answer, with an event stream from the first message that comes before it.
type responder struct {
	w      http.ResponseWriter
	ctx    context.Context // of the HTTP request
	log    *slog.Logger
	events bool // the client takes event streams
	json   bool // the client takes plain JSON
	// resume, when not nil, keeps the stream for a client that comes back.
	resume func(id string, o *outbox)
	prime  bool // the stream begins with an empty event that carries an id

	mu     sync.Mutex
	box    *outbox
	pumped chan struct{}
	done   bool // the answer is being sent: it is too late for a stream
}

// outbox returns where messages before the answer go, starting the event
// stream at its first use.
func (r *responder) outbox() *outbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.box != nil {
		return r.box
	}
	r.box = newOutbox(r.resume != nil, r.log)
	if !r.events || r.done {
		r.box.close() // nothing but the answer can be sent
		return r.box
	}
	s := &eventSink{w: r.w, ctl: http.NewResponseController(r.w)}
	if r.resume != nil {
		s.id = newClientID()[:12]
		r.resume(s.id, r.box)
	}
	startEvents(r.w)
	r.pumped = make(chan struct{})
	go func() {
		defer close(r.pumped)
		defer telemetry.Contain(r.log, telemetry.InEdge, "event stream", func(error) { r.box.fail() })
		if r.prime && s.id != "" {
			if s.raw([]byte("id: "+s.id+"_-1\nretry: 1000\ndata: \n\n")) != nil || s.flush() != nil {
				return
			}
		}
		_ = r.box.pump(r.ctx, -1, s)
	}()
	return r.box
}

// after tells the client when to try again, where the answer says so and its
// headers are not sent yet.
func (r *responder) after(res *upstream.Result) {
	if res.RetryAfter <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pumped == nil {
		r.w.Header().Set("Retry-After", strconv.Itoa(res.RetryAfter))
	}
}

// last closes the response to further messages and returns its stream, if one
// has begun.
func (r *responder) last() (*outbox, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	return r.box, r.pumped
}

// finish sends an answer: as plain JSON, or as an event where the stream has
// begun, where the client takes nothing else, or where events are asked for
// and taken. status is for plain JSON; zero means 200.
func (r *responder) finish(frame []byte, status int, events bool) {
	box, pumped := r.last()
	if pumped != nil {
		box.add(frame, "", kindAnswer)
		box.close()
		<-pumped
		if box.isBroken() {
			panic(http.ErrAbortHandler) // the client must not take what it has for the whole
		}
		return
	}
	if r.events && status == 0 && (events || !r.json) {
		eventHeaders(r.w)
		out := make([]byte, 0, len(frame)+64)
		if r.prime {
			out = append(out, "retry: 1000\n"...)
		}
		_ = send(r.w, wire.AppendEvent(out, "", frame))
		return
	}
	h := r.w.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(frame))}
	if status != 0 {
		r.w.WriteHeader(status)
	}
	_ = send(r.w, frame)
}

// later sends the client away, to come back for the answer: the way a server
// did that it was relayed from.
func (r *responder) later(frame []byte, after time.Duration) bool {
	if _, pumped := r.last(); pumped != nil || !r.events || !r.prime || r.resume == nil {
		return false
	}
	box, id := newOutbox(true, r.log), newClientID()[:12]
	box.add(frame, "", kindAnswer)
	box.close()
	r.resume(id, box)
	startEvents(r.w)
	_, _ = fmt.Fprintf(r.w, "id: %s_-1\nretry: %d\ndata: \n\n", id, after.Milliseconds())
	return true
}

// abort ends the response without an answer.
func (r *responder) abort() {
	box, pumped := r.last()
	if box != nil {
		box.close()
	}
	if pumped != nil {
		<-pumped
		return
	}
	r.w.WriteHeader(http.StatusAccepted)
}

var contentJSON = []string{"application/json"}

func startEvents(w http.ResponseWriter) {
	wasRead(w)
	eventHeaders(w)
	w.WriteHeader(http.StatusOK)
}

func eventHeaders(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = contentEvents
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering
}

var (
	contentEvents = []string{"text/event-stream"}
	noCache       = []string{"no-cache, no-transform"}
	noBuffering   = []string{"no"}
)

// eventSink writes server-sent events.
type eventSink struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
	id  string // of the stream; empty for events without ids
	buf []byte
}

func (s *eventSink) raw(b []byte) error { return sendPieces(s.w, s.ctl, b) }

func (s *eventSink) write(num int, frame []byte) error {
	id := ""
	if s.id != "" {
		id = s.id + "_" + strconv.Itoa(num)
	}
	s.buf = wire.AppendEvent(s.buf[:0], id, frame)
	return s.raw(s.buf)
}

func (s *eventSink) flush() error { return s.ctl.Flush() }

func (s *eventSink) ping() error {
	if err := s.raw([]byte(": ok\n\n")); err != nil {
		return err
	}
	return s.flush()
}
