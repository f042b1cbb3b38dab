package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	// storyPage is how many places are asked of the index at once.
	storyPage = 1000
	// storyBatch is how many bytes of calls are in memory at once, if it is more
	// than one.
	storyBatch = 1 << 20
)

// Last returns the Seq of the newest call; zero when there is none.
func (j *Journal) Last() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next - 1
}

// LastOf returns the Seq of the newest call of a session whose method is not one of
// except; zero if there is none, or if that is not known before the index was made.
func (j *Journal) LastOf(ctx context.Context, session string, except ...string) (int64, error) {
	f := store.CallFilter{Session: session, Limit: 1}
	wanted := func(c *store.Call) bool { return f.Chooses(c) && !slices.Contains(except, c.Method) }
	j.mu.Lock()
	first := j.next
	if len(j.pending) > 0 {
		first = j.pending[0].Seq
	}
	known := session != "" && j.indexed+1 >= first
	for i := len(j.pending) - 1; i >= 0 && known; i-- {
		if c := &j.pending[i]; wanted(c) {
			defer j.mu.Unlock()
			return c.Seq, nil
		}
	}
	j.mu.Unlock()
	if !known {
		return 0, nil
	}
	last := int64(0)
	err := j.findIndexed(ctx, f, func(c store.Call) (more bool, err error) {
		if wanted(&c) {
			last = c.Seq
		}
		return last == 0, nil
	})
	return last, err
}

// Of returns one call of a session, without params and result; ok is false if the
// session has none with this Seq, or not any more.
func (j *Journal) Of(ctx context.Context, session string, seq int64) (e Entry, ok bool, err error) {
	if session == "" || seq < 1 {
		return e, false, nil
	}
	f := store.CallFilter{ID: store.CallID(seq), Session: session, Limit: 1}
	j.mu.Lock()
	for i := range j.pending { // a call that was just made, without waiting for the index
		if c := &j.pending[i]; c.Seq == seq {
			defer j.mu.Unlock()
			return entryOf(c), c.Session == session, nil
		}
	}
	j.mu.Unlock()
	err = j.find(ctx, f, func(c store.Call) (bool, error) {
		e, ok = entryOf(&c), true
		return false, nil
	})
	if ok || err != nil {
		return e, ok, err
	}
	t := &storyReader{j: j, session: session, until: seq, last: seq - 1}
	if err = t.fromArchive(ctx); err == nil && len(t.left) > 0 {
		var all []Entry
		if all, err = t.read(); len(all) > 0 {
			e, ok = all[0], true
			e.Params, e.Result = nil, nil
		}
	}
	return e, ok, err
}

// entryOf is an entry of what the index has of it.
func entryOf(c *store.Call) Entry {
	return Entry{
		Seq: c.Seq, ID: store.CallID(c.Seq), At: c.At, Principal: c.Principal, Session: c.Session, Server: c.Server, Method: c.Method,
		Name: c.Name, Duration: c.Duration, Outcome: c.Outcome,
	}
}

// Keeps reports whether all of an entry would be kept, and not its head alone.
func (j *Journal) Keeps(e *Entry) bool { return !e.exceeds(j.maxSize.Load()) || j.wants(e.Session) }

// Story hands out the calls of a session, the oldest first, each once and with all
// that was kept of it, up to the one with a Seq; all of them with a negative one.
// Of a wanted session these are all calls appended before. A slow fn delays no
// other code.
func (j *Journal) Story(ctx context.Context, session string, until int64, fn func(Entry) error) error {
	if until == 0 || session == "" {
		return nil
	}
	if until < 0 {
		until = math.MaxInt64 - 1
	}
	t := &storyReader{j: j, session: session, until: until}
	// In this order: calls that leave the segments meanwhile are in the archive
	// before.
	err := t.fromSegments(ctx)
	if err == nil {
		err = t.fromArchive(ctx)
	}
	if err != nil {
		return fmt.Errorf("find the calls of %s: %w", session, err)
	}
	for len(t.left) > 0 {
		first := t.left[0]
		entries, err := t.read()
		if err != nil {
			return fmt.Errorf("read call %s: %w", store.CallID(first.seq), err)
		}
		for i := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(entries[i]); err != nil {
				return err
			}
			t.last = entries[i].Seq
		}
		if len(entries) > 0 {
			continue
		}
		if err := t.fromArchive(ctx); err != nil {
			return fmt.Errorf("find the calls of %s: %w", session, err)
		}
		if t.left[0] == first {
			t.left = t.left[1:] // dropped, and not wanted
		}
	}
	return nil
}

