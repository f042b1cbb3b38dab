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
	// waitLineAfter is how long a command waits before it writes a line about the wait
	// to a log, and between two checks of the server's progress.
	waitLineAfter = time.Second
	// waitLineEvery is how many checks there are to one more line.
	waitLineEvery = 10
)

// waitingFor does something that waits for a server, which is named by itself or by one
// of its tools. It shows the server's progress, and before that the progress of the
// fetch of its packages. If standard error is no terminal it writes lines; with always,
// the first one says what the command waits for.
func (c *cli) waitingFor(ctx context.Context, g *gateway, name, what string, always bool, do func(report func(api.CallProgress))) {
	var reported atomic.Pointer[string]
	text := func(ctx context.Context) string {
		if far := reported.Load(); far != nil {
			return what + ": " + *far
		}
		if far := g.fetching(ctx, name); far != "" {
			return what + ": " + far
		}
		return what
	}
	report := func(p api.CallProgress) {
		far := progressText(p)
		reported.Store(&far)
	}
	if c.errTerminal {
		c.waitingText(ctx, text, func() { do(report) })
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n, last := 0, what; ; n++ {
			select {
			case <-c.after(waitLineAfter):
			case <-ctx.Done():
				return
			}
			now := text(ctx)
			first := always && n == 0
			due := n%waitLineEvery == 0 || last == what || reported.Load() != nil
			if ctx.Err() == nil && (first || due && now != last && now != what) {
				last = now
				fmt.Fprintln(c.stderr, visible(now, false))
			}
		}
	})
	do(report)
	cancel()
	wg.Wait()
}

// fetching is the progress of the fetch of a server's packages; the server is named
// by itself or by one of its tools. It is empty if none is running, or that is
// unknown.
func (g *gateway) fetching(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, waitLineAfter)
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
