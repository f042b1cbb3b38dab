package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// put puts a part at a path, whose links in the root are followed but for the
// last name. What was there is covered; parts that lie in it stay.
func (t *tree) put(p string, n *node) error {
	parent, err := t.resolve(path.Dir(p))
	if err != nil {
		return err
	}
	return t.set(path.Join(parent, path.Base(p)), n)
}

// set is put for a path without links.
func (t *tree) set(p string, n *node) error {
	if p == "/" {
		return errors.New("it would be the whole root")
	}
	s, way := spot{node: t.top}, names(p)
	for i, name := range way {
		next, err := t.step(s, name)
		if err != nil {
			return err
		}
		last := i == len(way)-1
		fits := next.dir()
		if last {
			// What may be written to is not put into what may not: the helper may have
			// to put something else there.
			fits = n.kind == isBind && (!n.write || s.write) && !next.missing() && (n.folder && next.dir() || !n.folder && next.file())
		}
		if s.source != "" && !fits {
			if err := t.split("/" + strings.Join(way[:i], "/")); err != nil {
				return err
			}
			if s, err = t.look("/" + strings.Join(way[:i], "/")); err != nil {
				return err
			}
			next, err = t.step(s, name)
			if err != nil {
				return err
			}
		}
		if s.node.kids == nil {
			s.node.kids = map[string]*node{}
		}
		if last {
			return t.replace(p, s.node, name, n)
		}
		switch {
		case next.node != nil && next.dir():
		case next.node != nil || !next.missing() && !next.dir():
			return fmt.Errorf("/%s is not a directory in the root", strings.Join(way[:i+1], "/"))
		case next.missing():
			next.node = &node{}
			s.node.kids[name] = next.node
		default:
			next.node = &node{kind: isPass}
			s.node.kids[name] = next.node
		}
		s = next
	}
	return nil
}

// replace puts a node into its parent, and what was in the one before it into it.
func (t *tree) replace(p string, parent *node, name string, n *node) error {
	t.changed = true
	old := parent.kids[name]
	if old != nil && old.kind == isDir && n.kind == isDir {
		old.mode, old.pinned = max(old.mode, n.mode), old.pinned || n.pinned
		return nil
	}
	parent.kids[name] = n
	if old == nil {
		return nil
	}
	for _, kid := range slices.Sorted(maps.Keys(old.kids)) {
		for _, k := range explicit(path.Join(p, kid), old.kids[kid]) {
			if err := t.set(k.path, k.node); err != nil {
				return err
			}
		}
	}
	return nil
}

// A place is a node and where it is.
type place struct {
	path string
	node *node
}

// explicit are a node and the parts in it, without those that are only on the way.
func explicit(p string, n *node) []place {
	var all []place
	if n.kind != isPass && (n.kind != isDir || n.mode != 0) {
		all = append(all, place{p, n})
	}
	if n.kind == isBind {
		return all // keeps its own
	}
	for _, name := range slices.Sorted(maps.Keys(n.kids)) {
		all = append(all, explicit(path.Join(p, name), n.kids[name])...)
	}
	return all
}

// split makes a directory that is seen through a bind one of our own, with its
// entries as parts, and so all those above it up to the bind.
func (t *tree) split(p string) error {
	s := spot{node: t.top}
	for _, name := range names(p) {
		next, err := t.step(s, name)
		if err != nil {
			return err
		}
		if next.node == nil {
			if !next.dir() {
				return fmt.Errorf("%s is not a directory in the root", p)
			}
			next.node = &node{kind: isPass}
			s.node.kids[name] = next.node
		}
		if next.source != "" {
			if err := t.open(next); err != nil {
				return err
			}
			// Its entries are parts now, and the next name is one of them.
			next.source, next.write = "", false
		}
		s = next
	}
	return nil
}

// open makes the node of one directory its entries.
func (t *tree) open(s spot) error {
	info, err := t.host.lstat(s.source)
	if err != nil {
		return err
	}
	changed := t.host.changed(s.source)
	list, err := t.host.readDir(s.source, maxEntries)
	if errors.Is(err, errMany) {
		return fmt.Errorf("%s: %w (more than %d), so that nothing can be added to it; make the place in it that is wanted, or choose another", s.source, errMany, maxEntries)
	}
	if err != nil {
		return err
	}
	t.changed = true
	t.listings = append(t.listings, t.host.listing(s.source, changed, list, t.hidden))
	n, from := s.node, s.node.from
	if from == "" {
		from = s.source
	}
	n.kind, n.source, n.folder, n.write, n.opened = isDir, "", false, false, true
	n.mode = openedMode(info)
	uid, gid := ownerOf(info)
	n.like = &control.Like{Path: t.host.source(s.source), UID: uid, GID: gid}
	if n.from == "" {
		n.mode |= 0o111 // it was asked for, and the program must be able to get to what is in it
	}
	if n.kids == nil {
		n.kids = map[string]*node{}
	}
	for _, e := range list {
		at := path.Join(s.source, e.Name())
		if kid := n.kids[e.Name()]; kid != nil {
			if kid.kind == isPass {
				kid.kind, kid.source, kid.from, kid.folder, kid.write = isBind, at, from, true, s.write
			}
			continue
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			text, err := t.host.readlink(at)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was there when the directory was read
			}
			if err != nil {
				return err
			}
			n.kids[e.Name()] = &node{kind: isLink, text: text, from: from}
		case e.IsDir() || e.Type().IsRegular():
			n.kids[e.Name()] = &node{kind: isBind, source: at, from: from, folder: e.IsDir(), write: s.write}
		}
	}
	return nil
}

// openedMode is the mode of a directory whose entries are parts.
func openedMode(info fs.FileInfo) fs.FileMode {
	return info.Mode() & (fs.ModePerm | fs.ModeSticky)
}

// ensure makes a directory of our own, unless there is a directory already.
func (t *tree) ensure(p string, mode fs.FileMode) error {
	at, err := t.resolve(p)
	if err != nil {
		return err
	}
	if s, err := t.look(at); err != nil || s.dir() {
		return err
	}
	return t.set(at, &node{mode: mode})
}
