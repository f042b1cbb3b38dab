package upstream

import (
	"context"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

// standalone keeps the GET stream of a legacy server open, on which it sends messages
// that belong to no call. Servers without one answer 405 and are not asked again. It
// calls opened when the first stream is open or has failed.
func (t *httpTransport) standalone(ctx context.Context, opened func()) {
	last := ""
	wait := time.Second
	heard := false
	for ctx.Err() == nil {
		session, version := t.state()
		req, err := t.newRequest(ctx, http.MethodGet, session, version, nil)
		if err != nil {
			return
		}
		if last != "" {
			req.Header[wire.HeaderLastEvent] = []string{last}
		}
		resp, err := t.ep.Client.Do(req)
		opened()
		if err == nil && resp.StatusCode == http.StatusOK {
			if heard {
				t.c.events.Note(Origin{}, "", nil)
			}
			heard = true
			wait = time.Second
			last = t.hear(resp, last, &wait)
			if ctx.Err() == nil {
				t.c.events.Note(Origin{}, "", nil) // messages are missed until the next stream
			}
		} else if err == nil {
			code := resp.StatusCode
			resp.Body.Close()
			switch {
			case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
			case code == http.StatusConflict: // it has not seen the end of the last stream yet
			case code >= 400 && code < 500:
				return // no such stream here, or no such session: a call will find out
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(wait*2, 30*time.Second)
	}
}

// hear reads one stream to its end and returns the last event's id.
func (t *httpTransport) hear(resp *http.Response, last string, wait *time.Duration) string {
	defer resp.Body.Close()
	events := wire.NewEventReader(resp.Body, t.limit)
	for {
		ev, err := events.Next()
		if err != nil {
			return last
		}
		if ev.ID != "" {
			last = ev.ID
		}
		if ev.Retry > 0 {
			*wait = ev.Retry
		}
		if len(ev.Data) == 0 {
			continue
		}
		t.c.traffic.Add(1)
		msg, err := wire.Scan(ev.Data)
		switch {
		case err != nil:
			t.c.garbage.Add(1)
		case msg.IsRequest():
			if err := t.c.handleRequest(msg, nil); err != nil {
				t.c.log.Warn("stream of a server closed", "server", t.c.server, "err", err)
				return last
			}
		case msg.IsNotification():
			t.c.handleNote(msg, nil)
		}
	}
}
