package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/layer"
)

// Options of a Store. The zero value is useful.
type Options struct {
	// Dir is for unfinished imports, exports and templates. It is the Store's own;
	// default a new folder among the system's temporary ones.
	Dir      string
	MaxFiles int64 // entries of one tree; default 1,000,000
	MaxBytes int64 // of contents of one tree; default 16 GiB
	Log      *slog.Logger
}

// What lies in the folder of a workspace. A tree has a state of the layer store
// there instead.
const (
	filesName  = "files"
	headName   = "head"
	workPrefix = "work-"
)

// A Store makes, opens and freezes workspaces. Its methods may run at once for
// different folders. The layer store is its own: Recover removes every layer
// that no workspace needs.
type Store struct {
	layers  *layer.Store
	machine *layer.Machine[*tree]
	limits  limits
	log     *slog.Logger
	parent  string // Options.Dir

	mu        sync.Mutex
	open      map[string]*opened
	held      map[string]layer.Ref // of the frozen trees, by their Dir
	templates map[string]*template
	work      string // made when it is first needed
	closed    bool
}

// NewStore keeps workspaces whose trees are in layers.
func NewStore(layers *layer.Store, o Options) *Store {
	if o.MaxFiles <= 0 {
		o.MaxFiles = 1_000_000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 16 << 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		layers:    layers,
		machine:   newMachine(),
		limits:    limits{files: o.MaxFiles, bytes: o.MaxBytes},
		log:       o.Log,
		parent:    o.Dir,
		open:      map[string]*opened{},
		held:      map[string]layer.Ref{},
		templates: map[string]*template{},
	}
}

// Close gives back the templates and removes unfinished work. The layer store is
// closed after it, by its owner.
func (s *Store) Close() error {
	s.mu.Lock()
	templates, work := s.templates, s.work
	s.templates, s.work, s.closed = map[string]*template{}, "", true
	s.mu.Unlock()
	var errs []error
	for _, t := range templates {
		<-t.done
		if t.err == nil {
			errs = append(errs, s.layers.Release(t.ref))
		}
	}
	if work != "" {
		errs = append(errs, os.RemoveAll(work))
	}
	return errors.Join(errs...)
}

// scratch is the path of a folder that does not exist, for temporary work.
func (s *Store) scratch() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", fmt.Errorf("workspace store: %w", fs.ErrClosed)
	}
	if s.work == "" {
		if s.parent != "" {
			if err := os.MkdirAll(s.parent, 0o700); err != nil {
				return "", err
			}
		}
		work, err := os.MkdirTemp(s.parent, workPrefix)
		if err != nil {
			return "", err
		}
		s.work = work
	}
	return filepath.Join(s.work, partialName()), nil
}

// kindOf tells what was seeded in a folder.
func kindOf(dir string) (string, error) {
	for _, k := range []struct{ kind, name string }{{KindFolder, filesName}, {KindTree, headName}} {
		switch _, err := os.Lstat(filepath.Join(dir, k.name)); {
		case err == nil:
			return k.kind, nil
		case !missing(err):
			return "", err
		}
	}
	return "", fmt.Errorf("no workspace in %s: %w", dir, fs.ErrNotExist)
}

// opened is a workspace that is open; all callers that open it share it.
type opened struct {
	waiting int // callers that have it or want it; guarded by Store.mu

	mu    sync.Mutex
	users int
	fs    FS
	dir   string // of the files of a folder
	close func() error
}

// Open opens what Seed made. All callers that open one folder share one tree; the last
// to close it frees it.
func (s *Store) Open(dir string) (*Workspace, error) {
	w, err := s.openShared(dir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return w, nil
}

func (s *Store) openShared(dir string) (*Workspace, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	o := s.open[dir]
	if o == nil {
		o = &opened{}
		s.open[dir] = o
	}
	o.waiting++
	s.mu.Unlock()

	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == 0 {
		if err := s.openFiles(o, dir); err != nil {
			s.leave(dir, o)
			return nil, err
		}
	}
	o.users++
	w := &Workspace{fs: o.fs, dir: o.dir, close: func() error { return s.release(dir, o) }}
	if w.Kind() == KindTree {
		w.layers, w.state = s.layers, dir
	}
	return w, nil
}

func (s *Store) release(dir string, o *opened) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer s.leave(dir, o)
	if o.users--; o.users > 0 {
		return nil
	}
	return o.close()
}

func (s *Store) leave(dir string, o *opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.waiting--; o.waiting == 0 && s.open[dir] == o {
		delete(s.open, dir)
	}
}

func (s *Store) openFiles(o *opened, dir string) error {
	kind, err := kindOf(dir)
	if err != nil {
		return err
	}
	if kind == KindFolder {
		f, err := openFolder(filepath.Join(dir, filesName))
		if err != nil {
			return err
		}
		o.fs, o.dir, o.close = f, f.name, f.Close
		return nil
	}
	t, err := s.openTree(dir)
	if err != nil {
		return err
	}
	o.fs, o.dir, o.close = t, "", t.head.Close
	return nil
}

// openTree opens a state whose head is not open elsewhere.
func (s *Store) openTree(dir string) (*treeFS, error) {
	head, err := layer.Open(s.layers, dir, s.machine)
	if err != nil {
		return nil, err
	}
	t := &treeFS{head: head, limits: s.limits, opened: time.Now().UnixNano()}
	// Files that a killed process was writing, or that the parent of a fork still
	// is: no caller of this workspace will finish them.
	if head.Value().uploads.Len() > 0 {
		if err := t.commit(nil, func(*tree) (change, error) { return change{op: opDrop}, nil }); err != nil {
			s.log.Warn("unfinished files of a workspace keep their place until it is opened again", "workspace", dir, "error", err)
		}
	}
	return t, nil
}

// Size is the bytes of what is in the workspace.
func (s *Store) Size(dir string) (int64, error) {
	w, err := s.Open(dir)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	return sizeOf(w)
}
