package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// Recover is called once after OpenStore. It counts references anew, from the
// heads in the folders of all states and from refs, each of which counts one,
// and removes the layers that none of them needs. Nothing is replayed. A folder
// that does not exist is no state, and passed over; one without a head is broken.
//
// A state or ref of which a layer is missing or damaged fails when it is used,
// is listed by Broken, and does not keep the rest from working. As it can't be
// known what it stood on, nothing is removed as long as there is one.
func (s *Store) Recover(states []string, refs []Ref) error { return s.recover(states, refs, true) }

// RecoverSome is Recover where there may be other states and refs that need
// layers too: nothing is removed.
func (s *Store) RecoverSome(states []string, refs []Ref) error {
	return s.recover(states, refs, false)
}

func (s *Store) recover(states []string, refs []Ref, sure bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.layers)+len(s.states) > 0 {
		return errors.New("recover layers: the store is in use already, or closed")
	}
	present, err := layerFiles(s.files.dir)
	if err != nil {
		return fmt.Errorf("recover layers: %w", err)
	}
	r := recovery{s, map[string]*state{}, !sure}
	for _, dir := range states {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("recover state %s: %w", dir, err)
		}
		if s.states[abs] == nil {
			r.state(abs)
		}
	}
	for _, ref := range refs {
		if ref.ID == "" {
			continue
		}
		if _, err := parseID(ref.ID); err != nil {
			s.broken[ref.ID] = err
			continue
		}
		l := r.load(ref.ID)
		l.pins++
		if l.broken != nil {
			s.broken[ref.ID] = l.broken
		}
	}
	r.disown()
	s.ready = true
	strays := 0
	for _, id := range present {
		if s.layers[id] != nil || r.owners[id] != nil {
			continue
		}
		strays++
		if r.unsure {
			continue
		}
		if err := s.files.remove(id); err != nil {
			s.log.Warn("a layer that nothing needs could not be removed", "layer", id, "error", err)
		}
	}
	if r.unsure && strays > 0 {
		s.log.Warn("layers that may belong to broken or unknown states are kept", "layers", strays)
	}
	return nil
}

// Broken lists what Recover found that can't be used, by the folder of the state
// or the id of the ref.
func (s *Store) Broken() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.broken)
}

// recovery is one run of Recover; s.mu is held.
type recovery struct {
	s      *Store
	owners map[string]*state // by id of the own layer
	unsure bool              // something is broken or unknown, so not all that is needed is known
}

func (r *recovery) state(dir string) {
	head, err := readHead(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	r.s.serial++
	st := &state{store: r.s, dir: dir, serial: r.s.serial}
	r.s.states[dir] = st
	if err != nil {
		r.breakState(st, fmt.Errorf("its head can't be read: %w", err))
		return
	}
	if head.Parent.ID != "" {
		st.parent = r.load(head.Parent.ID)
		st.parent.kids++
		if st.parent.broken != nil {
			r.breakState(st, st.parent.broken)
		}
	}
	if other := r.owners[head.Own]; other != nil {
		for _, st := range []*state{st, other} {
			st.own = nil
			r.breakState(st, fmt.Errorf("layer %s is claimed by the states %s and %s: one is a copy of the other's folder", head.Own, dir, other.dir))
		}
		return
	}
	st.own, st.begun = r.s.newLayer(st.parent), head.Begun
	st.own.id = head.Own
	r.owners[head.Own] = st
	if err := r.own(st); err != nil {
		r.breakState(st, err)
	}
}

func (r *recovery) breakState(st *state, err error) {
	err = &brokenError{err}
	st.broken = err
	r.s.broken[st.dir] = err
	r.unsure = true
}

// own looks at the file of a state's own layer, which may not be there yet.
func (r *recovery) own(st *state) error {
	h, size, err := r.stat(st.own.id)
	short := size < headerSize
	switch {
	case !st.begun && (errors.Is(err, fs.ErrNotExist) || err == nil && short):
		st.whole = true
		return r.s.files.remove(st.own.id)
	case err != nil:
		return err
	case short:
		return st.own.damage(0, "too short for a layer")
	}
	parent := ""
	if st.parent != nil {
		parent = st.parent.id
	}
	if h.parent != parent {
		return st.own.damage(0, fmt.Sprintf("it stands on %q, its state on %q", h.parent, parent))
	}
	st.own.version, st.own.salt, st.own.end, st.own.loaded = h.version, h.salt, size, size
	return nil
}

// disown breaks the states whose own layer others continue: their heads are
// older than what stands on them.
func (r *recovery) disown() {
	for id, st := range r.owners {
		if r.s.layers[id] != nil {
			st.own = nil
			r.breakState(st, fmt.Errorf("layer %s is sealed, others go on from it: the head is an old copy", id))
		}
	}
}

// load makes the layer id and all it stands on known.
func (r *recovery) load(id string) *layer {
	var path []*layer
	walked := map[string]bool{}
	var first *layer
	for {
		l := r.s.layers[id]
		isNew := l == nil
		parent := ""
		if isNew {
			l, parent = r.read(id)
			r.s.layers[id] = l
		}
		if first == nil {
			first = l
		} else if child := path[len(path)-1]; walked[id] {
			child.broken = child.damage(0, "it stands on itself")
			r.unsure = true
		} else {
			child.parent = l
			l.kids++
		}
		if !isNew {
			break
		}
		walked[id] = true
		path = append(path, l)
		if parent == "" {
			break
		}
		id = parent
	}
	for i := len(path) - 1; i >= 0; i-- {
		l := path[i]
		l.standOn(l.parent)
		if l.broken == nil && l.parent != nil {
			l.broken = l.parent.broken
		}
	}
	return first
}

func (r *recovery) read(id string) (l *layer, parent string) {
	h, size, err := r.stat(id)
	l = &layer{store: r.s, id: id, version: h.version, salt: h.salt, end: size, loaded: size}
	if err == nil && size < headerSize {
		err = l.damage(0, "too short for a layer")
	}
	if err != nil {
		r.unsure = true
		return &layer{store: r.s, id: id, broken: err}, ""
	}
	return l, h.parent
}

// stat reads a layer's header, where the file is large enough for one.
func (r *recovery) stat(id string) (h fileHeader, size int64, err error) {
	l := &layer{store: r.s, id: id}
	info, err := os.Stat(l.path())
	if errors.Is(err, fs.ErrNotExist) {
		d := l.damage(0, "the file is missing")
		d.cause = err
		return h, 0, d
	}
	if err != nil {
		return h, 0, fmt.Errorf("layer file %s: %w", l.path(), err)
	}
	size = info.Size()
	if size < headerSize {
		return h, size, nil
	}
	b := make([]byte, headerSize)
	if err := l.readFile(b, 0); err != nil {
		return h, size, err
	}
	if h, err = decodeFileHeader(b); err != nil {
		return h, size, l.damage(0, err.Error())
	}
	if h.id != id {
		return h, size, l.damage(0, "the file is that of layer "+h.id)
	}
	return h, size, nil
}
