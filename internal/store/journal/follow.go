package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// followBatch is how many calls a follower has in memory.
const followBatch = 64

// Follow calls fn for every call that is appended from now on, in order, as List
// has them. It returns fn's error, or that of ctx, or ErrClosed. A slow fn delays
// no other code: a follower reads from the files. If files are gone, Missed says
// how many calls were lost.
func (j *Journal) Follow(ctx context.Context, fn func(Entry) error) error {
	return j.Tail().Follow(ctx, fn)
}

// Tail is a moment in the journal. It holds nothing open.
type Tail struct {
	j    *Journal
	at   place
	next int64
}

// Tail returns this moment, for a caller that must announce that it follows before
// it does.
func (j *Journal) Tail() Tail {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &j.segments[len(j.segments)-1]
	return Tail{j: j, at: place{s.n, s.size}, next: j.next}
}

// Follow is Follow of the Journal, for every call since t was taken.
func (t Tail) Follow(ctx context.Context, fn func(Entry) error) error {
	j := t.j
	wake := make(chan struct{}, 1)
	j.mu.Lock()
	j.followers[wake] = struct{}{}
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		delete(j.followers, wake)
		j.mu.Unlock()
	}()

	var lines scanner
	for {
		entries, more, err := t.read(&lines)
		if err != nil {
			return fmt.Errorf("follow the journal: %w", err)
		}
		for i := range entries {
			e := &entries[i]
			if e.Seq > t.next {
				e.Missed = e.Seq - t.next
			}
			t.next = e.Seq + 1
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(*e); err != nil {
				return err
			}
		}
		if more {
			select {
			case <-j.closing:
				return ErrClosed
			case <-ctx.Done():
				return ctx.Err()
			default:
				continue
			}
		}
		select {
		case <-wake:
		case <-j.closing:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read takes a few calls from a file. The file is not open while fn works on
// them, which on some systems would keep it from being deleted.
func (t *Tail) read(lines *scanner) (entries []Entry, more bool, err error) {
	j := t.j
	j.mu.Lock()
	s, isLast := j.segmentFrom(&t.at)
	j.mu.Unlock()
	if t.at.offset >= s.size {
		return nil, !isLast, nil
	}
	f, err := os.Open(j.path(s.n))
	if errors.Is(err, fs.ErrNotExist) {
		t.at.offset = s.size // dropped just now
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	lines.at(f, t.at.offset, s.size)
	for len(entries) < followBatch {
		l, err := lines.next()
		if err == io.EOF {
			t.at.offset = s.size
			break
		}
		if err != nil {
			return nil, false, err
		}
		if l.kind == call {
			e, err := lines.listed(&l)
			if err != nil {
				return nil, false, err
			}
			entries = append(entries, e)
		}
		t.at.offset = l.offset + l.length
	}
	return entries, true, nil
}
