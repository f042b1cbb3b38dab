package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// teeClient is c, or one like the default client, whose responses the captures of
// their requests see.
func teeClient(c *http.Client, l *link, r *relay, maxEvent int) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	}
	base := own.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	if b, ok := base.(*bearer); ok {
		l.idle = b.base.CloseIdleConnections
	}
	own.Transport = &tee{base: base, link: l, relay: r, maxEvent: maxEvent}
	return &own
}

type tee struct {
	base     http.RoundTripper
	link     *link
	relay    *relay // gets progress, unless a tapConn sees it
	maxEvent int
}

func (t *tee) RoundTrip(req *http.Request) (*http.Response, error) {
	c := captureOf(req.Context())
	post := req.Method == http.MethodPost
	// The SDK's own GET for the rest of an interrupted answer has a header. Others are
	// such as the stream of a session that began within a request.
	if !post && req.Header.Get("Last-Event-Id") == "" {
		c = nil
	}
	if c != nil {
		c.post(post)
	}
	if req.Method == http.MethodDelete {
		// A session that a server does not end in time ends by itself there.
		ctx, cancel := context.WithCancel(req.Context())
		time.AfterFunc(time.Second, cancel)
		req = req.WithContext(ctx)
	}
	resp, err := t.base.RoundTrip(req)
	if c != nil {
		c.post(false)
	}
	if err != nil {
		return nil, err
	}
	t.link.status.Store(int32(resp.StatusCode))
	b := &teeBody{ReadCloser: resp.Body, capture: c, relay: t.relay}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	b.events = strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
	b.lines.limit = maxMessage
	if b.events {
		b.lines.limit = t.maxEvent
	}
	if c != nil {
		c.responded(resp.StatusCode, &b.lines)
		if c.life != nil {
			c.life.bodyOpened()
			b.life = c.life
		}
	} else if b.events {
		t.link.lines.Store(&b.lines)
	}
	if b.events && req.Header.Get("Mcp-Method") == "subscriptions/listen" {
		// The SDK does not listen again, and says nothing.
		b.deaf = t.link.deaf
	}
	resp.Body = b
	return resp, nil
}

// A teeBody passes a body on and shows its messages to a capture. It ends a body
// that is one message and too long; the SDK does so with events.
type teeBody struct {
	io.ReadCloser
	capture *capture
	relay   *relay // nil where progress is not seen
	events  bool
	life    *lifetime // is told of the end; nil afterwards
	deaf    func()    // is called at the end
	lines   meter

	read int64
	line []byte // of an event stream, or the whole body
	data []byte
}

func (b *teeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.lines.see(p[:n])
	if !b.events {
		if b.read += int64(n); b.read > maxMessage {
			return 0, errTooLong
		}
	}
	if b.capture != nil || b.events && b.relay != nil {
		b.see(p[:n])
		if errors.Is(err, io.EOF) && !b.events {
			b.message(b.line)
		}
	}
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *teeBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *teeBody) end() {
	if b.life != nil {
		b.life.bodyEnded()
	}
	if b.deaf != nil {
		b.deaf()
	}
	b.life, b.deaf = nil, nil
}

func (b *teeBody) see(p []byte) {
	if !b.events {
		b.line = append(b.line, p...)
		return
	}
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if !whole {
			if len(b.line)+len(p) <= maxMessage+len("data: ") {
				b.line = append(b.line, p...)
			}
			return
		}
		if len(b.line) > 0 {
			line = append(b.line, line...)
			b.line = line[:0]
		}
		b.event(bytes.TrimSuffix(line, []byte("\r")))
		p = rest
	}
}

func (b *teeBody) event(line []byte) {
	if len(line) == 0 {
		if len(b.data) > 0 {
			b.message(b.data)
		}
		b.data = nil // what was in it belongs to the message
		return
	}
	value, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	if len(b.data) > 0 {
		b.data = append(b.data, '\n')
	}
	b.data = append(b.data, bytes.TrimPrefix(value, []byte(" "))...)
}

func (b *teeBody) message(data []byte) {
	if result, ok := answerOf(data); ok {
		if b.capture != nil {
			b.capture.answer(result, data)
		}
		return
	}
	if b.relay != nil {
		b.relay.message(data)
	}
}
