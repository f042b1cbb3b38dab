package workspace

import (
	"io/fs"
	"syscall"
	"time"

	"github.com/benbjohnson/immutable"

	"github.com/tine-mcp/tine/internal/layer"
)

// A node is a file, a link or a directory of a tree. It never changes: a change
// makes new nodes along its path and shares all others.
type node struct {
	mode     fs.FileMode
	modified int64 // nanoseconds since 1970
	created  int64

	parts  []layer.Extent                      // of a file: its content, all but the last of one size
	target string                              // of a link
	dir    *immutable.SortedMap[string, *node] // of a directory; nil for an empty one

	// Totals of this node and all below, so that no walk is needed.
	count int64 // entries, this one included
	bytes int64 // of contents
}

func newDir(mode fs.FileMode, modified, created int64) *node {
	return &node{mode: fs.ModeDir | mode.Perm(), modified: modified, created: created, count: 1}
}

func newFile(mode fs.FileMode, modified, created int64, parts []layer.Extent) *node {
	n := &node{mode: mode.Perm(), modified: modified, created: created, parts: parts, count: 1}
	for _, p := range parts {
		n.bytes += p.Size()
	}
	return n
}

func newLink(target string, modified, created int64) *node {
	return &node{mode: fs.ModeSymlink | 0o777, target: target, modified: modified, created: created, count: 1}
}

// child returns what a directory has under a name.
func (n *node) child(name string) (*node, error) {
	if !n.mode.IsDir() {
		return nil, syscall.ENOTDIR
	}
	if n.dir != nil {
		if c, ok := n.dir.Get(name); ok {
			return c, nil
		}
	}
	return nil, fs.ErrNotExist
}

// at goes down a trail of names.
func (n *node) at(trail []string) (*node, error) {
	for _, name := range trail {
		next, err := n.child(name)
		if err != nil {
			return nil, err
		}
		n = next
	}
	return n, nil
}

// with is the directory with c under the last name of a path in it, or with
// nothing there when c is nil. The directory that has it was modified then.
func (n *node) with(path []string, c *node, modified int64) (*node, error) {
	name := path[0]
	old, err := n.child(name)
	if err != nil && !missing(err) {
		return nil, err
	}
	last := len(path) == 1
	if !last {
		if old == nil {
			return nil, fs.ErrNotExist
		}
		if c, err = old.with(path[1:], c, modified); err != nil {
			return nil, err
		}
	}
	next := *n
	if old != nil {
		next.count -= old.count
		next.bytes -= old.bytes
	}
	switch {
	case c != nil:
		next.count += c.count
		next.bytes += c.bytes
		if next.dir == nil {
			next.dir = immutable.NewSortedMap[string, *node](nil)
		}
		next.dir = next.dir.Set(name, c)
	case old == nil:
		return nil, fs.ErrNotExist
	default:
		if next.dir = next.dir.Delete(name); next.dir.Len() == 0 {
			next.dir = nil
		}
	}
	if last {
		next.modified = modified
	}
	return &next, nil
}

// each calls do for what is in a directory, by name.
func (n *node) each(do func(name string, c *node) error) error {
	if n.dir == nil {
		return nil
	}
	for it := n.dir.Iterator(); !it.Done(); {
		name, c, _ := it.Next()
		if err := do(name, c); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) info(name string) Info {
	t := time.Unix(0, n.modified)
	info := Info{Name: name, Mode: n.mode, Modified: t, Accessed: t, Created: time.Unix(0, n.created), Target: n.target}
	switch {
	case n.mode.IsRegular():
		info.Size = n.bytes
	case n.mode&fs.ModeSymlink != 0:
		info.Size = int64(len(n.target))
	}
	return info
}
