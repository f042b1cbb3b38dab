// Command stopwatch times calls of the tool echo, for the benchmark: by a node, and
// by the official SDK alone. Each line of its input asks for some, and each line of
// its output has how long they took. Its argument is the server's URL.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

type request struct {
	Op      string `json:"op"` // node, sdk or sdk-limit
	Count   int    `json:"count"`
	Callers int    `json:"callers"`
	Payload int    `json:"payload"`
}

type reply struct {
	NS    []time.Duration `json:"ns,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Both sides have an HTTP client of the same kind, with enough connections.
func dial(url string) (mcp.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: t}}, nil
}

type call func(ctx context.Context, args json.RawMessage) (string, error)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal("stopwatch: ", err)
	}
}

func run(ctx context.Context, url string) error {
	s, err := node.Connect(ctx, func() (mcp.Transport, error) { return dial(url) }, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	echo, err := s.Node("echo")
	if err != nil {
		return err
	}
	t, err := dial(url)
	if err != nil {
		return err
	}
	bare, err := mcp.NewClient(&mcp.Implementation{Name: "stopwatch", Version: "1"}, nil).Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	defer bare.Close()
	// Both know the tool, from which the SDK makes headers of calls.
	if _, err := bare.ListTools(ctx, nil); err != nil {
		return err
	}
	sdk := func(ctx context.Context, args json.RawMessage) (string, error) {
		r, err := bare.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: args})
		if err != nil || r.IsError || len(r.Content) != 1 {
			return "", errors.Join(err, fmt.Errorf("answered %+v", r))
		}
		return r.Content[0].(*mcp.TextContent).Text, nil
	}
	calls := map[string]call{
		"node": func(ctx context.Context, args json.RawMessage) (string, error) {
			r, err := echo.Call(ctx, args)
			if err != nil {
				return "", err
			}
			return r.Text(), r.Err()
		},
		"sdk": sdk,
		"sdk-limit": func(ctx context.Context, args json.RawMessage) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			return sdk(ctx, args)
		},
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var r reply
		_, err := timed(ctx, calls[q.Op], q, q.Count/5+1) // to warm up
		if err == nil {
			r.NS, err = timed(ctx, calls[q.Op], q, q.Count)
		}
		if err != nil {
			r = reply{Error: err.Error()}
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

func timed(ctx context.Context, c call, q request, count int) ([]time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(count))
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var callers sync.WaitGroup
	for range q.Callers {
		callers.Go(func() {
			var own []time.Duration
			var err error
			for n := left.Add(-1); n >= 0 && err == nil; n = left.Add(-1) {
				text := fmt.Sprintf("%d %s", n, strings.Repeat("x", q.Payload))
				args := json.RawMessage(`{"text":"` + text + `"}`)
				began := time.Now()
				var got string
				got, err = c(ctx, args)
				own = append(own, time.Since(began))
				if err == nil && got != text {
					err = fmt.Errorf("a call gives %.100q", got)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all, failed = append(all, own...), errors.Join(failed, err)
		})
	}
	callers.Wait()
	return all, failed
}
