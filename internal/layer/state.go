package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// state is what a folder with a head file stands for: a layer of its own that
// grows, on a sealed one.
type state struct {
	store  *Store
	dir    string
	serial uint64 // no two have the same

	mu       sync.Mutex // held over a commit, a seal, an opening
	own      *layer
	parent   *layer // nil at the bottom; the state is one of its kids
	begun    bool   // the head says that own has a file
	whole    bool   // own's end is known; not so for what an earlier run left
	torn     bool   // own's file may not end as own.end says
	reported bool   // a caller got the error that the end of own is missing
	gone     bool
	broken   error
	head     opened // nil while it is not open
}

// opened is a Head of some type.
type opened interface {
	// sealed is called when what it holds is now in the parent, and gives the trail
	// that leads there.
	sealed() any
	// shut makes it fail from now on.
	shut()
}

// lock finds the state in dir and locks it.
func (s *Store) lock(dir string) (*state, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	err = s.usable()
	st := s.states[dir]
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if st != nil {
		st.mu.Lock()
		if !st.gone {
			return st, nil
		}
		st.mu.Unlock()
	}
	return nil, fmt.Errorf("no state there: %w", fs.ErrNotExist)
}

// settle makes own end where its whole records do: an earlier run may have died
// in a write, or a commit may have failed and could not be undone.
func (st *state) settle() error { return st.replay(nil) }

// replay settles, and goes over the records of own with each where that is given.
func (st *state) replay(each func(meta []byte, body Extent) error) error {
	if st.broken != nil {
		return st.broken
	}
	if st.torn {
		if err := st.undo(); err != nil {
			return err
		}
	}
	own := st.own
	if own.end == 0 || st.whole && each == nil {
		return nil
	}
	end, count, err := own.scanner().scan(own.extents(each))
	if err != nil {
		if st.whole {
			return own.sealedError(err)
		}
		if err := st.mend(err, end, count); err != nil {
			return err
		}
	}
	if !st.whole {
		own.end, own.count, own.loaded, st.whole = end, count, min(own.loaded, end), true
	}
	return nil
}

// mend makes own end after count whole records. A record that was never finished is
// cut off. Where the end is missing the first caller gets an error, so that the loss
// is written down, and the next one goes on with what is left.
func (st *state) mend(why error, end int64, count uint32) error {
	own := st.own
	var torn *tornError
	var cut *Cut
	switch {
	case errors.As(why, &torn):
		st.store.log.Info("a change that was never finished is cut off",
			"file", own.path(), "offset", torn.Offset, "bytes", own.end-torn.Offset)
	case errors.As(why, &cut):
		if !st.reported {
			st.reported = true
			st.store.log.Error("the end of a layer is missing", "state", st.dir, "file", own.path(),
				"offset", cut.Offset, "reason", cut.Reason)
			return why
		}
		if err := own.keepTail(cut.Offset); err != nil {
			return err
		}
	default:
		return own.sealedError(why)
	}
	size := own.end
	own.end, own.count = end, count
	if err := st.undo(); err != nil {
		own.end, st.torn = size, false // the next one looks again
		return err
	}
	return nil
}

// undo has own's file end after the records that count, with an end marker. A crash
// in between leaves an open record.
func (st *state) undo() error {
	own := st.own
	st.torn = true
	if err := st.store.files.truncate(own.id, own.end); err != nil {
		return fmt.Errorf("cut off a failed change from layer %s: %w", own.id, err)
	}
	if own.version != oldVersion {
		if err := st.store.files.writeAt(own.id, endMarker(own.count, own.salt), own.next()); err != nil {
			return fmt.Errorf("cut off a failed change from layer %s: %w", own.id, err)
		}
	}
	st.torn = false
	return nil
}

// keepTail saves what stands after off in the file of a layer whose end is missing,
// as a file beside it that is never removed: an operator may want to look at it.
func (l *layer) keepTail(off int64) error {
	fail := func(err error) error { return fmt.Errorf("keep the damaged end of layer file %s: %w", l.path(), err) }
	if off >= l.end {
		return nil
	}
	f, err := os.CreateTemp(l.store.files.dir, fmt.Sprintf("%s-%d-*%s", l.id, off, cutSuffix))
	if err != nil {
		return fail(err)
	}
	_, err = io.Copy(f, io.NewSectionReader(at{l}, off, l.end-off))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fail(err)
	}
	return nil
}

// Remove takes the state in dir away: its head, its own layer and its hold on
// what it stood on, and dir itself when nothing else is in it. An open Head is
// closed. There may be no state.
func (s *Store) Remove(dir string) error {
	fail := func(err error) error { return fmt.Errorf("remove state %s: %w", dir, err) }
	st, err := s.lock(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.removeUnknown(dir)
		st = nil
	}
	if err != nil {
		return fail(err)
	}
	if st == nil {
		return nil
	}
	defer st.mu.Unlock()
	// The head goes first: what is left when we die after that is a stray.
	if err := removeHead(st.dir); err != nil {
		return fail(err)
	}
	st.gone = true
	if st.head != nil {
		st.head.shut()
		st.head = nil
	}
	s.mu.Lock()
	delete(s.states, st.dir)
	delete(s.broken, st.dir)
	s.mu.Unlock()
	var errs []error
	if st.own != nil && (st.own.end > 0 || st.broken != nil) {
		errs = append(errs, s.files.remove(st.own.id))
	}
	errs = append(errs, s.abandon(st.parent))
	if err := errors.Join(errs...); err != nil {
		return fail(err)
	}
	return nil
}

// removeUnknown removes a head that Recover was not given, whose layers are gone by
// now.
func (s *Store) removeUnknown(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[dir] != nil {
		return nil // made just now: that is another state
	}
	return removeHead(dir)
}

// StateSize is how many bytes the state's own layer has on disk.
func (s *Store) StateSize(dir string) (own int64, err error) {
	st, err := s.lock(dir)
	if err != nil {
		return 0, fmt.Errorf("size of state %s: %w", dir, err)
	}
	defer st.mu.Unlock()
	if st.own == nil {
		return 0, nil
	}
	return st.own.end, nil
}
