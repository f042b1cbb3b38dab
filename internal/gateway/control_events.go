package gateway

import (
	"bufio"
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/wire"
)

type eventQuery struct {
	Types   string `query:"types" doc:"only events of these types or groups, with commas between; gap comes in any case"`
	Session string `query:"session" doc:"only events of this session, and calls in it"`
	Run     string `query:"run" doc:"only events of this run"`
	Agent   string `query:"agent" doc:"only events of runs of this agent"`
	After   string `query:"after" doc:"the id of an event, to go on behind it, or start for the oldest that is kept; the header Last-Event-ID comes first"`
	Last    int64  `query:"last" min:"0" max:"1000" default:"0" doc:"begin with so many of the last events, where there is no after"`
	Follow  bool   `query:"follow" default:"true" doc:"false ends the answer when there are no more events for now"`
}

// eventFeed is the answer that is the feed: events of a stream, or lines.
type eventFeed struct{}

func (eventFeed) contents() []content {
	return []content{{media: "text/event-stream", of: reflect.TypeFor[api.Event]()}, {media: mediaLines, of: reflect.TypeFor[api.Event]()}}
}

const (
	// mostFollowers bounds the streams of the feed that are open at once, and
	// mostFollowersOf those of one principal.
	mostFollowers   = 1024
	mostFollowersOf = 256
)

// followers counts the open streams of the feed.
type followers struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// enter takes a place; leave is nil where there is none.
func (f *followers) enter(name string) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all >= mostFollowers || f.of[name] >= mostFollowersOf {
		return nil
	}
	if f.of == nil {
		f.of = make(map[string]int)
	}
	f.all++
	f.of[name]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
		if f.of[name]--; f.of[name] == 0 {
			delete(f.of, name)
		}
	}
}

// events answers with the feed of events, from a position on.
func (g *Gateway) events(a *ask, q eventQuery) (eventFeed, error) {
	f := control.EventFilter{
		Session: q.Session, Run: q.Run, Agent: q.Agent, Last: int(q.Last),
		After: cmp.Or(a.r.Header.Get("Last-Event-ID"), q.After),
	}
	if q.Types != "" {
		f.Types = strings.Split(q.Types, ",")
	}
	if f.Session != "" {
		var err error
		if f.Session, err = g.services.Sessions.ID(a.who, f.Session); err != nil {
			return eventFeed{}, err
		}
	}
	leave := g.followers.enter(a.who.Name)
	if leave == nil {
		return eventFeed{}, &api.Error{
			Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true, RetryAfter: 1,
			Message: "too many streams of events are open; close one, or follow more with one stream",
		}
	}
	defer leave()
	ctx, cancel := g.whileOpen(a.ctx(), g.life)
	defer cancel()
	ctx, stop := g.whileAdmitted(ctx, a.who, nil)
	defer stop()
	stream, err := g.services.Events.Follow(ctx, a.who, f)
	if err != nil {
		return eventFeed{}, err
	}
	defer stream.Close()
	out := newEventWriter(a)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	// The position goes first: a client that is cut off before the first event goes on
	// from there, and one that has read it counts on every later event.
	at, ready := "", make(chan struct{})
	close(ready)
	for {
		e, more, err := stream.Next(ctx)
		if err != nil {
			return eventFeed{}, errAnswered
		}
		if e.Type != "" || e.ID != at && (at == "" || !q.Follow) {
			at = e.ID
			if out.event(e) != nil {
				return eventFeed{}, errAnswered
			}
		}
		woken := stream.Woken()
		if more {
			woken = ready
		} else if out.flush() != nil || !q.Follow {
			return eventFeed{}, errAnswered
		}
		select {
		case <-tick.C:
			// It says where the stream is: a client to which there was nothing to tell
			// for long need not go on from far behind.
			if at = stream.At(); out.event(api.Event{ID: at}) != nil || out.flush() != nil {
				return eventFeed{}, errAnswered
			}
		case <-woken:
		case <-ctx.Done():
			return eventFeed{}, errAnswered
		}
	}
}

// eventWriter writes events, as server-sent ones or as lines.
type eventWriter struct {
	buf   *bufio.Writer
	ctl   *http.ResponseController
	lines bool
	frame []byte
}

func newEventWriter(a *ask) *eventWriter {
	w := &eventWriter{ctl: http.NewResponseController(a.w), lines: strings.Contains(a.r.Header.Get("Accept"), mediaLines)}
	w.buf = bufio.NewWriterSize(pieces{a.w, w.ctl}, 16<<10)
	if wasRead(a.w); w.lines {
		h := a.w.Header()
		h.Set("Content-Type", mediaLines)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
	} else {
		eventHeaders(a.w)
	}
	a.w.WriteHeader(http.StatusOK)
	return w
}

// pieces writes what a client must read in time.
type pieces struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

func (p pieces) Write(b []byte) (int, error) {
	if err := sendPieces(p.w, p.ctl, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (w *eventWriter) event(e api.Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	switch {
	case w.lines:
		w.frame = append(append(w.frame[:0], b...), '\n')
	case e.Type == "": // an event without data only sets the client's last id
		w.frame = append(append(append(w.frame[:0], ": ok\nid: "...), e.ID...), "\n\n"...)
	default:
		w.frame = wire.AppendEvent(w.frame[:0], e.ID, b)
	}
	_, err = w.buf.Write(w.frame)
	return err
}

func (w *eventWriter) flush() error {
	if err := w.buf.Flush(); err != nil {
		return err
	}
	return w.ctl.Flush()
}
