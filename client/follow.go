package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
)

const (
	// followQuiet is how long a stream may be silent. The gateway sends blank lines
	// more often than that, so silence means that it is gone.
	followQuiet = time.Minute
	// followSeen is how many ids of calls a Follower remembers: the gateway's
	// index may lag behind what was streamed, but never that far.
	followSeen = 4096
	// followMissed bounds how many missed calls are read after a break.
	followMissed = 10000
	followPage   = 200
)

// ErrBrokenOff is wrapped by the error of a Run whose gateway answered at first and
// was gone later.
var ErrBrokenOff = errors.New("the stream broke off")

// A Follower reads the journal as it grows. Its zero value follows all calls,
// from now on.
//
// A stream breaks off when the gateway is restarted or the network is gone. Run
// returns then, and calling it again continues: calls made meanwhile are read from
// the journal, and no call is handed over twice.
//
//	f := client.Follower{CallQuery: client.CallQuery{Server: "files", Limit: 10}}
//	for {
//		err := f.Run(ctx, c, print)
//		if !errors.Is(err, client.ErrBrokenOff) {
//			return err
//		}
//	}
type Follower struct {
	// CallQuery chooses the calls. Limit is how many of the last ones come
	// first, at most what the gateway gives at once; Before is not used.
	CallQuery
	// Gap, if it is not nil, is called when calls were missed: more were made
	// during a break than are read later, or the journal has dropped them.
	Gap func()

	began bool
	seen  map[string]bool
	order []string // ids in seen as they came, a ring once it is full
	next  int
}

// Run hands calls to each, oldest first, until ctx ends, each fails or the
// stream breaks off; it always returns an error. The client of a second Run may
// be another one of the same gateway. Runs of one Follower must not overlap.
func (f *Follower) Run(ctx context.Context, c *Client, each func(api.Call) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := fmt.Errorf("it said nothing for %s", followQuiet)
	quiet := time.AfterFunc(followQuiet, func() { cancel(silent) })
	defer quiet.Stop()
	answered := false
	lost := func(err error) error {
		if refused := new(api.Error); !answered || errors.As(err, &refused) {
			return err
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%w at %s: %w", ErrBrokenOff, c.URL(), err)
	}
	if !f.began {
		last, err := f.last(ctx, c)
		if err != nil {
			return err
		}
		answered = true
		quiet.Stop() // how long each takes is not the gateway's fault
		if err := f.handAll(last, each); err != nil {
			return err
		}
		quiet.Reset(followQuiet)
	}
	q := f.CallQuery
	q.Before, q.Limit = "", 0
	v := q.values()
	v.Set("follow", "1")
	resp, err := c.send(ctx, request{method: http.MethodGet, query: v, accept: "application/x-ndjson", path: []string{"v1", "calls"}}, nil)
	if err != nil {
		return lost(err)
	}
	defer resp.Body.Close()
	answered = true

	// Once the stream is open no call can be missed between it and the journal: a
	// call that comes from both is handed over once.
	quiet.Reset(followQuiet)
	missed, err := f.missed(ctx, c)
	if err != nil {
		return lost(err)
	}
	quiet.Stop()
	if err := f.handAll(missed, each); err != nil {
		return err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), int(min(c.maxBody, math.MaxInt32)))
	for quiet.Reset(followQuiet); lines.Scan(); quiet.Reset(followQuiet) {
		quiet.Stop()
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var call api.Call
		if err := json.Unmarshal(line, &call); err != nil || call.ID == "" {
			return fmt.Errorf("the stream of calls from %s has a line that is not a call; check the URL", c.URL())
		}
		if err := f.hand(call, each); err != nil {
			return err
		}
	}
	err = lines.Err()
	switch {
	case err == nil:
		err = io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a call from %s is larger than the limit of %d bytes", c.URL(), c.maxBody)
	}
	return lost(err)
}

// last reads the calls that come first, newest first. It runs before the stream is
// open, and calls in between are read like those missed in a break: the newest
// calls of a journal that grows meanwhile would be handed over before older ones
// that are in the stream.
func (f *Follower) last(ctx context.Context, c *Client) ([]api.Call, error) {
	q := f.CallQuery
	// The newest one is read in any case: it is where catching up begins.
	q.Before, q.Limit = "", max(1, f.Limit)
	list, err := c.Calls(ctx, q)
	if err != nil {
		return nil, err
	}
	f.began = true
	calls := list.Calls
	cut := min(max(0, f.Limit), len(calls))
	for _, call := range slices.Backward(calls[cut:]) {
		f.remember(call.ID)
	}
	return calls[:cut], nil
}

// missed reads the calls of the journal that were not handed over yet, newest
// first.
func (f *Follower) missed(ctx context.Context, c *Client) ([]api.Call, error) {
	q := f.CallQuery
	q.Before = ""
	var missed []api.Call
	for q.Limit = followPage; ; {
		list, err := c.Calls(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, call := range list.Calls {
			if f.seen[call.ID] {
				return missed, nil
			}
			if len(missed) == followMissed {
				f.gap()
				return missed, nil
			}
			missed = append(missed, call)
		}
		if list.Next == "" || len(list.Calls) == 0 {
			if len(f.seen) > 0 {
				f.gap() // the last one that was seen is no longer kept
			}
			return missed, nil
		}
		q.Before = list.Next
	}
}

func (f *Follower) gap() {
	if f.Gap != nil {
		f.Gap()
	}
}

// handAll hands over calls that are given newest first.
func (f *Follower) handAll(calls []api.Call, each func(api.Call) error) error {
	for _, call := range slices.Backward(calls) {
		if err := f.hand(call, each); err != nil {
			return err
		}
	}
	return nil
}

// hand hands over a call once.
func (f *Follower) hand(call api.Call, each func(api.Call) error) error {
	if f.seen[call.ID] {
		return nil
	}
	f.remember(call.ID)
	if call.Missed > 0 && f.Gap != nil {
		f.Gap()
	}
	return each(call)
}

func (f *Follower) remember(id string) {
	if f.seen == nil {
		f.seen = make(map[string]bool)
	}
	if len(f.order) < followSeen {
		f.order = append(f.order, id)
	} else {
		delete(f.seen, f.order[f.next])
		f.order[f.next] = id
		f.next = (f.next + 1) % followSeen
	}
	f.seen[id] = true
}
