package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestLongOperation(t *testing.T) {
	for _, era := range nativetest.Eras() {
		c := newCaller(mcp.ElicitResult{})
		cs := connect(t, build(t, nil), era, c)
		p := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.01, "steps": 4}}
		p.SetProgressToken("tok")
		res, err := cs.CallTool(t.Context(), p)
		if err != nil || nativetest.Text(res) != "Long running operation completed. Duration: 0.01 seconds, Steps: 4." {
			t.Fatalf("%s: %v, %v", era, res, err)
		}
		c.until(t, "progress", func() bool { return len(c.progress) == 4 })
		for i, n := range c.progress {
			if n.ProgressToken != "tok" || n.Progress != float64(i+1) || n.Total != 4 {
				t.Errorf("%s: progress %d: %+v", era, i, n)
			}
		}
		for _, odd := range []map[string]any{{"duration": 0, "steps": 0}, {"duration": -5, "steps": 2}, {"duration": 0, "steps": -1}, {"duration": 0.001, "steps": 1.5}} {
			if res := nativetest.Call(t, cs, "trigger-long-running-operation", odd); res.IsError {
				t.Errorf("%v: %s", odd, nativetest.Text(res))
			}
		}
		// Cancelling ends it, however long it is.
		for _, long := range []map[string]any{{"duration": 1e300, "steps": 1}, {"duration": 0, "steps": 1e15}} {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: long})
				failed <- err
			}()
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v: err = %v", long, err)
			}
		}
	}
}

func TestResearch(t *testing.T) {
	for _, era := range nativetest.Eras() {
		for _, answer := range []mcp.ElicitResult{{Action: "accept", Content: map[string]any{"interpretation": "snake"}}, {Action: "decline"}, {Action: "cancel"}} {
			c := newCaller(answer)
			cs := connect(t, build(t, nil), era, c)
			plain := nativetest.Text(nativetest.Call(t, cs, "simulate-research-query", map[string]any{"topic": "Python"}))
			if !strings.HasPrefix(plain, "# Research Report: Python\n") || strings.Contains(plain, "Meaning") || len(c.elicited) != 0 {
				t.Errorf("%s: %q", era, plain)
			}
			p := &mcp.CallToolParams{Name: "simulate-research-query", Arguments: map[string]any{"topic": "Python", "ambiguous": true}}
			p.SetProgressToken(1)
			res, err := cs.CallTool(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"accept": "Meaning: snake\n", "decline": "declined to choose", "cancel": "cancelled"}[answer.Action]
			if got := nativetest.Text(res); !strings.Contains(got, want) || len(c.elicited) != 1 {
				t.Errorf("%s %s: %q, elicited %d times", era, answer.Action, got, len(c.elicited))
			}
			c.until(t, "the last progress", func() bool {
				return len(c.progress) > 0 && c.progress[len(c.progress)-1].Message == "Done"
			})
		}
	}
	// A client that can't be asked is not asked.
	cs := nativetest.Connect(t, build(t, nil).Server, nativetest.Legacy, nil)
	if got := nativetest.Text(nativetest.Call(t, cs, "simulate-research-query", map[string]any{"topic": "x", "ambiguous": true})); strings.Contains(got, "Meaning") {
		t.Errorf("%q", got)
	}
}

// TestLoggingPace runs on a false clock: one message at once, then one each
// pace, until it is switched off or the session ends.
func TestLoggingPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(nil, 5*time.Second, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c := newCaller(mcp.ElicitResult{})
		opts := c.options()
		opts.Capabilities.RootsV2 = nil
		cs := nativetest.Connect(t, s.Server, nativetest.Legacy, opts)
		count := func() int {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.logged)
		}
		if text := nativetest.Text(nativetest.Call(t, cs, "toggle-simulated-logging", nil)); !strings.HasPrefix(text, "Started") {
			t.Fatal(text)
		}
		time.Sleep(51 * time.Second)
		if n := count(); n != 11 {
			t.Errorf("%d messages, want 11", n)
		}
		if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "error"}); err != nil {
			t.Fatal(err)
		}
		before := count()
		time.Sleep(1000 * time.Second)
		for _, m := range c.logged[before:count()] {
			if !slices.Contains([]mcp.LoggingLevel{"error", "critical", "alert", "emergency"}, m.Level) {
				t.Errorf("message of level %s", m.Level)
			}
		}
		if text := nativetest.Text(nativetest.Call(t, cs, "toggle-simulated-logging", nil)); !strings.HasPrefix(text, "Stopped") {
			t.Fatal(text)
		}
		before = count()
		time.Sleep(100 * time.Second)
		if n := count(); n != before {
			t.Errorf("%d messages after the stop", n-before)
		}
		nativetest.Call(t, cs, "toggle-simulated-logging", nil)
		cs.Close()
		synctest.Wait()
		if len(s.sessions.open) != 0 {
			t.Errorf("%d sessions are remembered", len(s.sessions.open))
		}
	})
}

func TestLoggingModern(t *testing.T) {
	c := newCaller(mcp.ElicitResult{})
	cs := connect(t, build(t, nil), nativetest.Modern, c)
	for range 20 {
		p := &mcp.CallToolParams{Name: "toggle-simulated-logging", Meta: mcp.Meta{mcp.MetaKeyLogLevel: "debug"}}
		if _, err := cs.CallTool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	c.until(t, "a message for each call", func() bool { return len(c.logged) == 20 })
}

func TestUpdates(t *testing.T) {
	s := build(t, nil)
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			c := newCaller(mcp.ElicitResult{})
			cs := connect(t, s, era, c)
			const a, b = "demo://resource/dynamic/text/1", "demo://resource/dynamic/text/2"
			for _, uri := range []string{a, b} {
				if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			if text := nativetest.Text(nativetest.Call(t, cs, "toggle-subscriber-updates", nil)); !strings.HasPrefix(text, "Started") {
				t.Fatal(text)
			}
			c.until(t, "updates of both", func() bool {
				return slices.Contains(c.updated, a) && slices.Contains(c.updated, b) && len(c.updated) > 5
			})
			if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: a}); err != nil {
				t.Fatal(err)
			}
			// Those on their way may still come; then only the other's do.
			c.until(t, "updates of one", func() bool {
				n := len(c.updated)
				return n > 20 && !slices.Contains(c.updated[n-5:], a)
			})
			if text := nativetest.Text(nativetest.Call(t, cs, "toggle-subscriber-updates", nil)); !strings.HasPrefix(text, "Stopped") {
				t.Fatal(text)
			}
		})
	}
}
