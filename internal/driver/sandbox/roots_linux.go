//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// roots are the root directories that helpers have put together, each for every
// sandbox that sees the same. They go with their helper.
type roots struct {
	d *Driver

	mu   sync.Mutex
	made map[rootKey]*root
}

type rootKey struct {
	helper *helper
	digest string
}

// root is one that a helper has, or is about to.
type root struct {
	key   rootKey
	users atomic.Int64  // sandboxes that follow it, or are made of it
	busy  chan struct{} // holds one token while the helper works on it

	following chan struct{} // holds one token while a sandbox brings it up to date

	mu       sync.Mutex
	content  string // empty until it is made
	broken   bool   // it could not be brought up to date; another takes its place
	replaced bool   // by that one
	plan     *plan  // that it was made by
	looks    looks
	seen     uint64    // how often looks were set
	at       time.Time // of the plan that it was made by
	trouble  error     // why it is not as the host
}

// rootRef is the use of a root by one sandbox.
type rootRef struct {
	*root
	released atomic.Bool
}

// release ends the use. It may be called twice, and of none.
func (r *rootRef) release() {
	if r != nil && !r.released.Swap(true) {
		r.users.Add(-1)
	}
}

// dir is where a root is seen by sandboxes.
func (r *roots) dir(digest string) string { return filepath.Join(r.d.rootsDir(), digest) }

// make puts a root together, or brings it up to date where it is made. The caller
// releases it.
func (r *roots) make(ctx context.Context, h *helper, p *plan) (*rootRef, error) {
	for tries := 1; ; tries++ {
		ref := r.use(ctx, rootKey{h, p.rootID})
		err := r.refresh(ctx, ref.root, p)
		if err == nil {
			return ref, nil
		}
		ref.release()
		// A helper of an earlier version knows only how to make one.
		if !ref.isBroken() || tries > 1 {
			return nil, err
		}
	}
}

// use finds a root, which may still have to be made.
func (r *roots) use(ctx context.Context, key rootKey) *rootRef {
	h := key.helper
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = make(map[rootKey]*root)
	}
	made := r.made[key]
	if made == nil || made.isBroken() {
		if made != nil {
			made.mu.Lock()
			made.replaced = true
			made.mu.Unlock()
			_, _, _ = h.call(ctx, control.Request{Op: control.OpDrop, Root: &control.Root{Dir: r.dir(key.digest)}})
		}
		made = &root{key: key, busy: make(chan struct{}, 1), following: make(chan struct{}, 1)}
		r.made[key] = made
		for k := range r.made {
			if k.helper != h && k.helper.over() {
				delete(r.made, k)
			}
		}
		r.d.work.Go(func() { r.dropUnused(h) })
	}
	made.users.Add(1)
	return &rootRef{root: made}
}

// layout is that of a root with some digest that sandboxes have; nil where none has.
func (r *roots) layout(digest string) *layout.Layout {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, made := range r.made {
		if key.digest == digest && made.users.Load() > 0 && !key.helper.over() {
			made.mu.Lock()
			defer made.mu.Unlock()
			return made.looks.layout
		}
	}
	return nil
}

// dropUnused takes away the roots of a helper that no sandbox has any more, as of a
// server whose config has changed: every process that is made for a sandbox gets a
// copy of all mounts first.
func (r *roots) dropUnused(h *helper) {
	r.mu.Lock()
	var all []*root
	for k, made := range r.made {
		if k.helper == h {
			all = append(all, made)
		}
	}
	r.mu.Unlock()
	for _, made := range all {
		made.busy <- struct{}{}
		r.mu.Lock()
		unused := made.users.Load() == 0
		r.mu.Unlock()
		made.mu.Lock()
		there := made.content != ""
		made.mu.Unlock()
		// A caller that wants it meanwhile waits until it can be made again.
		if unused && there {
			_, _, err := h.call(r.d.ctx, control.Request{Op: control.OpDrop, Root: &control.Root{Dir: r.dir(made.key.digest)}})
			if err == nil {
				made.mu.Lock()
				made.content = ""
				made.mu.Unlock()
			}
		}
		<-made.busy
	}
}

