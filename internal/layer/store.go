package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// A Store keeps the layers of one folder. All of it may be used by any number
// of goroutines at once.
//
// References are counted in memory and counted again by Recover: the owner of a Ref
// writes it down before relying on it, and forgets it before releasing it. Layers
// that the next Recover is not given are removed.
type Store struct {
	files *files
	log   *slog.Logger
	bufs  sync.Pool // of *[]byte, chunk long

	rewriteFrom int64 // see Head.tidy
	mergeFrom   int

	mu         sync.Mutex
	ready      bool // references are known
	closed     bool
	layers     map[string]*layer // the sealed ones
	states     map[string]*state // by absolute folder
	serial     uint64            // of the last state
	broken     map[string]error  // by state folder or id of a layer
	superseded map[string]int64  // left layers that may still have readers: what they weigh
	heldBytes  int64             // of superseded
	collectAt  int64             // see supersede

	damages damages
}

// layer is one log. Everything but end, count and what is marked as changing is fixed
// once it is made.
type layer struct {
	store   *Store
	id      string
	version uint32 // of its file's format
	salt    uint64

	below int64 // bytes of all that it stands on
	depth int   // layers that it stands on

	// Until it is sealed these belong to the state whose own it is.
	parent *layer
	by     uint64 // the state that sealed it; 0 where an earlier run or another store did
	end    int64  // where its records end; 0 while there is no file
	count  uint32 // records
	synced bool   // guarded by store.mu

	// Guarded by store.mu. A layer is held by pins, references that callers
	// own, and by kids, the layers and states that continue it.
	pins, kids int
	left       bool // a state that stood on it has moved on; values from before may be read

	broken  error // why it can't be read, if so; fixed at Recover
	fold    fold
	loaded  int64 // up to there an earlier run wrote the file
	sums    sums  // of what is before loaded
	damaged atomic.Bool
	// ended says that it was seen to end as it was written, and all that it stands on.
	ended atomic.Bool
}

// chunk is how much of a body is in memory at once.
const chunk = 256 << 10

// OpenStore opens the folder o.Dir, or makes it. Where it already holds layers,
// Recover must come next.
func OpenStore(o Options) (*Store, error) {
	if o.Dir == "" {
		return nil, errors.New("open layer store: no folder given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open layer store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open layer store: %w", err)
	}
	names, err := layerFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("open layer store: %w", err)
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = 512
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		files:       newFiles(dir, o.MaxFiles),
		log:         o.Log,
		ready:       len(names) == 0,
		rewriteFrom: rewriteFrom,
		mergeFrom:   mergeFrom,
		layers:      map[string]*layer{},
		states:      map[string]*state{},
		broken:      map[string]error{},
		superseded:  map[string]int64{},
	}
	s.bufs.New = func() any {
		b := make([]byte, chunk)
		return &b
	}
	return s, nil
}

// layerFiles are the ids of the layers whose files lie in dir.
func layerFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), fileSuffix)
		if !ok {
			continue
		}
		if _, err := parseID(id); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Close closes all files. Heads that are still open fail from then on; what
// they committed is safe.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	held := s.superseded
	s.superseded = map[string]int64{}
	s.heldBytes = 0
	s.mu.Unlock()
	var errs []error
	for id := range held {
		errs = append(errs, s.files.remove(id))
	}
	errs = append(errs, s.files.close())
	return errors.Join(errs...)
}

// Create makes a state in the folder dir, which begins at from and keeps it
// alive. It writes one small file, whatever from holds. A layer of which the end is
// missing is noticed here; it is looked for once.
func (s *Store) Create(dir string, from Ref) error {
	fail := func(err error) error { return fmt.Errorf("create state %s: %w", dir, err) }
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fail(err)
	}
	st := &state{store: s, dir: dir, whole: true}
	st.mu.Lock()
	defer st.mu.Unlock()
	s.mu.Lock()
	if err := s.usable(); err != nil {
		s.mu.Unlock()
		return fail(err)
	}
	if s.states[dir] != nil {
		s.mu.Unlock()
		return fail(errors.New("there is a state already; Remove it first"))
	}
	if st.parent, err = s.find(from); err != nil {
		s.mu.Unlock()
		return fail(err)
	}
	if st.parent != nil {
		st.parent.kids++
	}
	s.serial++
	st.serial = s.serial
	s.states[dir] = st
	s.mu.Unlock()

	st.own = s.newLayer(st.parent)
	err = st.parent.checkEnds()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = makeHead(dir, headOf(st.own, false))
	}
	if err != nil {
		err = errors.Join(err, removeHead(dir))
		st.gone = true
		s.mu.Lock()
		delete(s.states, dir)
		s.mu.Unlock()
		return fail(errors.Join(err, s.abandon(st.parent)))
	}
	return nil
}

func (s *Store) newLayer(parent *layer) *layer {
	l := &layer{store: s, id: newID(), version: fileVersion, salt: random()}
	l.standOn(parent)
	return l
}

// standOn is called once, when all of parent is known.
func (l *layer) standOn(parent *layer) {
	if l.parent = parent; parent != nil {
		l.below, l.depth = parent.top(), parent.depth+1
	}
}

// top is how many bytes l has with all that it stands on.
func (l *layer) top() int64 {
	if l == nil {
		return 0
	}
	return l.below + l.end
}

// usable tells whether the store is open and references are known; s.mu is held.
func (s *Store) usable() error {
	if s.closed {
		return fmt.Errorf("layer store: %w", fs.ErrClosed)
	}
	if !s.ready {
		return errors.New("the store holds layers of an earlier run; call Recover first")
	}
	return nil
}
