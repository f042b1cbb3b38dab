//go:build linux || darwin

package family

import (
	"strings"
	"sync"
	"testing"
)

func TestMarkerIn(t *testing.T) {
	for env, want := range map[string]string{
		"":                                      "",
		"A=1\x00B=2\x00":                        "",
		"A=1\x00TINE_INSTANCE=x\x00":            "x",
		"TINE_INSTANCE=x:y\x00B=2":              "x y",
		"XTINE_INSTANCE=x\x00A=TINE_INSTANCE=y": "",
	} {
		if got := strings.Join(markerIn([]byte(env)), " "); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}

// Ending many at once must not look at every process once for each.
func TestCensusIsShared(t *testing.T) {
	var c Census
	c.turn.Lock() // a count is running
	const n = 50
	var wg sync.WaitGroup
	got := make(chan []Member, n)
	wg.Go(func() { got <- c.take() })
	for next := (*count)(nil); next == nil; {
		c.mu.Lock()
		next = c.next
		c.mu.Unlock()
	}
	first := c.next
	for range n - 1 {
		wg.Go(func() { got <- c.take() })
	}
	c.mu.Lock()
	if c.next != first {
		t.Error("another count was asked for")
	}
	c.mu.Unlock()
	c.turn.Unlock()
	wg.Wait()
	if len(got) != n {
		t.Errorf("%d answers", len(got))
	}
}
