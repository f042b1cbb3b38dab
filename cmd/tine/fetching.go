package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
)

const (
	// sayAfter is how long a command waits before it writes a line about that to a log,
	// and between two looks at how far the server is.
	sayAfter = time.Second
	// sayEvery is how many looks there are to one more line.
	sayEvery = 10
)

// waitingFor does something that waits for a server, which is named by itself or by
// one of its tools. It says how far the server says that it is, and before that how
// far its packages are where they are being fetched. Where standard error is no terminal
// that is told in lines; with always, the first one says what the command waits for.
func (c *cli) waitingFor(ctx context.Context, g *gateway, name, what string, always bool, do func(tell func(api.CallProgress))) {
	var told atomic.Pointer[string]
	text := func(ctx context.Context) string {
		if far := told.Load(); far != nil {
			return what + ": " + *far
		}
		if far := g.fetching(ctx, name); far != "" {
			return what + ": " + far
		}
		return what
	}
	tell := func(p api.CallProgress) {
		far := progressText(p)
		told.Store(&far)
	}
	if c.errTerminal {
		c.waitingText(ctx, text, func() { do(tell) })
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n, said := 0, what; ; n++ {
			select {
			case <-c.after(sayAfter):
			case <-ctx.Done():
				return
			}
			now := text(ctx)
			first := always && n == 0
			due := n%sayEvery == 0 || said == what || told.Load() != nil
			if ctx.Err() == nil && (first || due && now != said && now != what) {
				said = now
				fmt.Fprintln(c.stderr, visible(now, false))
			}
		}
	})
	do(tell)
	cancel()
	wg.Wait()
}

// fetching says how far the packages of a server are, which is named by itself or by
// one of its tools; empty where none are being fetched, or that is not known.
func (g *gateway) fetching(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, sayAfter)
	defer cancel()
	list, err := g.Servers(ctx)
	if err != nil {
		return ""
	}
	owner := ownerOf(name, list.Servers)
	for _, s := range list.Servers {
		if (s.ID == name || s.ID == owner) && s.Fetch != nil {
			return s.Fetch.String()
		}
	}
	return ""
}
