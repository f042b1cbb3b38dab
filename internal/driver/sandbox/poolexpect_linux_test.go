//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Slots for a fork of many are made when it begins, and the starts wait for them.
func TestForkExpected(t *testing.T) {
	s := newShelved(t, 1)
	a := s.begin("a", nil)
	s.put(a, "word", "of a")
	s.ahead(1)
	const many = 6
	over := s.d.Expect(blank(a.spec), many)
	snap := s.freeze(a, "snap")
	var mu sync.Mutex
	var made []string
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			b := s.begin(fmt.Sprintf("child%d", i), snap)
			s.knows(b, "word", "+of a")
			mu.Lock()
			defer mu.Unlock()
			made = append(made, b.spec.Dir)
		})
	}
	all.Wait()
	over()
	if t.Failed() || len(made) != many {
		t.Fatal(made)
	}
	s.d.pool.mu.Lock()
	for _, shelf := range s.d.pool.shelves {
		if shelf.coming() != 0 || len(shelf.waiting) != 0 || len(shelf.expected) != 0 {
			t.Errorf("the shelf still expects starts: %+v", shelf)
		}
	}
	s.d.pool.mu.Unlock()
}

// After a fork of many there are for a while as many slots as it needed, and then as
// many as the config says.
func TestSlotsAfterALargeFork(t *testing.T) {
	s := newShelved(t, 1)
	a := s.begin("a", nil)
	s.ahead(1)
	over := s.d.Expect(blank(a.spec), 4)
	snap := s.freeze(a, "snap")
	var all sync.WaitGroup
	var children [4]*boxMember
	for i := range children {
		all.Go(func() { children[i] = s.begin(fmt.Sprintf("child%d", i), snap) })
	}
	all.Wait()
	over()
	shelf := func() *shelf {
		for _, shelf := range s.d.pool.shelves {
			return shelf
		}
		return nil
	}
	s.d.pool.mu.Lock()
	grown := shelf().want
	s.d.pool.mu.Unlock()
	if grown <= 1 {
		t.Fatalf("%d slots are wanted after a fork of 4", grown)
	}
	s.ahead(grown)
	for _, c := range children {
		builder.Stop(t, c.inst)
	}
	s.d.pool.mu.Lock()
	shelf().crowd = time.Now().Add(-2 * crowdAge)
	s.d.pool.mu.Unlock()
	s.d.pool.stir()
	s.ahead(1)
}

// Slots that no start came for go, and after a close nothing is made.
func TestForkExpectedInVain(t *testing.T) {
	s := newShelved(t, 1)
	a := s.begin("a", nil)
	s.ahead(1)
	over := s.d.Expect(blank(a.spec), 4)
	s.ahead(4)
	over()
	s.ahead(1)
	builder.Stop(t, a.inst)
	s.d.Close()
	s.d.Expect(blank(a.spec), 4)()
	if got := strings.Join(s.shown(), " "); got != "" {
		t.Errorf("%s is still shown", got)
	}
}
