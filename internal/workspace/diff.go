package workspace

import (
	"io"
	"slices"

	"github.com/tine-mcp/tine/internal/layer"
)

// diff emits the changes that lead from one tree to another. It skips nodes that both
// share, so it costs what has changed. What was moved is emitted as new.
func diff(base, v *tree, emit func(c change, parts []layer.Extent) error) error {
	d := differ{emit: emit}
	if base.root != v.root {
		if err := d.dir("", base.root, v.root); err != nil {
			return err
		}
	}
	return d.uploads(base, v)
}

type differ struct {
	emit func(c change, parts []layer.Extent) error
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func (d differ) dir(path string, a, b *node) error {
	err := a.each(func(name string, old *node) error {
		if _, err := b.child(name); missing(err) {
			return d.emit(change{op: opRemove, path: join(path, name)}, nil)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = b.each(func(name string, n *node) error {
		old, err := a.child(name)
		if err != nil {
			return d.all(join(path, name), n)
		}
		if old == n {
			return nil
		}
		return d.node(join(path, name), old, n)
	})
	if err != nil {
		return err
	}
	return d.touch(path, b) // making and removing in it has changed its time
}

func (d differ) node(path string, a, b *node) error {
	switch {
	case a.mode.IsDir() && b.mode.IsDir():
		return d.dir(path, a, b)
	case a.mode.Type() != b.mode.Type() || a.target != b.target:
		if err := d.emit(change{op: opRemove, path: path}, nil); err != nil {
			return err
		}
		return d.all(path, b)
	case slices.Equal(a.parts, b.parts):
		return d.touch(path, b)
	}
	return d.all(path, b)
}

func (d differ) touch(path string, n *node) error {
	return d.emit(change{op: opTouch, path: path, mode: n.mode, modified: n.modified, created: n.created}, nil)
}

// all emits a node with everything below it.
func (d differ) all(path string, n *node) error {
	c := change{path: path, mode: n.mode, modified: n.modified, created: n.created}
	switch {
	case n.mode.IsDir():
		c.op = opMkdir
		if err := d.emit(c, nil); err != nil {
			return err
		}
		if n.dir == nil {
			return nil
		}
		err := n.each(func(name string, below *node) error { return d.all(join(path, name), below) })
		if err != nil {
			return err
		}
		return d.touch(path, n)
	case n.mode.IsRegular():
		c.op = opWrite
		return d.emit(c, n.parts)
	default:
		c.op, c.other = opLink, n.target
		return d.emit(c, nil)
	}
}

// uploads emits unfinished uploads, which a rewritten layer must still have.
func (d differ) uploads(base, v *tree) error {
	for it := base.uploads.Iterator(); !it.Done(); {
		id, _, _ := it.Next()
		if _, ok := v.uploads.Get(id); !ok {
			if err := d.emit(change{op: opDrop, upload: id}, nil); err != nil {
				return err
			}
		}
	}
	for it := v.uploads.Iterator(); !it.Done(); {
		id, up, _ := it.Next()
		from := 0
		if old, ok := base.uploads.Get(id); ok {
			from = old.parts.Len()
		}
		for i := from; i < up.parts.Len(); i++ {
			if err := d.emit(change{op: opPart, upload: id}, []layer.Extent{up.parts.Get(i)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// dump is the Machine's Dump.
func dump(base, v *tree, emit func(meta []byte, body io.Reader, size int64) error) error {
	one := func(c change, body layer.Extent) error {
		if body.Size() == 0 {
			return emit(c.encode(), nil, 0)
		}
		return emit(c.encode(), body.Reader(), body.Size())
	}
	return diff(base, v, func(c change, parts []layer.Extent) error {
		if len(parts) == 0 {
			return one(c, layer.Extent{})
		}
		if c.op == opWrite && len(parts) > 1 {
			c.upload = newUpload()
			for _, p := range parts[:len(parts)-1] {
				if err := one(change{op: opPart, upload: c.upload}, p); err != nil {
					return err
				}
			}
		}
		return one(c, parts[len(parts)-1])
	})
}

// live is the Machine's Live.
func live(base, v *tree) int64 {
	var sum int64
	diff(base, v, func(_ change, parts []layer.Extent) error {
		for _, p := range parts {
			sum += p.Size()
		}
		return nil
	})
	return sum
}
