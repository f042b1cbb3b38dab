package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A hall is a budget of ten instances, and who came in when.
type hall struct {
	budget
	t      *testing.T
	mu     sync.Mutex
	came   []string
	failed []error
}

func newHall(t *testing.T) *hall {
	h := &hall{t: t}
	h.set(need{instances: 10}, 100)
	return h
}

func ask(owner string, instances int) *request {
	return &request{owner: owner, count: 1, servers: map[string]need{"x": {instances: instances}}}
}

// No principal with a name takes all of the room, and one that has its part
// holds up no other. Where there are no names, there are no others.
func TestOnePrincipalLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		h.set(need{instances: 10}, 80)
		h.has("hog", 8)
		h.wants("hog", 1, time.Hour)
		h.wants("ada", 1, time.Hour)
		h.wants("bob", 1, time.Hour)
		h.wantCame("ada1 bob1")
		err := h.reserve(t.Context(), ask("hog", 9), time.Hour)
		if ours := new(api.Error); !errors.As(err, &ours) || ours.Retryable || !strings.Contains(ours.Message, "8 instances of the 80% of unbounded memory and 10 instances that one principal may have") {
			t.Errorf("more than ever: %v", err)
		}
		h.gives("ada", 1)
		h.wantCame("") // there is room, and it is not the hog's
		h.gives("hog", 1)
		h.wantCame("hog1")

		h = newHall(t)
		h.set(need{instances: 10}, 80)
		h.has("", 10)
	})
}

// wants has a request wait.
func (h *hall) wants(owner string, instances int, wait time.Duration) {
	go func() {
		err := h.reserve(h.t.Context(), ask(owner, instances), wait)
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			h.failed = append(h.failed, err)
			return
		}
		h.came = append(h.came, fmt.Sprint(owner, instances))
	}()
	synctest.Wait()
}

// has takes room at once.
func (h *hall) has(owner string, instances int) {
	h.t.Helper()
	if err := h.reserve(context.Background(), ask(owner, instances), 0); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hall) gives(owner string, instances int) {
	h.release(owner, need{instances: instances})
	synctest.Wait()
}

func (h *hall) wantCame(want string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.Join(h.came, " "); got != want {
		h.t.Errorf("%q came in, want %q", got, want)
	}
	h.came = nil
}

// A large request that waits lets others pass that fit.
func TestQueueIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		h.has("ada", 5)
		h.wants("hog", 9, time.Hour)
		for range 4 {
			h.has("bob", 1)
			h.gives("bob", 1)
		}
		h.wants("hog", 2, time.Hour) // its own, too
		h.wantCame("hog2")
		h.gives("ada", 5)
		h.wantCame("")
		h.gives("hog", 2)
		h.wantCame("hog9")
	})
}

// A large request gets in, however many small ones come, of others or of its own
// principal.
func TestQueueStarvesNobody(t *testing.T) {
	for _, other := range []string{"ada", "bob"} {
		t.Run(other, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHall(t)
				for range 5 {
					h.has(other, 2)
				}
				h.wants("ada", 8, time.Hour)
				for range 200 { // there is always one that would take what is given back
					h.wants(other, 2, time.Hour)
				}
				for range 100 {
					h.gives(other, 2)
					h.mu.Lock()
					in := slices.Contains(h.came, "ada8")
					h.mu.Unlock()
					if in {
						break
					}
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if n := slices.Index(h.came, "ada8"); n < 1 || n > 2*overtaking*8 {
					t.Errorf("it came in after %d others", n)
				}
			})
		})
	}
}

// A request that can't be had holds others up for a turn and no longer, however
// many of its kind there are.
func TestQueueTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		h.has("old", 5) // and stays
		for range 50 {
			h.wants("hog", 9, 10*time.Minute)
		}
		held, passed := time.Duration(0), 0
		for range 200 {
			began := time.Now()
			if err := h.reserve(t.Context(), ask("bob", 1), 30*time.Second); err != nil {
				t.Fatalf("after %d: %v", passed, err)
			}
			held = max(held, time.Since(began))
			passed++
			h.gives("bob", 1)
		}
		if held != turnTime {
			t.Errorf("one waited for %v, want a turn of %v", held, turnTime)
		}
		h.gives("old", 5)
		h.wantCame("hog9")
	})
}

// Who holds least comes first.
func TestQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		for range 10 { // alone, it may have all
			h.has("ada", 1)
		}
		for range 20 {
			h.wants("ada", 1, time.Hour)
		}
		for range 6 {
			h.wants("bob", 1, time.Hour)
		}
		for range 3 {
			h.wants("eve", 1, time.Hour)
		}
		for range 6 {
			h.gives("ada", 1)
		}
		h.wantCame("bob1 eve1 bob1 eve1 bob1 eve1")
		h.gives("ada", 1)
		h.wantCame("ada1") // all have as much, and its request is the oldest
	})
}

// Requests that are given up are out of the way, and of the line.
func TestQueueIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		h.has("ada", 9)
		h.wants("bob", 2, time.Second)
		err := h.reserve(t.Context(), ask("bob", 2), 0)
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Kind != api.KindRefused || !refused.Retryable || refused.RetryAfter == 0 {
			t.Errorf("one that does not wait: %+v", err)
		}
		err = h.reserve(t.Context(), ask("bob", 11), time.Hour)
		if !errors.As(err, &refused) || refused.Retryable {
			t.Errorf("one that never fits: %+v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.reserve(gone, ask("bob", 2), time.Hour); err == nil {
			t.Error("one that is given up got in")
		}
		time.Sleep(2 * time.Second)
		h.mu.Lock()
		h.budget.mu.Lock()
		if len(h.lines) != 0 || len(h.failed) != 1 {
			t.Errorf("%d lines, failed %v", len(h.lines), h.failed)
		}
		h.budget.mu.Unlock()
		h.mu.Unlock()
		h.gives("ada", 9)
		if h.used != (need{}) || len(h.held) != 0 {
			t.Errorf("%+v in use, held %v", h.used, h.held)
		}
	})
}
