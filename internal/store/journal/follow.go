package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	// followBatch is how many calls a follower has in memory, and followBytes how much
	// it reads of a file for them.
	followBatch = 64
	followBytes = 4 << 20
)

// Follow calls fn for every call that is appended from now on, in order, as List
// has them. It returns fn's error, or that of ctx, or ErrClosed. A slow fn delays
// no other code: a follower reads from the files. If files are gone, Missed says
// how many calls were lost.
func (j *Journal) Follow(ctx context.Context, fn func(Entry) error) error {
	tail := j.Tail()
	return tail.Follow(ctx, fn)
}

// Tail is a moment in the journal. It holds nothing open, and is for one goroutine.
type Tail struct {
	j    *Journal
	at   place
	next int64 // the Seq of the next call; zero for that of any
	// choose picks the lines of which the calls are read; nil for all.
	choose func(line []byte) bool
}

// Tail returns this moment, for a caller that must announce that it follows before
// it does.
func (j *Journal) Tail() Tail {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tail()
}

// tail is Tail for a caller that holds mu.
func (j *Journal) tail() Tail {
	s := &j.segments[len(j.segments)-1]
	return Tail{j: j, at: place{s.n, s.size}, next: j.next}
}

// Oldest returns the moment before the first call that is still there.
func (j *Journal) Oldest() Tail {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Tail{j: j, at: place{j.segments[0].n, 0}}
}

// TailAfter returns the moment after the call with a Seq, whether or not the call is still
// there. With a Seq that no call has had yet, ok is false.
func (j *Journal) TailAfter(ctx context.Context, seq int64) (t Tail, ok bool, err error) {
	j.mu.Lock()
	t = j.tail()
	first := j.segments[0].n
	j.mu.Unlock()
	if seq < 0 || seq >= t.next {
		return t, false, nil
	}
	if seq == t.next-1 {
		return t, true, nil
	}
	t.at, t.next = place{first, 0}, seq+1
	if seq == 0 {
		return t, true, nil
	}
	// The call, or the last one before it that is known: Next passes over what it finds
	// up to seq.
	err = j.find(ctx, store.CallFilter{Before: seq + 1, Limit: 1}, func(c store.Call) (bool, error) {
		if c.Segment >= first {
			t.at = place{c.Segment, c.Offset + c.Length}
		}
		return false, nil
	})
	if err != nil {
		return t, false, fmt.Errorf("find call %s: %w", store.CallID(seq), err)
	}
	return t, true, nil
}

// Of has the tail hand out only calls of a session, where it is not empty, and of a
// principal, where it is not nil.
func (t *Tail) Of(principal *string, session string) {
	quoted := func(s string) []byte {
		q := appendString(nil, s)
		return q[1 : len(q)-1]
	}
	var who, where []byte
	if principal != nil {
		who = quoted(*principal)
	}
	if session != "" {
		where = quoted(session)
	}
	t.choose = func(line []byte) bool {
		return (principal == nil || bytes.Equal(principalOf(line), who)) && (session == "" || bytes.Equal(sessionOf(line), where))
	}
}

// At is the Seq of the last call before the moment; zero for none, and where that is not
// known yet.
func (t *Tail) At() int64 { return max(0, t.next-1) }

// ToEnd moves to the end of the journal.
func (t *Tail) ToEnd() {
	t.j.mu.Lock()
	defer t.j.mu.Unlock()
	end := t.j.tail()
	t.at, t.next = end.at, end.next
}

// Follow is Follow of the Journal, for every call since t was taken.
func (t *Tail) Follow(ctx context.Context, fn func(Entry) error) error {
	woken, leave := t.j.hub.Follow()
	defer leave()
	missed := int64(0) // since the last entry
	for {
		entries, gone, more, err := t.Next()
		if err != nil {
			return fmt.Errorf("follow the journal: %w", err)
		}
		if len(entries) > 0 {
			entries[0].Missed += missed
			missed = 0
		}
		missed += gone
		for i := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(entries[i]); err != nil {
				return err
			}
		}
		if more {
			select {
			case <-t.j.closing:
				return ErrClosed
			case <-ctx.Done():
				return ctx.Err()
			default:
				continue
			}
		}
		select {
		case <-woken:
		case <-t.j.closing:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Next returns the next few calls, and moves behind them; more is false at the end of the
// journal. Missed is how many calls after the last entry are not there any more. The file
// is not open when it returns, which on some systems would keep it from being deleted.
func (t *Tail) Next() (entries []Entry, missed int64, more bool, err error) {
	j := t.j
	j.mu.Lock()
	s, isLast := j.segmentFrom(&t.at)
	end := j.next
	j.mu.Unlock()
	// gone counts the calls between the last one that was seen and another one.
	gone := func(seq int64) int64 {
		n := max(0, seq-t.next)
		if t.next == 0 { // there was no call that was seen
			n = 0
		}
		t.next = max(t.next, seq)
		return n
	}
	if t.at.offset >= s.size {
		if isLast {
			missed = gone(end)
		}
		return nil, missed, !isLast, nil
	}
	f, err := os.Open(j.path(s.n))
	if errors.Is(err, fs.ErrNotExist) {
		t.at.offset = s.size // dropped just now
		return nil, 0, true, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	defer f.Close()
	lines, _ := j.scanners.Get().(*scanner)
	if lines == nil {
		lines = new(scanner)
	}
	defer func() {
		lines.at(nil, 0, 0)
		j.scanners.Put(lines)
	}()
	from := t.at.offset
	lines.at(f, from, s.size)
	lines.choose = t.choose
	for len(entries) < followBatch && t.at.offset-from < followBytes {
		l, err := lines.next()
		if err == io.EOF {
			t.at.offset = s.size
			break
		}
		if err != nil {
			return nil, 0, false, err
		}
		t.at.offset = l.offset + l.length
		if l.kind != call && l.kind != passed || l.head.Seq < t.next {
			continue
		}
		missed += gone(l.head.Seq)
		t.next = l.head.Seq + 1
		if l.kind == passed {
			continue
		}
		e, err := lines.listed(&l)
		if err != nil {
			return nil, 0, false, err
		}
		e.Missed, missed = missed, 0
		entries = append(entries, e)
	}
	return entries, missed, true, nil
}
