package workspace

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/benbjohnson/immutable"

	"github.com/tine-mcp/tine/internal/layer"
)

// chunkSize is how much of a file one change carries. A larger file is an upload
// of several parts, so that neither is it ever in memory nor does a slow reader
// keep others from writing.
const chunkSize = 1 << 20

// A tree is the value of a workspace in layers. It never changes.
type tree struct {
	root    *node
	uploads *immutable.SortedMap[uint64, *upload] // files that are still being written
	pending int64                                 // bytes of them
}

// An upload is the parts of a file that no name leads to yet.
type upload struct {
	parts *immutable.List[layer.Extent]
	size  int64
}

func newMachine() *layer.Machine[*tree] {
	return &layer.Machine[*tree]{
		Empty: &tree{root: newDir(dirMode, 0, 0), uploads: immutable.NewSortedMap[uint64, *upload](nil)},
		Apply: (*tree).apply,
		Dump:  dump,
		Live:  live,
	}
}

// names cuts a resolved path.
func names(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// pathOf is the path of a spot.
func pathOf(s spot[*node]) string {
	if s.isRoot() {
		return ""
	}
	return path.Join(path.Join(s.trail...), s.base)
}

func (t *tree) apply(meta []byte, body layer.Extent) (*tree, error) {
	c, err := decode(meta)
	if err != nil {
		return nil, err
	}
	next, err := t.next(c, body)
	if err != nil {
		return nil, fmt.Errorf("change %d of %q: %w", c.op, c.path, err)
	}
	return next, nil
}

func (t *tree) next(c change, body layer.Extent) (*tree, error) {
	next := *t
	at := names(c.path)
	if len(at) == 0 && c.op < opTouch {
		return nil, fs.ErrInvalid
	}
	var err error
	switch c.op {
	case opWrite:
		var parts []layer.Extent
		if parts, err = next.finish(c.upload, body); err == nil {
			next.root, err = t.root.with(at, newFile(c.mode, c.modified, c.created, parts), c.modified)
		}
	case opMkdir:
		next.root, err = t.root.with(at, newDir(c.mode, c.modified, c.created), c.modified)
	case opLink:
		next.root, err = t.root.with(at, newLink(c.other, c.modified, c.created), c.modified)
	case opRename:
		next.root, err = t.root.moved(at, names(c.other), c.modified)
	case opRemove:
		next.root, err = t.root.with(at, nil, c.modified)
	case opTouch:
		next.root, err = t.root.touched(at, c)
	case opPart:
		next.extend(c.upload, body)
	case opDrop:
		next.drop(c.upload)
	default:
		err = errDamaged
	}
	return &next, err
}

func (n *node) moved(from, to []string, modified int64) (*node, error) {
	if len(to) == 0 {
		return nil, fs.ErrInvalid
	}
	c, err := n.at(from)
	if err != nil {
		return nil, err
	}
	if n, err = n.with(from, nil, modified); err != nil {
		return nil, err
	}
	return n.with(to, c, modified)
}

func (n *node) touched(at []string, c change) (*node, error) {
	old, err := n.at(at)
	if err != nil {
		return nil, err
	}
	next := *old
	next.mode = old.mode.Type() | c.mode
	next.modified, next.created = c.modified, c.created
	if len(at) == 0 {
		return &next, nil
	}
	dir, err := n.at(at[:len(at)-1])
	if err != nil {
		return nil, err
	}
	return n.with(at, &next, dir.modified)
}

// finish takes an upload out and returns the parts of the whole file.
func (t *tree) finish(id uint64, body layer.Extent) ([]layer.Extent, error) {
	var parts []layer.Extent
	if id != 0 {
		up, ok := t.uploads.Get(id)
		if !ok {
			return nil, errDamaged
		}
		parts = make([]layer.Extent, 0, up.parts.Len()+1)
		for it := up.parts.Iterator(); !it.Done(); {
			_, p := it.Next()
			parts = append(parts, p)
		}
		t.drop(id)
	}
	if body.Size() > 0 {
		parts = append(parts, body)
	}
	// Reading finds a part by dividing.
	for i, p := range parts {
		if p.Size() != parts[0].Size() && (i < len(parts)-1 || p.Size() > parts[0].Size()) {
			return nil, errDamaged
		}
	}
	return slices.Clip(parts), nil
}

func (t *tree) extend(id uint64, body layer.Extent) {
	up, ok := t.uploads.Get(id)
	if !ok {
		up = &upload{parts: immutable.NewList[layer.Extent]()}
	}
	t.uploads = t.uploads.Set(id, &upload{parts: up.parts.Append(body), size: up.size + body.Size()})
	t.pending += body.Size()
}

func (t *tree) drop(id uint64) {
	if id == 0 {
		t.uploads, t.pending = immutable.NewSortedMap[uint64, *upload](nil), 0
		return
	}
	if up, ok := t.uploads.Get(id); ok {
		t.uploads = t.uploads.Delete(id)
		t.pending -= up.size
	}
}

// A tree is the ground of its names.
func (t *tree) roots() []string     { return []string{treeRoot} }
func (t *tree) top() (*node, error) { return t.root, nil }
func (t *tree) leave(*node)         {}
func (t *tree) enter(d *node, element string) (*node, error) {
	next, err := d.child(element)
	if err != nil {
		return d, err
	}
	if !next.mode.IsDir() {
		return d, syscall.ENOTDIR
	}
	return next, nil
}

func (t *tree) look(d *node, element string) (Info, error) {
	if element == "." {
		return d.info("."), nil
	}
	c, err := d.child(element)
	if err != nil {
		return Info{}, err
	}
	return c.info(element), nil
}

// find resolves a name.
func (t *tree) find(name string, follow bool) (spot[*node], error) {
	return resolve(ground[*node](t), name, follow)
}

// nodeAt returns what is at a spot.
func nodeAt(s spot[*node]) (*node, error) {
	switch {
	case !s.found:
		return nil, fs.ErrNotExist
	case s.isRoot():
		return s.dir, nil
	}
	return s.dir.child(s.base)
}