// refresh makes a root what a plan says, unless it is that already.
func (r *roots) refresh(ctx context.Context, made *root, p *plan) error {
	select {
	case made.busy <- struct{}{}:
		defer func() { <-made.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	content := p.content()
	made.mu.Lock()
	was, at := made.content, made.at
	if was == content && at.Before(p.at) {
		made.is(p, content)
	}
	made.mu.Unlock()
	// A plan that is older, as one of a slot, would take back what another did.
	if was != "" && (was == content || p.at.Before(at)) {
		return nil
	}
	want := p.root
	want.Dir, want.Live = r.dir(made.key.digest), true
	op, does := control.OpRoot, "put its root together"
	if was != "" {
		op, does = control.OpRefresh, "bring its root up to date"
	}
	// What was begun is finished, also for others.
	if err := r.send(context.WithoutCancel(ctx), made.key.helper, op, want); err != nil {
		made.mu.Lock()
		defer made.mu.Unlock()
		if was != "" { // it may be so in part
			made.is(p, unknown)
			made.broken, made.plan = true, nil
		}
		return fmt.Errorf("%s: %w", does, err)
	}
	made.mu.Lock()
	defer made.mu.Unlock()
	made.is(p, content)
	made.broken = false
	return nil
}

// is notes what a root is, with mu.
func (made *root) is(p *plan, content string) {
	made.content, made.looks, made.at, made.plan, made.trouble = content, p.looks, p.at, p, nil
	made.seen++
}

// unknown is the content of a root that could not be brought up to date.
const unknown = "unknown"

func (made *root) isBroken() bool {
	made.mu.Lock()
	defer made.mu.Unlock()
	return made.broken
}

// behind reports whether the host has changed since a root was made, and how it looks
// now.
func (made *root) behind() (now looks, behind bool) {
	made.mu.Lock()
	k := made.looks
	made.mu.Unlock()
	if k.layout == nil || k.untouched() {
		return k, false
	}
	if now = k.asNow(); now.same(k) {
		made.know(now)
		return now, false
	}
	return now, true
}

// know says that the root is as good as what the host has.
func (made *root) know(k looks) {
	made.mu.Lock()
	defer made.mu.Unlock()
	made.looks = k
	made.seen++
}

// inTrouble notes why a root is not as the host, or that it is.
func (made *root) inTrouble(err error) {
	made.mu.Lock()
	defer made.mu.Unlock()
	made.trouble = err
}

// current is the plan that the root is as of; nil where that is not known.
func (made *root) current() *plan {
	made.mu.Lock()
	defer made.mu.Unlock()
	return made.plan
}

// lost says why nothing can be done about a root any more.
func (made *root) lost() error {
	made.mu.Lock()
	defer made.mu.Unlock()
	switch {
	case made.key.helper.over():
		return errors.New("the helper that made its root has ended")
	case made.replaced:
		return errors.New("its root could not be brought up to date, and sandboxes that start have another one")
	}
	return nil
}

// maxInline is the size of a root above which it is sent in a file: a packet to the
// helper holds no more.
const maxInline = 100 << 10

// send has a helper do something with a root.
func (r *roots) send(ctx context.Context, h *helper, op string, root control.Root) error {
	b, err := json.Marshal(root)
	if err != nil {
		return err
	}
	req := control.Request{Op: op, Root: &root}
	if len(b) > maxInline {
		f, err := os.CreateTemp(r.d.rootsDir(), "*.json")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		if _, err := f.Write(b); err != nil {
			return errors.Join(err, f.Close())
		}
		if err := f.Close(); err != nil {
			return err
		}
		req.Root = &control.Root{Dir: root.Dir, File: f.Name()}
		if op == control.OpRoot {
			req.Op = control.OpRootFile
		}
	}
	_, _, err = h.call(ctx, req)
	return err
}
