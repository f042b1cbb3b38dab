package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// alike is how many sandboxes the memory of one is the mean of.
const alike = 8

// boxMemory looks at what sandboxes hold that were started, that are forks, and
// that stand empty.
func (t *trials) boxMemory(ctx context.Context) (_ []reading, err error) {
	b, err := t.boxWorld(ctx, "sandbox-memory", nil, kindNode, kindPython, kindGo)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	var out []reading
	for _, k := range b.kinds {
		parent, mark, err := b.parent(ctx, k)
		if err != nil {
			return nil, err
		}
		started, err := b.held(k, 1)
		if err != nil {
			return nil, err
		}
		n := min(alike, t.s.Sessions)
		ids, err := b.fork(ctx, parent, n)
		if err != nil {
			return nil, err
		}
		if err := allAtOnce(n, func(i int) error { return b.asked(ctx, ids[i], k.name, k, mark) }); err != nil {
			return nil, err
		}
		if err := b.close(ctx, parent); err != nil {
			return nil, err
		}
		forks, err := b.held(k, n)
		if err != nil {
			return nil, err
		}
		out = append(out, worked(k.name+", started", k.name, started, 1), worked(k.name+", forked", k.name, forks, n))
	}
	if err := b.prepared(ctx, b.kinds[0]); err != nil {
		return nil, err
	}
	empty, n, err := b.heldEmpty()
	if err != nil {
		return nil, err
	}
	return append(out, worked("a slot in which nothing runs", "", empty, n)), nil
}

// holding is the memory of some processes, each page that several have divided
// among those; and how much of it is of files, such as programs, which many
// sandboxes have together, and how much is of the program in a sandbox.
type holding struct{ pss, files, inside int64 }

func (h holding) own() int64 { return h.pss - h.files }

func (h *holding) add(o holding) {
	h.pss, h.files, h.inside = h.pss+o.pss, h.files+o.files, h.inside+o.inside
}

// worked is the reading of one of n sandboxes. However many there are, they have
// the files once.
func worked(name, server string, h holding, n int) reading {
	own := h.own() / int64(n)
	return reading{
		Case: name, Server: server, PSS: h.pss / int64(n), Own: own,
		Fit: int((int64(roomBytes) - h.files) / max(own, 1)), Room: own*roomBoxes + h.files, shows: showsHeld,
	}
}

// held is what the sandboxes of a server hold together, of which there must be so
// many.
func (b *boxes) held(k *boxKind, want int) (sum holding, err error) {
	sum, n, err := heldIn(filepath.Join(b.state, "instances"), k.name+"-")
	if err == nil && n != want {
		err = fmt.Errorf("%d sandboxes of %s are there, and should be %d", n, k.name, want)
	}
	return sum, err
}

// heldEmpty is what those hold in which nothing runs.
func (b *boxes) heldEmpty() (sum holding, n int, err error) {
	sum, n, err = heldIn(filepath.Join(b.state, "sandbox", "slots"), "")
	if err == nil && n == 0 {
		err = errors.New("no sandbox stands empty")
	}
	return sum, n, err
}

// heldIn is what the sandboxes hold whose folders are in another one.
func heldIn(dir, prefix string) (sum holding, n int, err error) {
	found, err := boxRecords(dir, prefix)
	if err != nil {
		return sum, 0, err
	}
	sum, err = heldOf(found)
	return sum, len(found), err
}

// heldOf is what some hold together.
func heldOf(found []boxRecord) (sum holding, err error) {
	trees, err := descendants()
	if err != nil {
		return sum, err
	}
	for _, r := range found {
		h, err := r.held(trees)
		if err != nil {
			return sum, err
		}
		sum.add(h)
	}
	return sum, nil
}

// boxFill starts as many sandboxes with Node as a machine of some size is to
// hold.
func (t *trials) boxFill(ctx context.Context) (_ []reading, err error) {
	b, err := t.boxWorld(ctx, "sandbox-fill", nil, kindNode)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	n, k := min(roomBoxes, t.s.Sessions), b.kinds[0]
	before := memoryFree()
	parent, mark, err := b.parent(ctx, k)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ids, err := b.fork(ctx, parent, n-1)
	if err != nil {
		return nil, err
	}
	ids = append(ids, parent)
	if err := each(ctx, n, func(ctx context.Context, i int) error { return b.asked(ctx, ids[i], k.name, k, mark) }); err != nil {
		return nil, err
	}
	took := time.Since(began)
	sum, err := b.held(k, n)
	if err != nil {
		return nil, err
	}
	t.notes = append(t.notes, fmt.Sprintf("%d sandboxes with Node were there after %.1f s, and %s less memory was free with them", n, took.Seconds(), sizeName(before-memoryFree())))
	return []reading{{Case: fmt.Sprintf("%d with node, all of them", n), Server: kindNode, PSS: sum.pss, Own: sum.own(), Room: sum.pss, shows: showsHeld}}, nil
}
