package journal

import (
	"fmt"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	// maxPooled is the largest buffer that is kept for the next line.
	maxPooled = 1 << 20
	// maxPending bounds the calls that are kept in memory for the index.
	maxPending = 4096
)

// Append writes a call. It sets Seq and ID, and At if it is empty. When it returns
// nil the call lasts; it never waits for the index.
func (j *Journal) Append(e *Entry) error {
	now := j.now()
	if e.At.IsZero() {
		e.At = now
	}
	kept := *e
	kept.tidy(now)
	if size := j.maxSize.Load(); kept.exceeds(size) && !j.wants(kept.Session) {
		kept.shrink(size)
	}

	room := lineRoom(&kept)
	if room > maxPooled {
		// One at a time, so that large results are not all in memory twice.
		j.big.Lock()
		defer j.big.Unlock()
	}
	buf, _ := j.buffers.Get().(*[]byte)
	if buf == nil || cap(*buf) < room {
		b := make([]byte, 0, room)
		buf = &b
	}
	b := appendLine((*buf)[:0], &kept)
	err := j.write(&kept, b)
	j.hub.Raise()
	if cap(b) <= maxPooled {
		*buf = b
		j.buffers.Put(buf)
	}
	if err != nil {
		return err
	}
	e.Seq, e.ID = kept.Seq, kept.ID
	return nil
}

// write gives the line its Seq and its place.
func (j *Journal) write(e *Entry, b []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("write a call: %w", ErrClosed)
	}
	e.Seq = j.next
	b, e.ID = finishLine(b, e.Seq)
	length := int64(len(b))
	s := &j.segments[len(j.segments)-1]
	if limit := j.segmentLimit(); s.size+length > limit {
		if !s.empty() {
			if err := j.rotate(); err != nil {
				j.errors.Add(1)
				return fmt.Errorf("write call %s: begin a new file of the journal: %w", e.ID, err)
			}
		}
		j.makeRoom(max(length, limit))
		s = &j.segments[len(j.segments)-1]
	}
	if _, err := j.active.WriteAt(b, s.size); err != nil {
		j.errors.Add(1)
		// The next line overwrites what was written of this one, so that this need
		// not succeed.
		_ = j.active.Truncate(s.size)
		return fmt.Errorf("write call %s to the journal %s: %w", e.ID, j.path(s.n), err)
	}
	at := place{s.n, s.size}
	s.size += length
	s.last = j.now()
	j.next++
	j.push(e.call(at, length))
	return nil
}

// push hands a call to the index. The caller holds mu.
func (j *Journal) push(c store.Call) {
	if len(j.pending) == maxPending {
		// The index reads the older half from the files.
		n := copy(j.pending, j.pending[maxPending/2:])
		clear(j.pending[n:])
		j.pending = j.pending[:n]
	}
	j.pending = append(j.pending, c)
	switch len(j.pending) {
	case 1:
		signal(j.wake)
	case batch:
		signal(j.full)
	}
}
