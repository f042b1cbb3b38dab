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
	// followBatch is how many lines are printed with one write when they come faster than
	// they are printed.
	followBatch = 512
	// reconnectPause is between two tries to reach a gateway that is away.
	reconnectPause = time.Second
)

// follow prints what read finds until it ends or is interrupted. Reading and printing run
// side by side, so that much that comes in a moment is written together and a single
// thing at once. With whole a batch waits until it is full, or all is read: how a list
// looks depends on nothing but what is in it.
func follow[T any](ctx context.Context, whole bool, read func(ctx context.Context, each func(T) error) error, show func([]T) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all := make(chan T, followBatch)
	done := make(chan error, 1)
	go func() {
		done <- read(ctx, func(v T) error {
			select {
			case all <- v:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(all)
	}()
	for v := range all {
		batch := []T{v}
		for len(batch) < followBatch && (whole || len(all) > 0) { // no other goroutine receives
			next, more := <-all
			if !more {
				break
			}
			batch = append(batch, next)
		}
		if err := show(batch); err != nil {
			stop()
			for range all {
				// The reader notices with the next one that the output has failed.
			}
			<-done
			return fmt.Errorf("write the output: %w", err)
		}
	}
	// Being interrupted is how following ends.
	if err := <-done; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// growing prints batches of rows, in columns that only grow, or a JSON line for each.
func growing[T any](c *cli, t *table, row func(T) []cell) func([]T) error {
	return func(batch []T) error {
		if c.flags.json {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			for _, v := range batch {
				if err := enc.Encode(v); err != nil {
					return err
				}
			}
			_, err := c.stdout.Write(b.Bytes())
			return err
		}
		t.rows = t.rows[:0]
		for _, v := range batch {
			t.add(row(v)...)
		}
		_, err := io.WriteString(c.stdout, t.render(c))
		t.least = t.natural()
		return err
	}
}

// keepRunning has run read a stream of a gateway until ctx ends; run reports whether
// anything came. A gateway that goes away is looked for again: after a restart it may be
// at another address, and its token in the state folder is another one.
func (c *cli) keepRunning(ctx context.Context, run func(g *gateway) (came bool, err error)) error {
	denied := 0
	for away, first := false, true; ; first = false {
		g, err := c.connect()
		if err == nil {
			var came bool
			came, err = run(g)
			if err == nil {
				return nil
			}
			err = g.explain(err)
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
