package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
)

// state is what a folder with a head file stands for: a layer of its own that
// grows, on a sealed one.
type state struct {
	store  *Store
	dir    string
	serial uint64 // no two have the same

	mu     sync.Mutex // held over a commit, a seal, an opening
	own    *layer
	parent *layer // nil at the bottom; the state is one of its kids
	begun  bool   // the head says that own has a file
	whole  bool   // own's end is known; not so for what an earlier run left
	torn   bool   // own's file may have more than own.end bytes
	gone   bool
	broken error
	head   opened // nil while nobody has it open
}

// opened is a Head of some type.
type opened interface {
	// sealed is told that what it holds is now in the parent, and gives the trail
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

// replay settles and goes over the records of own with what begin gives. Where an
// unfinished end is cut off it begins again, since what is now the last record is
// to be checked as such.
func (st *state) replay(begin func() func(meta []byte, body Extent) error) error {
	if st.broken != nil {
		return st.broken
	}
	if st.torn {
		if err := st.undo(); err != nil {
			return err
		}
	}
	own := st.own
	for own.end > 0 && (!st.whole || begin != nil) {
		sc := own.scanner()
		if !st.whole {
			sc.bodies = lastBody
		}
		var each func([]byte, int64, int64) error
		if begin != nil {
			each = own.extents(begin())
		}
		end, count, err := sc.scan(each)
		torn := (*tornError)(nil)
		switch {
		case err == nil:
			own.end, own.count, st.whole = end, count, true
			return nil
		case st.whole || !errors.As(err, &torn):
			return err
		}
		st.store.log.Warn("the end of a layer was never finished and is cut off",
			"layer", own.id, "offset", end, "bytes", own.end-end, "reason", torn.Reason)
		if err := st.store.files.truncate(own.id, end); err != nil {
			return fmt.Errorf("cut off the unfinished end of layer %s: %w", own.id, err)
		}
		own.end = end
	}
	return nil
}

// undo cuts off what a failed commit wrote.
func (st *state) undo() error {
	if err := st.store.files.truncate(st.own.id, st.own.end); err != nil {
		st.torn = true
		return fmt.Errorf("cut off a failed change from layer %s: %w", st.own.id, err)
	}
	st.torn = false
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

// removeUnknown removes a head that Recover was not told of, whose layers are
// gone by now.
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
