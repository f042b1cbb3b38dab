package sqlite

import "github.com/tine-mcp/tine/internal/layer"

const (
	fanBits = 5
	fan     = 1 << fanBits
)

// tree is a persistent map from page index to where the page stands: a radix
// tree whose height grows with the largest index. The zero tree is empty. What
// is not in it has the zero Extent.
type tree struct {
	root   *node
	height int // of root; a leaf has height 0
}

// A node is a leaf or has children, never both. One that an edit made is that
// edit's to change until the edit ends; every other one is shared.
type node struct {
	edit   *edit
	leaf   *[fan]layer.Extent
	childs *[fan]*node
}

// An edit is the identity of one series of changes to a tree.
type edit struct{ _ byte }

func span(height int) uint64 { return 1 << (fanBits * (height + 1)) }

func slot(i uint64, height int) int { return int(i>>(fanBits*height)) & (fan - 1) }

func (t tree) get(i uint64) layer.Extent {
	if t.root == nil || i >= span(t.height) {
		return layer.Extent{}
	}
	n := t.root
	for h := t.height; h > 0; h-- {
		if n = n.childs[slot(i, h)]; n == nil {
			return layer.Extent{}
		}
	}
	return n.leaf[slot(i, 0)]
}

func (t tree) set(e *edit, i uint64, x layer.Extent) tree {
	if t.root == nil {
		t.root = newNode(e, 0)
		t.height = 0
	}
	for i >= span(t.height) {
		up := newNode(e, t.height+1)
		up.childs[0] = t.root
		t.root = up
		t.height++
	}
	t.root = t.root.set(e, t.height, i, x)
	return t
}

func (n *node) set(e *edit, height int, i uint64, x layer.Extent) *node {
	n = n.own(e)
	s := slot(i, height)
	if height == 0 {
		n.leaf[s] = x
		return n
	}
	c := n.childs[s]
	if c == nil {
		c = newNode(e, height-1)
	}
	n.childs[s] = c.set(e, height-1, i, x)
	return n
}

// cut drops everything from index size on.
func (t tree) cut(e *edit, size uint64) tree {
	if t.root == nil || size >= span(t.height) {
		return t
	}
	if size == 0 {
		return tree{}
	}
	t.root = t.root.cut(e, t.height, size)
	for t.height > 0 && size <= span(t.height-1) {
		t.root = t.root.childs[0]
		t.height--
		if t.root == nil {
			return tree{}
		}
	}
	return t
}

func (n *node) cut(e *edit, height int, size uint64) *node {
	n = n.own(e)
	s := slot(size, height)
	if height == 0 {
		clear(n.leaf[s:])
		return n
	}
	clear(n.childs[s+1:])
	rest := size & (span(height-1) - 1)
	switch {
	case rest == 0:
		n.childs[s] = nil
	case n.childs[s] != nil:
		n.childs[s] = n.childs[s].cut(e, height-1, rest)
	}
	return n
}

func newNode(e *edit, height int) *node {
	n := &node{edit: e}
	if height == 0 {
		n.leaf = new([fan]layer.Extent)
	} else {
		n.childs = new([fan]*node)
	}
	return n
}

func (n *node) own(e *edit) *node {
	if n.edit == e {
		return n
	}
	c := &node{edit: e}
	if n.leaf != nil {
		l := *n.leaf
		c.leaf = &l
	} else {
		k := *n.childs
		c.childs = &k
	}
	return c
}

// diff calls yield, in order, for every index where t and base differ, with what
// t has there. What the two share is not visited.
func (t tree) diff(base tree, yield func(i uint64, x layer.Extent)) {
	height := max(t.height, base.height)
	diff(t.raise(height), base.raise(height), height, 0, yield)
}

// raise returns the root of the same tree with a larger height.
func (t tree) raise(height int) *node {
	n := t.root
	for h := t.height + 1; n != nil && h <= height; h++ {
		up := newNode(nil, h)
		up.childs[0] = n
		n = up
	}
	return n
}

func diff(n, base *node, height int, first uint64, yield func(uint64, layer.Extent)) {
	if n == base {
		return
	}
	if height == 0 {
		var a, b [fan]layer.Extent
		if n != nil {
			a = *n.leaf
		}
		if base != nil {
			b = *base.leaf
		}
		for s := range a {
			if a[s] != b[s] {
				yield(first+uint64(s), a[s])
			}
		}
		return
	}
	var a, b [fan]*node
	if n != nil {
		a = *n.childs
	}
	if base != nil {
		b = *base.childs
	}
	for s := range a {
		diff(a[s], b[s], height-1, first+uint64(s)*span(height-1), yield)
	}
}
