package journal

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// runKeeper holds the bounds: alone, where sessions can be wanted, and else
// while nothing is written.
func (j *Journal) runKeeper() {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	j.sweep()
	for {
		select {
		case <-tick.C:
			j.sweep()
		case <-j.keep:
		case <-j.closing:
			return
		}
		j.bound()
	}
}

// bound drops segments that are too old or too many.
func (j *Journal) bound() {
	for j.boundSome() {
	}
}

// boundSome drops the segments that are due, or as many as are carried over at
// once.
func (j *Journal) boundSome() (more bool) {
	pass, more := j.due()
	if len(pass) == 0 {
		return false
	}
	err := j.carry(pass)
	j.reportCarry(err)
	if err != nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropFirst(len(pass)) // no other goroutine drops any
	return more
}

// due ends the last segment if it is time, and drops segments, or returns those to
// carry over first.
func (j *Journal) due() (pass []segment, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, false
	}
	j.undead = j.remove(j.undead)

	now := j.now()
	s := &j.segments[len(j.segments)-1]
	// Otherwise slow calls would keep a segment, and its first call with it, until
	// the segment is full.
	old := j.maxAge > 0 && (now.Sub(s.made) > j.maxAge/parts || now.Sub(s.last) >= j.maxAge)
	if !s.empty() && (old || s.size > j.segmentLimit()) {
		if err := j.rotate(); err != nil {
			j.errors.Add(1)
			j.log.Warn("no new file of the journal can be begun, so the last can't be dropped", "folder", j.dir, "error", err)
		}
	}
	n := 0
	for j.maxAge > 0 && n < len(j.segments)-1 && now.Sub(j.segments[n].last) >= j.maxAge {
		n++
	}
	if j.wanted == nil {
		j.dropFirst(max(n, j.tooMany(0)))
		return nil, false
	}
	// Append drops nothing, so there must be room for all it writes until it
	// begins the next segment.
	s = &j.segments[len(j.segments)-1]
	n = max(n, j.tooMany(max(0, j.segmentLimit()-s.size)))
	pass = passOf(j.segments[:n])
	return pass, len(pass) < n
}

// makeRoom drops the oldest segments until so many bytes fit, or has it done.
// The caller holds mu.
func (j *Journal) makeRoom(bytes int64) {
	n := j.tooMany(bytes)
	switch {
	case n == 0:
	case j.wanted != nil:
		signal(j.keep)
	default:
		j.dropFirst(n)
	}
}

// tooMany is how many segments must go for so many bytes to fit. The caller
// holds mu.
func (j *Journal) tooMany(bytes int64) (n int) {
	maxSize := j.maxSize.Load()
	if maxSize <= 0 {
		return 0
	}
	for total := sum(j.segments) + bytes; total > maxSize && n < len(j.segments)-1; n++ {
		total -= j.segments[n].size
	}
	return n
}

// segmentLimit is the size at which a new segment begins. The caller holds mu.
func (j *Journal) segmentLimit() int64 {
	maxSize := j.maxSize.Load()
	if maxSize <= 0 {
		return j.segmentSize
	}
	return min(j.segmentSize, max(maxSize/parts, minSegmentSize))
}

// dropFirst deletes the oldest n segments and has the index forget them. The
// caller holds mu.
func (j *Journal) dropFirst(n int) {
	if n == 0 {
		return
	}
	j.undead = append(j.undead, j.remove(j.segments[:n])...)
	j.segments = append([]segment(nil), j.segments[n:]...)
	if j.drop != everySegment {
		j.drop = j.segments[0].n
	}
	signal(j.wake)
}

// remove deletes files and returns those that can't be deleted because they are
// open, on systems where that matters.
func (j *Journal) remove(all []segment) (left []segment) {
	for _, s := range all {
		if err := os.Remove(j.path(s.n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.log.Debug("a file of the journal can't be deleted now", "file", j.path(s.n), "error", err)
			left = append(left, s)
		}
	}
	return left
}
