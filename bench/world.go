package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// atOnce is how many requests prepare and clear away sessions at a time.
const atOnce = 16

// world is a gateway whose sessions are measured, and what is asked of them.
type world struct {
	gate   *gatewayProcess
	client *client.Client
	stamp  *atomic.Int64 // no two uses of a session leave the same behind
}

// statefulServers are those of a gateway without a config that remember
// something; with no bound that a thousand sessions could meet on a small
// machine.
func statefulServers(template string) map[string]any {
	keys := map[string]any{
		"servers": map[string]any{
			"files":  map[string]any{"builtin": "files"},
			"memory": map[string]any{"builtin": "memory"},
			"sqlite": map[string]any{"builtin": "sqlite"},
		},
		"sessions": unbounded(),
	}
	if template != "" {
		keys["workspace"] = template
	}
	return keys
}

func unbounded() map[string]any {
	return map[string]any{"max": 0, "per_principal": 0, "memory": "off", "instances": 0}
}

// newWorld starts a gateway of its own.
func (g *rig) newWorld(ctx context.Context, name string, keys map[string]any) (*world, error) {
	gate, err := g.serveTine(ctx, name, keys)
	if err != nil {
		return nil, err
	}
	t := peerTransport()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	c, err := client.New(client.Options{URL: gate.url, Token: gate.token, HTTPClient: &http.Client{Transport: t}})
	if err != nil {
		return nil, err
	}
	return &world{gate: gate, client: c, stamp: new(atomic.Int64)}, nil
}

func (w *world) open(ctx context.Context, servers ...string) (string, error) {
	s, err := w.client.OpenSession(ctx, api.NewSession{Servers: servers})
	if err != nil {
		return "", w.gate.explain(fmt.Errorf("open a session: %w", err))
	}
	return s.ID, nil
}

// fork makes children of a session.
func (w *world) fork(ctx context.Context, session string, count int) ([]string, error) {
	ids, _, err := w.forkPaused(ctx, session, count)
	return ids, err
}

// forkPaused is fork, and says how long the session stood still.
func (w *world) forkPaused(ctx context.Context, session string, count int) ([]string, time.Duration, error) {
	f, err := w.client.Fork(ctx, session, api.ForkRequest{Count: count})
	if err != nil {
		return nil, 0, w.gate.explain(fmt.Errorf("fork a session into %d: %w", count, err))
	}
	if len(f.Sessions) != count {
		return nil, 0, fmt.Errorf("a fork into %d made %d sessions", count, len(f.Sessions))
	}
	ids := make([]string, count)
	for i, s := range f.Sessions {
		ids[i] = s.ID
	}
	return ids, time.Duration(f.Paused * float64(time.Millisecond)), nil
}

// close closes sessions. What is not closed ends with its gateway.
func (w *world) close(ctx context.Context, sessions ...string) error {
	return each(ctx, len(sessions), func(ctx context.Context, i int) error {
		if err := w.client.CloseSession(ctx, sessions[i]); err != nil {
			return fmt.Errorf("close a session: %w", err)
		}
		return nil
	})
}

// call calls a tool and returns the result as it came.
func (w *world) call(ctx context.Context, session, tool string, arguments any) (string, error) {
	in, err := json.Marshal(arguments)
	if err != nil {
		return "", err
	}
	raw, err := w.client.CallIn(ctx, session, tool, in)
	if err != nil {
		return "", fmt.Errorf("call %s: %w", tool, err)
	}
	var out struct {
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(raw, &out); err != nil || out.IsError {
		return "", errors.Join(fmt.Errorf("call %s: %.300s", tool, raw), err)
	}
	return string(raw), nil
}

// use has each of the three servers write a mark down, and returns the mark.
func (w *world) use(ctx context.Context, session string) (mark string, err error) {
	mark = fmt.Sprintf("mark-%08d", w.stamp.Add(1))
	entity := map[string]any{"name": mark, "entityType": "mark", "observations": []string{"left by " + mark}}
	for _, c := range []struct {
		tool      string
		arguments any
	}{
		{"files__write_file", map[string]any{"path": "mark.txt", "content": mark}},
		{"memory__create_entities", map[string]any{"entities": []any{entity}}},
		{"sqlite__execute", map[string]any{"sql": "CREATE TABLE IF NOT EXISTS marks (mark TEXT); INSERT INTO marks VALUES ('" + mark + "')"}},
	} {
		if _, err := w.call(ctx, session, c.tool, c.arguments); err != nil {
			return "", err
		}
	}
	return mark, nil
}

// stateful is how many servers use writes to and find reads from.
const stateful = 3

// find reads a mark back from one of the three servers.
func (w *world) find(ctx context.Context, session, mark string, server int) error {
	var got string
	var err error
	switch server {
	case 0:
		got, err = w.call(ctx, session, "files__read_text_file", map[string]any{"path": "mark.txt"})
	case 1:
		got, err = w.call(ctx, session, "memory__open_nodes", map[string]any{"names": []string{mark}})
	default:
		got, err = w.call(ctx, session, "sqlite__query", map[string]any{"sql": "SELECT mark FROM marks WHERE mark = '" + mark + "'"})
	}
	if err == nil && !strings.Contains(got, mark) {
		err = fmt.Errorf("a session does not remember %s: %.300s", mark, got)
	}
	return err
}

// remembers says whether all three servers know a mark.
func (w *world) remembers(ctx context.Context, session, mark string) error {
	for server := range stateful {
		if err := w.find(ctx, session, mark, server); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until the gateway's anonymous memory stops falling, and returns
// it: what the last calls left behind is collected and given back first.
func (w *world) settled(ctx context.Context) (int64, error) {
	const looks, pause, patience = 8, 250 * time.Millisecond, 15 * time.Second
	least := usageOf(w.gate.pid()).anon
	began := time.Now()
	for quiet := 0; quiet < looks && time.Since(began) < patience; quiet++ {
		select {
		case <-time.After(pause):
		case <-w.gate.exited:
			return 0, w.gate.explain(errors.New("it ended while it was looked at"))
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		if now := usageOf(w.gate.pid()).anon; now < least-least/100 {
			least, quiet = now, 0
		}
	}
	return least, nil
}

// each does something n times, several at once, until one fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, atOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
