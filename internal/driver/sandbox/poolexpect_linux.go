//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// An expectation is of slots that are about to be taken at once.
type expectation struct{ left int }

// Expect implements driver.Preparer. The missing slots are made at once, not many more at
// a time than there are CPUs: a start waits for the next one, since more at a time would
// not be quicker for any of them.
func (d *Driver) Expect(spec driver.Spec, count int) (over func()) {
	p := &d.pool
	e := &expectation{left: min(count, maxSlots)}
	ctx, cancel := context.WithCancel(d.ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || count <= 0 {
		cancel()
		return func() {}
	}
	done := make(chan struct{})
	var s *shelf
	p.work.Go(func() {
		defer close(done)
		s = p.expect(ctx, spec, e)
	})
	return func() {
		cancel()
		<-done
		if s != nil {
			p.forget(s, e)
		}
	}
}

// expect begins to make what is missing, on the shelf that it returns.
func (p *pool) expect(ctx context.Context, spec driver.Spec, e *expectation) *shelf {
	spec.State = p.dir() // a placeholder: which folder it is makes no difference
	plan, err := p.d.plan(ctx, spec)
	if err != nil || !plan.apart() {
		return nil // the start will say why
	}
	ours, err := p.d.helpers.ours()
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || ctx.Err() != nil {
		return nil
	}
	s, _ := p.slots(plan, spec, ours, ours)
	if s == nil {
		return nil
	}
	s.used = time.Now()
	s.expected = append(s.expected, e)
	// No start waits for them yet, and an instance that is being frozen needs the CPU too.
	p.hire(s, max(1, runtime.NumCPU()-1))
	return s
}

// hire has what is expected made by so many workers. p.mu is held.
func (p *pool) hire(s *shelf, most int) {
	for range min(most-s.workers, s.coming()+len(s.waiting)-len(s.have)-s.making) {
		s.workers++
		p.work.Go(func() {
			for p.lacks(s) {
				p.fill(s)
			}
		})
	}
}

// coming is how many are expected that have not come. p.mu is held.
func (s *shelf) coming() int {
	n := 0
	for _, e := range s.expected {
		n += e.left
	}
	return n
}

// arrive counts a start that has come. p.mu is held.
func (s *shelf) arrive() {
	if s == nil {
		return
	}
	for _, e := range s.expected {
		if e.left > 0 {
			e.left--
			return
		}
	}
}

// lacks reports whether a worker is to make one more; it is none any more where
// it is not.
func (p *pool) lacks(s *shelf) bool {
	spare := memoryToSpare()
	p.mu.Lock()
	defer p.mu.Unlock()
	if spare && !p.closed && p.shelves[s.key] == s && !time.Now().Before(s.next) && p.count() < maxSlots &&
		len(s.have)+s.making < s.coming()+len(s.waiting) {
		s.making++
		return true
	}
	s.workers--
	if s.workers == 0 && s.making == 0 {
		s.refuse()
	}
	return false
}

// refuse sends away the starts that wait. p.mu is held.
func (s *shelf) refuse() {
	for _, next := range s.waiting {
		next <- nil
	}
	s.waiting = nil
}

// await waits for what is being made.
func (p *pool) await(ctx context.Context, s *shelf, next chan *making) *making {
	select {
	case m := <-next:
		return m
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(s.waiting, next); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else if m := <-next; m != nil { // it came in this moment
		if p.closed {
			return m // nothing else would remove it
		}
		p.put(s, m)
	}
	return nil
}

// forget ends an expectation. Slots that no start came for go.
func (p *pool) forget(s *shelf, e *expectation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.expected = slices.DeleteFunc(s.expected, func(other *expectation) bool { return other == e })
	p.trim(s)
}
