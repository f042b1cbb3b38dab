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

// kind is what a node of a tree is.
type kind int

const (
	isDir  kind = iota // a directory of our own
	isBind             // a file or directory of the host
	isPass             // a directory that is in a bind, in which another part lies
	isLink
	isText
)

// A node is one place of the root.
type node struct {
	kind   kind
	source string      // of a bind, a real path of the host
	from   string      // of a bind that another was split into, the source of that
	folder bool        // a bind is of a directory
	write  bool        // a bind may be written to
	text   string      // of a text or a link
	mode   fs.FileMode // of a directory; 0 where only what is in it matters
	kids   map[string]*node
}

// A tree is a root that is being planned.
type tree struct {
	host host
	top  *node
}

func newTree(h host) *tree { return &tree{host: h, top: &node{}} }

// A spot is what is at a place of the root.
type spot struct {
	node   *node       // nil when there is no part exactly there
	source string      // of the host, when it is seen through a bind
	write  bool        // through one that may be written to
	info   fs.FileInfo // of source, where there is no node
}

func (s spot) missing() bool { return s.node == nil && s.info == nil }

func (s spot) dir() bool {
	if s.node != nil {
		return s.node.kind == isDir || s.node.kind == isPass || s.node.kind == isBind && s.node.folder
	}
	return s.info != nil && s.info.IsDir()
}

func (s spot) file() bool {
	if s.node != nil {
		return s.node.kind == isText || s.node.kind == isBind && !s.node.folder
	}
	return s.info != nil && s.info.Mode().IsRegular()
}

// look says what is at a path, without following links.
func (t *tree) look(p string) (spot, error) {
	s := spot{node: t.top}
	for _, name := range names(p) {
		if s.missing() || !s.dir() {
			return spot{}, nil
		}
		var err error
		if s, err = t.step(s, name); err != nil {
			return spot{}, err
		}
	}
	return s, nil
}

func (t *tree) step(s spot, name string) (spot, error) {
	next := spot{write: s.write}
	if s.source != "" {
		next.source = path.Join(s.source, name)
	}
	if s.node != nil {
		next.node = s.node.kids[name]
	}
	if next.node != nil {
		switch next.node.kind {
		case isBind:
			next.source, next.write = next.node.source, next.node.write
		case isPass:
		default:
			next.source, next.write = "", false
		}
		return next, nil
	}
	if next.source == "" {
		return spot{}, nil
	}
	info, err := t.host.lstat(next.source)
	if errors.Is(err, fs.ErrNotExist) {
		return spot{}, nil
	}
	if err != nil {
		return spot{}, err
	}
	next.info = info
	return next, nil
}

// resolve follows the links of the root. What is not there stays as it is.
func (t *tree) resolve(p string) (string, error) {
	cur, rest, followed := "/", names(p), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			cur = path.Dir(cur)
			continue
		}
		next := path.Join(cur, name)
		s, err := t.look(next)
		if err != nil {
			return "", err
		}
		text := ""
		switch {
		case s.node != nil && s.node.kind == isLink:
			text = s.node.text
		case s.node == nil && s.info != nil && s.info.Mode()&fs.ModeSymlink != 0:
			if text, err = t.host.readlink(s.source); err != nil {
				return "", err
			}
		}
		if text == "" {
			cur = next
			continue
		}
		if followed++; followed > maxLinks {
			return "", fmt.Errorf("it leads through more than %d links", maxLinks)
		}
		if path.IsAbs(text) {
			cur = "/"
		}
		rest = slices.Concat(names(text), rest)
	}
	return cur, nil
}

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
			// What may be written to is not put into what may not: whoever makes the
			// root may have to put something else there.
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
	old := parent.kids[name]
	if old != nil && old.kind == isDir && n.kind == isDir {
		old.mode = max(old.mode, n.mode)
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
	list, err := t.host.readDir(s.source, maxEntries)
	if errors.Is(err, errMany) {
		return fmt.Errorf("%s has more than %d entries, so that nothing can be added to it; make the place in it that is wanted, or choose another", s.source, maxEntries)
	}
	if err != nil {
		return err
	}
	n, from := s.node, s.node.from
	if from == "" {
		from = s.source
	}
	n.kind, n.source, n.from, n.folder, n.write = isDir, "", "", false, false
	// Whoever sees a part in it must get there.
	n.mode = info.Mode().Perm() | 0o111 | info.Mode()&fs.ModeSticky
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
			if err != nil {
				return err
			}
			n.kids[e.Name()] = &node{kind: isLink, text: text}
		case e.IsDir() || e.Type().IsRegular():
			n.kids[e.Name()] = &node{kind: isBind, source: at, from: from, folder: e.IsDir(), write: s.write}
		}
	}
	return nil
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

// parts are all parts, parents first.
func (t *tree) parts() []control.Part {
	var parts []control.Part
	t.walk(func(p string, n *node) {
		part := control.Part{Path: p}
		switch n.kind {
		case isBind:
			part.Source, part.Write = n.source, n.write
		case isLink:
			part.Link = n.text
		case isText:
			part.Text, part.File = n.text, true
		case isDir:
			if len(n.kids) > 0 && (n.mode == 0 || n.mode == 0o755) {
				return // made with what is in it
			}
			part.Mode = unixMode(n.mode)
		default:
			return
		}
		parts = append(parts, part)
	})
	return parts
}

// unixMode is a mode as a Part has it; 0 is the default.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	if mode == 0o755 {
		return 0
	}
	return mode
}

func (t *tree) walk(visit func(p string, n *node)) {
	var down func(p string, n *node)
	down = func(p string, n *node) {
		for _, name := range slices.Sorted(maps.Keys(n.kids)) {
			at := path.Join(p, name)
			visit(at, n.kids[name])
			down(at, n.kids[name])
		}
	}
	down("/", t.top)
}
