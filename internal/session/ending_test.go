package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

// Leftovers of an earlier gateway are ended side by side.
func TestLeftoversEndAtOnce(t *testing.T) {
	w := newWorld(t, two)
	for _, owner := range []string{"ada", "bob", "eve"} {
		call(t, w.session(owner), "own", "x")
	}
	var mu sync.Mutex
	inside, all := 0, make(chan struct{})
	w.m.stopping = func(string) error {
		mu.Lock()
		if inside++; inside == 3 {
			close(all)
		}
		mu.Unlock()
		testkit.Within(t, "the end of the others", all)
		return nil
	}
	w.crash("servers:\n  all: {command: all, scope: shared}\n")
	w.m.stopping = nil
	w.runs("")
}

// Close returns when its time is over, whatever hangs.
func TestCloseHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, two)
		call(t, w.session("ada"), "own", "x")
		free := make(chan struct{})
		w.m.stopping = func(string) error {
			<-free
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.Registry.Close(ctx, false) // the bubble is stuck where it waits for ever
		if ctx.Err() == nil {
			t.Error("it did not wait at all")
		}
		close(free)
	})
}
