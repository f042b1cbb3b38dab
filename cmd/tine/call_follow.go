package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

const (
	// followBatch is how many calls are printed with one write when they come
	// faster than they are printed.
	followBatch = 512
	// reconnectPause is between two tries to reach a gateway that is away.
	reconnectPause = time.Second
)

// followCalls prints calls as they come. Reading and printing run side by side,
// so that many calls in a moment are written together and a single one at once.
func (c *cli) followCalls(ctx context.Context, q client.CallQuery) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	calls := make(chan api.Call, followBatch)
	read := make(chan error, 1)
	go func() {
		read <- c.readCalls(ctx, q, calls)
		close(calls)
	}()
	show := c.callPrinter()
	for call := range calls {
		batch := []api.Call{call}
		for len(batch) < followBatch && len(calls) > 0 { // no other goroutine receives
			batch = append(batch, <-calls)
		}
		if err := show(batch); err != nil {
			stop()
			for range calls {
				// The reader notices at its next call that the output has failed.
			}
			<-read
			return fmt.Errorf("write the output: %w", err)
		}
	}
	// Being interrupted is how following ends.
	if err := <-read; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// callPrinter returns a function that prints calls in batches, in columns that only grow.
func (c *cli) callPrinter() func([]api.Call) error {
	t := c.callTable(nil)
	return func(batch []api.Call) error {
		if c.flags.json {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			for _, call := range batch {
				if err := enc.Encode(call); err != nil {
					return err
				}
			}
			_, err := c.stdout.Write(b.Bytes())
			return err
		}
		t.rows = t.rows[:0]
		for _, call := range batch {
			t.add(c.callRow(call)...)
		}
		_, err := io.WriteString(c.stdout, t.render(c))
		t.least = t.natural()
		return err
	}
}

// readCalls sends calls to the channel until ctx ends. A gateway that goes away
// is looked for again: after a restart it may be at another address, and its
// token in the state folder is another one.
func (c *cli) readCalls(ctx context.Context, q client.CallQuery, calls chan<- api.Call) error {
	f := client.Follower{CallQuery: q, Gap: func() {
		c.say("tine: too many calls were made meanwhile; some of them are not shown")
	}}
	came := false
	each := func(call api.Call) error {
		came = true
		select {
		case calls <- call:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	denied := 0
	for away, first := false, true; ; first = false {
		g, err := c.connect()
		if err == nil {
			came = false
			err = g.explain(f.Run(ctx, g.Client, each))
			away = away && !came
		}
		var ae *api.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case first && !errors.Is(err, client.ErrBrokenOff):
			return err
		case errors.As(err, &ae) && ae.Status == http.StatusUnauthorized && denied == 0:
			denied++ // perhaps with the token of an earlier gateway
		case errors.As(err, &ae) && !ae.Retryable:
			return err
		default:
			denied = 0
		}
		if !away {
			c.say("tine: %v; waiting for it", err)
		}
		away = true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.after(reconnectPause):
		}
	}
}
