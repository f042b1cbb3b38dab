package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
)

const (
	// RequestTime is how long a request may take to arrive. The server that the
	// handler runs in has to have it as its ReadTimeout.
	RequestTime = time.Minute
	// restWait is how long the rest of a request may take to come whose answer is
	// an error, where net/http reads it.
	restWait = 2 * time.Second
	// restRead is how much of it net/http reads at most before it answers.
	restRead = 256 << 10
	// lingerFor is how long a request that was refused is still read, and
	// lingerPause how long its client may pause meanwhile. Over HTTP/2 the answer
	// ends with the request, and a client that stops sending must not wait for it.
	lingerFor    = 30 * time.Second
	lingerPause  = 5 * time.Second
	lingerPause2 = 250 * time.Millisecond
	// lingerBytes is how much of it is read, besides twice the limit.
	lingerBytes = 64 << 20
)

// bodyTooLarge is the error of a request whose body is over the limit.
func bodyTooLarge(limit int64) *api.Error {
	return &api.Error{
		Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("the request is larger than %d bytes; limits.body can raise that", limit),
	}
}

// unreadable is the error of a body that could not be read. What the connection
// says of itself has addresses in it and is not for the client.
func unreadable(err error, limit int64) *api.Error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return bodyTooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return tooSlow(fmt.Sprintf("the request did not arrive within %d seconds, which is how long one may take", int(RequestTime.Seconds())))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("the request's body ended before its announced length")
	}
	return invalid("the request's body could not be read")
}

// tooSlow is the error of a request that takes too long to arrive.
func tooSlow(message string) *api.Error {
	return &api.Error{Kind: api.KindTimeout, Status: http.StatusRequestTimeout, Retryable: true, Message: message}
}

// hurry bounds how long an answer waits for the rest of its request, which
// net/http reads first: a client that sends nothing must not keep its
// connection.
func hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restWait))
}

// An answerWriter knows whether an answer has begun. After an error it has the
// rest of the request read, see linger.
type answerWriter struct {
	http.ResponseWriter
	r        *http.Request
	rest     restReader
	admitted bool   // the client is known
	rpc      bool   // it answers a message of MCP
	id       []byte // of that message, raw; nil while it is not known
	atOnce   bool   // an error does not wait for the rest of its request
	lingers  bool
	begun    atomic.Bool
}

// newAnswerWriter wraps a request's body as well.
func newAnswerWriter(w http.ResponseWriter, r *http.Request) *answerWriter {
	a := &answerWriter{ResponseWriter: w, r: r}
	if r.ContentLength != 0 && r.Body != nil {
		a.rest = restReader{ReadCloser: r.Body, left: r.ContentLength}
		r.Body = &a.rest
	}
	return a
}

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && !w.begun.Load() {
		w.refuse()
	}
	w.begun.Store(true)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(b []byte) (int, error) {
	w.begun.Store(true)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refuse prepares for an answer that comes before the end of its request.
func (w *answerWriter) refuse() {
	rest := &w.rest
	switch {
	case rest.ReadCloser == nil || rest.done:
		return
	case !rest.begun && strings.EqualFold(w.r.Header.Get("Expect"), "100-continue"):
		// The client waits for the answer and sends nothing after this one. Net/http
		// does not see that, as the body is wrapped, and would wait for it.
		if w.r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		return
	case rest.left >= 0 && rest.left <= restRead && !rest.failed && !w.atOnce:
		return // net/http reads the little that may be left, and the connection can be used again
	}
	// Otherwise net/http would read first and answer then, and nothing could be
	// read after the answer.
	_ = http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
	if w.r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	// The client must find the end of the answer before that of the connection.
	w.lingers = !rest.failed && w.Header().Get("Content-Length") != ""
}

// linger reads on after an early refusal, for a while. Many clients read no answer
// before they have sent everything, and a connection that is closed with bytes
// unread is reset: the answer would be lost.
func (g *Gateway) linger(w *answerWriter) {
	if !w.lingers {
		return
	}
	ctl := http.NewResponseController(w.ResponseWriter)
	if ctl.Flush() != nil {
		return
	}
	pause := lingerPause
	switch {
	case w.r.ProtoMajor != 1:
		pause = lingerPause2
	case !w.admitted:
		pause = restWait
	}
	left := 2*g.edge.Load().body + lingerBytes
	until := time.Now().Add(lingerFor)
	buf := make([]byte, 32<<10)
	for left > 0 && g.open.Err() == nil {
		now := time.Now()
		if now.After(until) || ctl.SetReadDeadline(now.Add(min(pause, until.Sub(now)))) != nil {
			return
		}
		n, err := w.rest.Read(buf)
		if err != nil {
			return
		}
		left -= int64(n)
	}
}

// A restReader knows how much of a body is left.
type restReader struct {
	io.ReadCloser
	left   int64 // negative where it is not known
	begun  bool
	done   bool
	failed bool
}

func (r *restReader) Read(b []byte) (int, error) {
	r.begun = true
	n, err := r.ReadCloser.Read(b)
	if r.left >= 0 {
		r.left -= int64(n)
		r.done = r.left <= 0
	}
	r.done = r.done || errors.Is(err, io.EOF)
	r.failed = r.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}
