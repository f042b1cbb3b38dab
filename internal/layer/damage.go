package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Damage says which layer can't be read, and where it is damaged. The file stays
// as it is: nothing damaged is written anew or removed by itself.
type Damage struct {
	Layer  string
	File   string // its path
	Offset int64
	Reason string
	cause  error // the system's error, if there was one
}

func (d *Damage) Unwrap() error { return d.cause }

func (d *Damage) Error() string {
	return fmt.Sprintf("layer file %s is damaged at offset %d: %s", d.File, d.Offset, d.Reason)
}

// Cut is what the first Open or Seal of a state gives whose log has lost its end:
// changes that were acknowledged are missing. The caller writes that down; the next
// Open goes on with what is left.
type Cut struct {
	Damage
	Left int // changes that are left in the layer
}

func (c *Cut) Error() string {
	return fmt.Sprintf("layer file %s ends at offset %d without an end marker (%s): changes that were acknowledged may be missing",
		c.File, c.Offset, c.Reason)
}

// Unwrap makes a Cut a Damage.
func (c *Cut) Unwrap() error { return &c.Damage }

// IsLost tells whether what a state or a Ref holds can't be read any more, or not
// all of it. Trying again does not help.
func IsLost(err error) bool {
	var d *Damage
	var b *brokenError
	return errors.As(err, &d) || errors.As(err, &b) || errors.Is(err, ErrUnknown)
}

// brokenError is why a state can't be used: its head and its layers don't belong
// together.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

func (l *layer) path() string { return l.store.files.path(l.id) }

func (l *layer) damage(off int64, reason string) *Damage {
	return &Damage{Layer: l.id, File: l.path(), Offset: off, Reason: reason}
}

// unread explains why a layer's file could not be read at off: a file that is
// missing or too short, or a disk that can't read it, is damage; a lack of
// descriptors is not.
func (l *layer) unread(off int64, err error) error {
	d := l.damage(off, "")
	switch d.cause = err; {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		d.Reason = "the file is too short"
	case errors.Is(err, fs.ErrNotExist):
		d.Reason = "the file is missing"
	case errors.Is(err, syscall.EIO):
		d.Reason = err.Error()
	}
	if d.Reason != "" {
		return l.found(d)
	}
	return fmt.Errorf("read layer file %s at offset %d: %w", l.path(), off, err)
}

// found notes that damage was met in l.
func (l *layer) found(d *Damage) error {
	if !l.damaged.Swap(true) {
		l.store.log.Error("a layer is damaged; its file is kept as it is", "file", d.File, "offset", d.Offset, "reason", d.Reason)
	}
	l.store.damages.add(d)
	return d
}

// damages are the latest that reads of bodies met.
type damages struct {
	count atomic.Uint64

	mu     sync.Mutex
	latest []*Damage // the last of count
}

const manyDamages = 256

func (d *damages) add(x *Damage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latest = append(d.latest, x); len(d.latest) > manyDamages {
		d.latest = slices.Delete(d.latest, 0, len(d.latest)-manyDamages)
	}
	d.count.Add(1)
}

// Damages counts how often reading has met damage, in any state. It costs nothing: a
// caller that sees it grow asks DamageSince.
func (s *Store) Damages() uint64 { return s.damages.count.Load() }

// DamageSince tells what was met, since Damages gave n, of the layers that the state
// in dir stands on; nil for nothing. Another state may have met it that stands on
// the same layer.
func (s *Store) DamageSince(dir string, n uint64) *Damage {
	s.damages.mu.Lock()
	since := min(int(s.damages.count.Load()-n), len(s.damages.latest))
	met := slices.Clone(s.damages.latest[len(s.damages.latest)-since:])
	s.damages.mu.Unlock()
	if len(met) == 0 {
		return nil
	}
	st, err := s.lock(dir)
	if err != nil {
		return nil
	}
	defer st.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	in := map[string]bool{}
	if st.own != nil {
		in[st.own.id] = true
	}
	for l := st.parent; l != nil; l = l.parent {
		in[l.id] = true
	}
	for _, d := range met {
		if _, left := s.superseded[d.Layer]; left || in[d.Layer] { // a value from before may still be read
			return d
		}
	}
	return nil
}
