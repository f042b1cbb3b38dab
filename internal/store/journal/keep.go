package journal

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// runKeeper holds the bounds while nothing is written.
func (j *Journal) runKeeper() {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-j.keep:
		case <-j.closing:
			return
		}
		j.bound()
	}
}

// bound drops what is too old or too much.
func (j *Journal) bound() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.undead = j.remove(j.undead)

	now := j.now()
	s := &j.segments[len(j.segments)-1]
	// Calls that come slowly would keep a segment, and its first call with it,
	// for as long as it takes to fill it.
	old := j.maxAge > 0 && (now.Sub(s.made) > j.maxAge/parts || now.Sub(s.last) >= j.maxAge)
	if !s.empty() && (old || s.size > j.segmentLimit()) {
		if err := j.rotate(); err != nil {
			j.errors.Add(1)
			j.log.Warn("no new file of the journal can be begun, so the last can't be dropped", "folder", j.dir, "error", err)
		}
	}
	if j.maxAge > 0 {
		n := 0
		for n < len(j.segments)-1 && now.Sub(j.segments[n].last) >= j.maxAge {
			n++
		}
		j.dropFirst(n)
	}
	j.makeRoom(0)
}

// makeRoom drops the oldest segments until so many bytes fit. The caller holds
// mu.
func (j *Journal) makeRoom(bytes int64) {
	maxSize := j.maxSize.Load()
	if maxSize <= 0 {
		return
	}
	n := 0
	for total := sum(j.segments) + bytes; total > maxSize && n < len(j.segments)-1; n++ {
		total -= j.segments[n].size
	}
	j.dropFirst(n)
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

// remove deletes files and returns those that can't be, because somebody reads
// them on a system where that matters.
func (j *Journal) remove(all []segment) (left []segment) {
	for _, s := range all {
		if err := os.Remove(j.path(s.n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.log.Debug("a file of the journal can't be deleted now", "file", j.path(s.n), "error", err)
			left = append(left, s)
		}
	}
	return left
}
