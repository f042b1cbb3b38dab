package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/tine-mcp/tine/internal/store"
)

const defaultLimit = 100

// List returns calls, the newest first, without results and without params of more
// than 16 KiB. Calls that were appended before are part of it, and dropped ones are
// not.
func (j *Journal) List(ctx context.Context, f store.CallFilter) ([]Entry, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	var all []Entry
	var files reader
	defer files.close()
	err := j.find(ctx, f, func(c store.Call) (bool, error) {
		e, ok, err := files.listed(j.path(c.Segment), c)
		if err != nil {
			return false, fmt.Errorf("read call %s: %w", c.ID, err)
		}
		if ok {
			all = append(all, e)
		}
		return len(all) < f.Limit, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the calls: %w", err)
	}
	return all, nil
}

// Get returns one call with all that was kept of it; ok is false if there is none
// with this id.
func (j *Journal) Get(ctx context.Context, id string) (e Entry, ok bool, err error) {
	if id == "" {
		return Entry{}, false, nil
	}
	err = j.find(ctx, store.CallFilter{ID: id, Limit: 1}, func(c store.Call) (bool, error) {
		e, ok, err = j.whole(c)
		return !ok && err == nil, err
	})
	if err != nil {
		return Entry{}, false, fmt.Errorf("read call %s: %w", id, err)
	}
	return e, ok, nil
}

// find hands out the places of calls, the newest first, until take says that
// it has enough.
func (j *Journal) find(ctx context.Context, f store.CallFilter, take func(store.Call) (more bool, err error)) error {
	j.flush(ctx, listWithin)
	if err := ctx.Err(); err != nil {
		return err
	}
	var waiting []store.Call
	j.mu.Lock()
	closed := j.closed
	for _, c := range slices.Backward(j.pending) {
		if len(waiting) < f.Limit && f.Chooses(&c) {
			waiting = append(waiting, c)
		}
	}
	j.mu.Unlock()
	if closed {
		return ErrClosed
	}
	for _, c := range waiting {
		f.Before = c.Seq
		if more, err := take(c); err != nil || !more {
			return err
		}
	}
	return j.findIndexed(ctx, f, take)
}

// findIndexed is find for indexed calls.
func (j *Journal) findIndexed(ctx context.Context, f store.CallFilter, take func(store.Call) (more bool, err error)) error {
	for ; ; f.Limit = max(f.Limit, defaultLimit) {
		calls, err := j.index.Calls(ctx, f)
		if err != nil {
			return err
		}
		for _, c := range calls {
			f.Before = c.Seq
			if more, err := take(c); err != nil || !more {
				return err
			}
		}
		// Some may have been dropped since they were indexed; go on for others.
		if len(calls) < f.Limit || f.Before <= 1 {
			return nil
		}
	}
}

// reader reads calls by their place. Calls of a list mostly stand in the same
// file, so it keeps the last one open.
type reader struct {
	path string
	f    *os.File
	sc   scanner
}

// listed returns one call; ok is false when it is no longer there.
func (r *reader) listed(path string, c store.Call) (e Entry, ok bool, err error) {
	if r.path != path {
		r.close()
		if r.f, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
			return e, false, nil
		} else if err != nil {
			return e, false, err
		}
		r.path = path
		r.sc.at(r.f, 0, 0)
	}
	r.sc.offset, r.sc.end = c.Offset, c.Offset+c.Length
	l, err := r.sc.next()
	if errors.Is(err, io.EOF) || err == nil && !l.is(c) {
		return e, false, nil
	}
	if err == nil {
		e, err = r.sc.listed(&l)
	}
	return e, err == nil, err
}

func (r *reader) close() {
	if r.f != nil {
		r.f.Close()
	}
	r.f, r.path = nil, ""
}

// whole reads all of a call.
func (j *Journal) whole(c store.Call) (Entry, bool, error) {
	f, err := os.Open(j.path(c.Segment))
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, false, nil
	}
	if err != nil {
		return Entry{}, false, err
	}
	defer f.Close()
	l, e, err := readWhole(f, c.Offset, c.Length)
	if err != nil || !l.is(c) {
		return Entry{}, false, err
	}
	return e, true, nil
}

// readWhole reads the line that stands at a place, and all of its call if it is
// one.
func readWhole(f *os.File, offset, length int64) (line, Entry, error) {
	l := line{kind: damaged, offset: offset, length: length}
	// A length is believed only as far as there is a file.
	if info, err := f.Stat(); err != nil || length < 0 || offset+length > info.Size() {
		return l, Entry{}, err
	}
	b := make([]byte, length)
	if _, err := f.ReadAt(b, offset); err != nil {
		return l, Entry{}, err
	}
	if l.read(b); l.kind != call {
		return l, Entry{}, nil
	}
	e := l.head.entry()
	params, result, _ := l.head.bodies()
	e.Params = asJSON(b[params:][:l.head.Sizes[0]:l.head.Sizes[0]])
	e.Result = asJSON(b[result:][:l.head.Sizes[1]:l.head.Sizes[1]])
	return l, e, nil
}
