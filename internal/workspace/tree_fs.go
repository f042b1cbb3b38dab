package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/layer"
)

// treeRoot is how the root of a tree is called.
const treeRoot = "/workspace"

// A treeFS is a tree in layers as an FS. Readers see the tree as it is when they
// ask; every change is one or more changes of its head, each of which looks at
// the tree as it finds it, so that two at once never undo each other.
type treeFS struct {
	head   *layer.Head[*tree]
	limits limits
	opened int64 // the age of a root that nothing was ever done in
	at     *at   // where it is seen; nil for treeRoot
}

// limits of one workspace.
type limits struct {
	files int64
	bytes int64
}

// ErrFull is the error of a workspace that would have more than it may.
var ErrFull = errors.New("workspace is full")

// fits tells whether a tree may have so many entries and bytes more.
func (l limits) fits(t *tree, files, size int64) error {
	if files > 0 && t.root.count-1+files > l.files {
		return fmt.Errorf("%w: it may have %d files and directories; remove some", ErrFull, l.files)
	}
	if size > 0 && t.root.bytes+t.pending+size > l.bytes {
		return fmt.Errorf("%w: it may have %d bytes, %d are used; remove something", ErrFull, l.bytes, t.root.bytes+t.pending)
	}
	return nil
}

func (f *treeFS) Root() string {
	if f.at != nil {
		return f.at.root
	}
	return treeRoot
}

// find resolves a name in the tree as it is.
func (f *treeFS) find(t *tree, name string, follow bool) (spot[*node], error) {
	if f.at == nil {
		return t.find(name, follow)
	}
	return resolve(ground[*node](rooted{t, f.at.names}), name, follow)
}

// rooted is a tree whose root has more names.
type rooted struct {
	*tree
	names []string
}

func (r rooted) roots() []string { return r.names }

// commit makes one change, which is decided on the tree as it is then.
func (f *treeFS) commit(body []byte, decide func(t *tree) (change, error)) error {
	_, err := f.head.Commit(func(t *tree) ([]byte, io.Reader, int64, error) {
		c, err := decide(t)
		if err != nil || c.op == 0 {
			return nil, nil, 0, err
		}
		if len(body) == 0 {
			return c.encode(), nil, 0, nil
		}
		return c.encode(), bytes.NewReader(body), int64(len(body)), nil
	})
	return err
}

func (f *treeFS) Stat(name string) (Info, error)  { return f.stat("stat", name, true) }
func (f *treeFS) Lstat(name string) (Info, error) { return f.stat("lstat", name, false) }

func (f *treeFS) stat(op, name string, follow bool) (Info, error) {
	s, err := f.find(f.head.Value(), name, follow)
	if err == nil && !s.found {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Info{}, pathError(op, name, err)
	}
	info := s.info
	info.Name = lastElement(name)
	if s.isRoot() && s.dir.modified == 0 {
		t := time.Unix(0, f.opened)
		info.Modified, info.Created, info.Accessed = t, t, t
	}
	return info, nil
}

func (f *treeFS) ReadDir(name string) ([]Info, error) {
	n, err := f.get(name)
	if err == nil && !n.mode.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	list := []Info{}
	n.each(func(name string, c *node) error {
		list = append(list, c.info(name))
		return nil
	})
	return list, nil
}

func (f *treeFS) Open(name string) (File, error) {
	n, err := f.get(name)
	if err == nil {
		err = readable(n.mode)
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &treeFile{info: n.info(lastElement(name)), parts: n.parts}, nil
}

func (f *treeFS) get(name string) (*node, error) {
	s, err := f.find(f.head.Value(), name, true)
	if err != nil {
		return nil, err
	}
	return nodeAt(s)
}

func (f *treeFS) Mkdir(name string) error {
	return pathError("mkdir", name, f.commit(nil, func(t *tree) (change, error) {
		s, err := f.free(t, name)
		if err == nil {
			err = f.limits.fits(t, 1, 0)
		}
		return now(change{op: opMkdir, path: pathOf(s), mode: dirMode}), err
	}))
}

func (f *treeFS) MkdirAll(name string) error {
	return pathError("mkdir", name, f.mkdirAll(name))
}

func (f *treeFS) mkdirAll(name string) error {
	for {
		var made string
		// The first missing directory is made, until none is missing.
		err := mkdirAll(ground[*node](f.head.Value()), name, func(s spot[*node]) error {
			made = pathOf(s)
			return errMissing
		})
		if !errors.Is(err, errMissing) {
			return err
		}
		err = f.commit(nil, func(t *tree) (change, error) {
			at := names(made)
			dir, err := t.root.at(at[:len(at)-1])
			if err != nil {
				return change{}, err
			}
			if _, err := dir.child(at[len(at)-1]); !missing(err) {
				return change{}, err // another caller made it first; the next step sees what it is
			}
			return now(change{op: opMkdir, path: made, mode: dirMode}), f.limits.fits(t, 1, 0)
		})
		if err != nil {
			return err
		}
	}
}

var errMissing = errors.New("a directory is missing")

func (f *treeFS) Rename(from, to string) error {
	wrong := to
	err := f.commit(nil, func(t *tree) (change, error) {
		a, err := f.find(t, from, false)
		if err != nil {
			wrong = from
			return change{}, err
		}
		b, err := f.find(t, to, false)
		if err != nil {
			return change{}, err
		}
		if name, err := renamable(a, b, from, to); err != nil {
			wrong = name
			return change{}, err
		}
		return now(change{op: opRename, path: pathOf(a), other: pathOf(b)}), nil
	})
	return pathError("rename", wrong, err)
}

func (f *treeFS) Remove(name string) error {
	return pathError("remove", name, f.commit(nil, func(t *tree) (change, error) {
		s, err := f.find(t, name, false)
		if err != nil {
			return change{}, err
		}
		n, err := nodeAt(s)
		switch {
		case err != nil:
			return change{}, err
		case s.isRoot():
			return change{}, fs.ErrInvalid
		case n.dir != nil:
			return change{}, syscall.ENOTEMPTY
		}
		return now(change{op: opRemove, path: pathOf(s)}), nil
	}))
}

func (f *treeFS) RemoveAll(name string) error {
	return pathError("remove", name, f.commit(nil, func(t *tree) (change, error) {
		s, err := f.find(t, name, false)
		switch {
		case missing(err), err == nil && !s.found:
			return change{}, nil
		case err != nil:
			return change{}, err
		case s.isRoot():
			return change{}, fs.ErrInvalid
		}
		return now(change{op: opRemove, path: pathOf(s)}), nil
	}))
}

func (f *treeFS) Chmod(name string, mode fs.FileMode) error {
	return pathError("chmod", name, f.commit(nil, func(t *tree) (change, error) {
		s, err := f.find(t, name, true)
		if err != nil {
			return change{}, err
		}
		n, err := nodeAt(s)
		if err != nil || n.mode.Perm() == mode.Perm() {
			return change{}, err
		}
		return change{op: opTouch, path: pathOf(s), mode: mode.Perm(), modified: n.modified, created: n.created}, nil
	}))
}

func (f *treeFS) Symlink(target, name string) error {
	if err := checkTarget(target); err != nil {
		return pathError("symlink", name, err)
	}
	return pathError("symlink", name, f.commit(nil, func(t *tree) (change, error) {
		s, err := f.free(t, name)
		if err == nil {
			err = f.limits.fits(t, 1, 0)
		}
		return now(change{op: opLink, path: pathOf(s), other: target}), err
	}))
}

var _ FS = (*treeFS)(nil)
