package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
)

// TestHubWakes loses no wake: a follower that looks after each sees the last value.
func TestHubWakes(t *testing.T) {
	var h store.Hub
	var mu sync.Mutex
	written := 0
	const all = 10_000
	var wg sync.WaitGroup
	for range 4 {
		woken, leave := h.Follow()
		wg.Go(func() {
			defer leave()
			for {
				mu.Lock()
				seen := written
				mu.Unlock()
				if seen == all {
					return
				}
				<-woken
			}
		})
	}
	for range all {
		mu.Lock()
		written++
		mu.Unlock()
		h.Raise()
	}
	wg.Wait()
}

func TestHubPasses(t *testing.T) {
	var h store.Hub
	if all, now, missed := h.Passing(0); all != nil || now != 0 || missed != 0 {
		t.Errorf("of nothing there are %v, %d, %d", all, now, missed)
	}
	woken, leave := h.Follow()
	defer leave()
	for i := range 300 {
		h.Pass(store.Event{Kind: fmt.Sprint(i)})
	}
	<-woken
	for _, c := range []struct{ after, first, missed int64 }{{0, 44, 44}, {44, 44, 0}, {100, 100, 0}, {299, 299, 0}} {
		all, now, missed := h.Passing(c.after)
		if len(all) != int(300-c.first) || all[0].Kind != fmt.Sprint(c.first) || now != 300 || missed != c.missed {
			t.Errorf("after %d there are %d, up to %d, and %d were missed", c.after, len(all), now, missed)
		}
	}
	if all, now, missed := h.Passing(300); len(all) != 0 || now != 300 || missed != 0 {
		t.Errorf("after the last there are %v, %d, %d", all, now, missed)
	}
}

func TestNilHub(t *testing.T) {
	var h *store.Hub
	h.Raise()
	h.Pass(store.Event{})
	if all, now, missed := h.Passing(0); all != nil || now != 0 || missed != 0 {
		t.Errorf("a nil hub has %v, %d, %d", all, now, missed)
	}
	_, leave := h.Follow()
	leave()
}
