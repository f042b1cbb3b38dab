package journal

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	// batch is how many calls go to the index at once, and batchWait how long a
	// call waits for others.
	batch     = 512
	batchWait = 100 * time.Millisecond
	// A failed write to the index is tried again after a while, later each time.
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
	// listWithin bounds how long a list waits for the index.
	listWithin = 2 * time.Second
)

// indexer brings the index up to date. It is one goroutine's.
type indexer struct {
	*Journal
	lines  scanner
	failed bool // as was logged
}

// runIndex ends when the journal closes and all is indexed, or can't be.
func (j *Journal) runIndex(ctx context.Context) {
	x := &indexer{Journal: j}
	retry := time.Duration(0)
	for {
		err := x.catchUp(ctx)
		x.report(err)
		if err != nil {
			retry = min(max(2*retry, retryFirst), retryMost)
			select {
			case <-time.After(retry):
				continue
			case <-j.closing:
			}
		} else {
			retry = 0
			select {
			case <-j.wake:
				select {
				case <-time.After(batchWait):
				case <-j.full:
				case <-j.closing:
				}
				continue
			case <-j.full:
				continue
			case <-j.closing:
			}
		}
		// Nothing is appended any more.
		x.report(x.catchUp(ctx))
		return
	}
}

// report logs when the index begins to fail and when it works again.
func (x *indexer) report(err error) {
	x.mu.Lock()
	x.failing = err != nil
	if x.failing {
		x.moved()
	}
	x.mu.Unlock()
	if err != nil {
		x.errors.Add(1)
	}
	switch {
	case err != nil && !x.failed:
		x.log.Warn("the index of the journal can't be written; calls are kept and are indexed later", "error", err)
	case err == nil && x.failed:
		x.log.Info("the index of the journal is written again")
	}
	x.failed = err != nil
}

// catchUp indexes until there is nothing more.
func (x *indexer) catchUp(ctx context.Context) error {
	for {
		done, err := x.step(ctx)
		if done || err != nil {
			return err
		}
	}
}

// step does one thing for the index: it forgets segments, or takes one batch from
// memory, or from a file if memory no longer has it.
func (x *indexer) step(ctx context.Context) (done bool, err error) {
	x.mu.Lock()
	drop := x.drop
	x.mu.Unlock()
	if drop > 0 {
		if err := x.index.DropCalls(ctx, drop); err != nil {
			return false, err
		}
	}

	x.mu.Lock()
	if drop == x.drop {
		x.drop = 0
	}
	var calls []store.Call
	at, next := x.reached, x.next
	if len(x.pending) > 0 && x.pending[0].Seq == x.indexed+1 {
		calls = slices.Clone(x.pending[:min(batch, len(x.pending))])
	}
	first := x.segments[0].n
	s, isLast := x.segmentFrom(&at)
	x.mu.Unlock()

	indexed := int64(0)
	switch {
	case len(calls) > 0:
		last := calls[len(calls)-1]
		at, indexed = place{last.Segment, last.Offset + last.Length}, last.Seq
		calls = slices.DeleteFunc(calls, func(c store.Call) bool { return c.Segment < first })
	default:
		if calls, err = x.read(&at, s.size); err != nil {
			return false, err
		}
		if len(calls) > 0 {
			indexed = calls[len(calls)-1].Seq
		}
		if done = isLast && at.offset >= s.size; done {
			indexed = next - 1 // missing calls below can't be read
		}
	}
	if err := x.index.PutCalls(ctx, calls); err != nil {
		return false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reached = at
	x.indexed = max(x.indexed, indexed)
	n := 0
	for n < len(x.pending) && x.pending[n].Seq <= x.indexed {
		n++
	}
	left := copy(x.pending, x.pending[n:])
	clear(x.pending[left:])
	x.pending = x.pending[:left]
	x.moved()
	return done && left == 0, nil
}

// segmentFrom finds the segment of a place, or the next one with something
// after it, and moves the place there. The caller holds mu.
func (j *Journal) segmentFrom(at *place) (s segment, isLast bool) {
	for i := range j.segments {
		s, isLast = j.segments[i], i == len(j.segments)-1
		if s.n < at.segment || s.n == at.segment && at.offset >= s.size && !isLast {
			continue
		}
		if s.n > at.segment {
			*at = place{s.n, 0}
		}
		break
	}
	return s, isLast
}

// read takes a batch from a file and moves at behind it.
func (x *indexer) read(at *place, size int64) ([]store.Call, error) {
	if at.offset >= size {
		return nil, nil
	}
	path := x.path(at.segment)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		at.offset = size // it was dropped
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x.lines.at(f, at.offset, size)
	var calls []store.Call
	bad, firstBad := 0, int64(0)
	for len(calls) < batch {
		l, err := x.lines.next()
		if err == io.EOF {
			// The file may be shorter than it was; there is no more in it.
			at.offset = max(l.offset, size)
			break
		}
		if err != nil {
			return nil, err
		}
		at.offset = l.offset + l.length
		switch l.kind {
		case call:
			e := l.head.entry()
			calls = append(calls, e.call(place{at.segment, l.offset}, l.length))
		case damaged, torn:
			if bad++; bad == 1 {
				firstBad = l.offset
			}
		}
	}
	if bad > 0 {
		x.log.Warn("lines of the journal are damaged and passed over", "file", path, "lines", bad, "offset", firstBad)
	}
	return calls, nil
}

// moved wakes goroutines that wait for the index. The caller holds mu.
func (j *Journal) moved() {
	if j.progress != nil {
		close(j.progress)
		j.progress = nil
	}
}

// flush waits until all appended calls are indexed, at most as long as within.
func (j *Journal) flush(ctx context.Context, within time.Duration) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	target := int64(0)
	for {
		j.mu.Lock()
		if target == 0 {
			target = j.next - 1
		}
		if j.indexed >= target || j.failing || j.closed {
			j.mu.Unlock()
			return
		}
		if j.progress == nil {
			j.progress = make(chan struct{})
		}
		progress := j.progress
		j.mu.Unlock()
		signal(j.full)
		select {
		case <-progress:
		case <-ctx.Done():
			return
		case <-timeout.C:
			return
		}
	}
}
