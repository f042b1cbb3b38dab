package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

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
	source string        // of a bind, a real path of the host
	from   string        // of what a bind was split into, the source of that
	folder bool          // a bind is of a directory
	write  bool          // a bind may be written to
	text   string        // of a text or a link
	mode   fs.FileMode   // of a directory; 0 where only what is in it matters
	opened bool          // a directory was a bind, and has its entries as parts
	like   *control.Like // of such a directory, the one of the host
	pinned bool          // a directory stays, whatever is in it
	kids   map[string]*node
}

// A tree is a root that is being planned.
type tree struct {
	host    host
	top     *node
	changed bool // since the binds were listed

	hidden   []string // paths of secrets, sorted
	listings []listing
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

// parts are all parts, parents first.
func (t *tree) parts() []control.Part {
	var parts []control.Part
	t.walk(func(p string, n *node) {
		part := control.Part{Path: p}
		switch n.kind {
		case isBind:
			part.Source, part.Write, part.Of = t.host.source(n.source), n.write, t.host.source(n.from)
		case isLink:
			part.Link, part.Of = n.text, n.from
		case isText:
			part.Text, part.File = n.text, true
		case isDir:
			if len(n.kids) > 0 && (n.mode == 0 || n.mode == 0o755) && !n.pinned {
				return // made with what is in it
			}
			part.Mode, part.Of, part.Like = unixMode(n.mode), t.host.source(n.from), n.like
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