// storyReader reads one story.
type storyReader struct {
	j       *Journal
	session string
	until   int64
	last    int64  // Seq of the last call handed out
	left    []spot // calls to hand out, in the order of Seq
	end     int64  // of the part of the archive that was read
}

// fromSegments finds the calls that stand in segments: in memory, in the index,
// and in the part of the files that neither has.
func (t *storyReader) fromSegments(ctx context.Context) error {
	j := t.j
	j.flush(ctx, listWithin)
	if err := ctx.Err(); err != nil {
		return err
	}
	f := store.CallFilter{Session: t.session, Before: t.until + 1, Limit: storyPage}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	for i := range j.pending {
		if c := &j.pending[i]; f.Chooses(c) {
			t.left = append(t.left, spot{c.Seq, c.Segment, c.Offset, c.Length})
		}
	}
	from, all := j.reached, slices.Clone(j.segments)
	if len(j.pending) > 0 {
		// Segments up to where memory begins, cut off there.
		to := place{j.pending[0].Segment, j.pending[0].Offset}
		all = slices.DeleteFunc(all, func(s segment) bool { return s.n > to.segment })
		if n := len(all); n > 0 && all[n-1].n == to.segment {
			all[n-1].size = to.offset
		}
	}
	j.mu.Unlock()

	var sc scanner
	for _, s := range all {
		if s.n < from.segment {
			continue
		}
		offset := int64(0)
		if s.n == from.segment {
			offset = from.offset
		}
		err := j.lines(&sc, s, offset, func(b []byte) bool { return string(b) == t.session }, func(l *line) error {
			if l.head.Seq <= t.until {
				t.left = append(t.left, spot{l.head.Seq, s.n, l.offset, l.length})
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	// Last, as an index that is being rebuilt may have places that the others lack.
	return j.findIndexed(ctx, f, func(c store.Call) (bool, error) {
		t.left = append(t.left, spot{c.Seq, c.Segment, c.Offset, c.Length})
		return true, nil
	})
}

// fromArchive finds the calls that were carried over since it was last called, and
// sorts the remaining ones, each once.
func (t *storyReader) fromArchive(ctx context.Context) error {
	found, err := t.carried(ctx)
	if err != nil {
		return err
	}
	// The first of a Seq stays, and archived calls stay where they are.
	t.left = append(found, t.left...)
	slices.SortStableFunc(t.left, func(a, b spot) int { return cmp.Compare(a.seq, b.seq) })
	t.left = slices.CompactFunc(t.left, func(a, b spot) bool { return a.seq == b.seq })
	if n := slices.IndexFunc(t.left, func(s spot) bool { return s.seq > t.last }); n > 0 {
		t.left = t.left[n:]
	}
	return nil
}

func (t *storyReader) carried(ctx context.Context) (found []spot, err error) {
	if !keepable(t.session) {
		return nil, nil
	}
	f, err := os.Open(t.j.kept.path(t.session))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	for sc := (scanner{r: f, offset: t.end, end: info.Size()}); ; {
		l, err := sc.next()
		if err == io.EOF {
			return found, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if l.kind == torn {
			return found, nil // it is being written
		}
		t.end = l.offset + l.length
		if l.kind == call && l.head.Session == t.session && l.head.Seq > t.last && l.head.Seq <= t.until {
			found = append(found, spot{l.head.Seq, 0, l.offset, l.length})
		}
	}
}

// read takes the next few calls from a file, and none if the first is missing. The
// file is not open while fn works on them, which on some systems would keep it from
// being deleted.
func (t *storyReader) read() (entries []Entry, err error) {
	first := t.left[0]
	path := t.j.kept.path(t.session)
	if first.segment > 0 {
		path = t.j.path(first.segment)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int64(0)
	for len(t.left) > 0 {
		s := t.left[0]
		if size += s.length; s.segment != first.segment || len(entries) > 0 && size > storyBatch {
			break
		}
		l, e, err := readWhole(f, s.offset, s.length)
		if err != nil {
			return nil, err
		}
		if l.kind != call || e.Seq != s.seq || e.Session != t.session {
			break
		}
		entries = append(entries, e)
		t.left = t.left[1:]
	}
	return entries, nil
}
