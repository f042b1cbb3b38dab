package node

import (
	"bytes"
	"net/http"
)

// plain has an answer without a message before it sent as JSON. The SDK sends all as
// events, of which official clients read only short ones: that of Python 1 MiB, that
// of Go 16 MiB.
func plain(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			h.ServeHTTP(w, r)
			return
		}
		p := &plainWriter{ResponseWriter: w}
		h.ServeHTTP(p, r)
		p.finish()
	})
}

// A plainWriter keeps the first event back, if it is an answer, until there is a
// second one or the end. The SDK writes an event at once.
type plainWriter struct {
	http.ResponseWriter
	begun bool
	held  []byte
}

const (
	eventBegin = "event: message\ndata: "
	eventEnd   = "\n\n"
)

func (p *plainWriter) Write(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		if p.Header().Get("Content-Type") == "text/event-stream" && isAnswer(b) {
			p.held = bytes.Clone(b)
			return len(b), nil
		}
	}
	if err := p.release(); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

func (p *plainWriter) WriteHeader(status int) {
	p.begun = true
	p.ResponseWriter.WriteHeader(status)
}

// Flush is of the SDK, after each event.
func (p *plainWriter) Flush() {
	if p.held == nil {
		_ = http.NewResponseController(p.ResponseWriter).Flush()
	}
}

func (p *plainWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// release sends what was kept as an event.
func (p *plainWriter) release() error {
	held := p.held
	p.held = nil
	if held == nil {
		return nil
	}
	_, err := p.ResponseWriter.Write(held)
	return err
}

// finish sends what was kept as JSON.
func (p *plainWriter) finish() {
	if p.held == nil {
		return
	}
	p.Header().Set("Content-Type", "application/json")
	_, _ = p.ResponseWriter.Write(p.held[len(eventBegin) : len(p.held)-len(eventEnd)])
}

// isAnswer reports whether an event is the answer to a request.
func isAnswer(event []byte) bool {
	data, ok := bytes.CutPrefix(event, []byte(eventBegin))
	if !ok || !bytes.HasSuffix(data, []byte(eventEnd)) || bytes.IndexByte(data, '\n') != len(data)-len(eventEnd) {
		return false
	}
	_, ok = answerOf(data)
	return ok
}
