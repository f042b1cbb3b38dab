package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// EventFilter chooses events of the feed. Zero fields choose all that the caller may see,
// from now on.
type EventFilter struct {
	Types   []string // types or groups, as session or session.closed
	Session string
	Run     string
	Agent   string
	// After is the id of an event: the feed goes on behind it. With api.EventsFromStart
	// it begins with the oldest event that is kept.
	After string
	// Last begins with so many of the last events, where After is empty.
	Last int
	// Once ends with the last event that there is, instead of waiting for more.
	Once bool
}

func (f EventFilter) values() url.Values {
	v := url.Values{}
	set(v, "types", strings.Join(f.Types, ","))
	set(v, "session", f.Session)
	set(v, "run", f.Run)
	set(v, "agent", f.Agent)
	set(v, "after", f.After)
	if f.Last > 0 {
		v.Set("last", strconv.Itoa(f.Last))
	}
	if f.Once {
		v.Set("follow", "false")
	}
	return v
}

// An EventFollower reads the feed of events. Run returns when the stream breaks off, and
// calling it again, also with another client of the same gateway, continues: each durable
// event is handed over once. Events of the type api.EventGap say that some are lost.
type EventFollower struct {
	// EventFilter chooses the events. Run moves its After on.
	EventFilter
}

// Run hands events to each until ctx ends, each fails or the stream breaks off, which is
// an ErrBrokenOff. It returns nil only with Once. Runs of one EventFollower must not
// overlap.
func (f *EventFollower) Run(ctx context.Context, c *Client, each func(api.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := c.send(ctx, request{method: http.MethodGet, query: f.values(), accept: "application/x-ndjson", path: []string{"v1", "events"}}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	quiet := time.AfterFunc(followQuiet, func() { cancel(fmt.Errorf("it said nothing for %s", followQuiet)) })
	defer quiet.Stop()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), int(min(c.maxBody, math.MaxInt32)))
	for quiet.Reset(followQuiet); lines.Scan(); quiet.Reset(followQuiet) {
		quiet.Stop() // how long each takes is not the gateway's fault
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var e api.Event
		if err := json.Unmarshal(line, &e); err != nil || e.ID == "" {
			return fmt.Errorf("%w: %s sent a line that is not an event; check the URL", errNoFeed, c.URL())
		}
		if e.Type != "" {
			if err := each(e); err != nil {
				return err
			}
		}
		f.After = e.ID
	}
	err = lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%w: a line from %s is larger than the limit of %d bytes", errNoFeed, c.URL(), c.maxBody)
	case err == nil && f.Once:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.EOF
	}
	return fmt.Errorf("%w at %s: %w", ErrBrokenOff, c.URL(), err)
}

// errNoFeed is wrapped by errors that another try would not mend.
var errNoFeed = errors.New("this is not the feed of events")

// Between two tries to reach a gateway again.
const (
	eventsPause    = 250 * time.Millisecond
	maxEventsPause = 10 * time.Second
)

// Events follows the feed of events. When the stream breaks off, as when the gateway is
// restarted, it connects again and goes on where it was, so that each durable event comes
// once; an event of the type api.EventGap says that some are lost. It ends with an error:
// that of ctx, or why the gateway refuses; with Once it ends after the last event.
//
//	for e, err := range c.Events(ctx, client.EventFilter{Types: []string{"session"}}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(e.Type, e.Session)
//	}
func (c *Client) Events(ctx context.Context, filter EventFilter) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		f := EventFollower{EventFilter: filter}
		enough := errors.New("enough")
		pause := eventsPause
		for first := true; ; first = false {
			err := f.Run(ctx, c, func(e api.Event) error {
				pause = eventsPause
				if !yield(e, nil) {
					return enough
				}
				return nil
			})
			var refused *api.Error
			switch {
			case err == nil, errors.Is(err, enough):
				return
			case ctx.Err() != nil:
				yield(api.Event{}, context.Cause(ctx))
				return
			case first && !errors.Is(err, ErrBrokenOff), errors.As(err, &refused) && !refused.Retryable, errors.Is(err, errNoFeed):
				yield(api.Event{}, err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, maxEventsPause)
		}
	}
}
