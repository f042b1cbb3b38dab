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

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// roots are the root directories that helpers have put together, each for every
// sandbox that sees the same. They go with their helper.
type roots struct {
	d *Driver

	mu   sync.Mutex
	made map[rootKey]*rootMaking
}

type rootKey struct {
	helper *helper
	digest string
}

type rootMaking struct {
	done chan struct{}
	err  error
}

// dir is where a root is seen by sandboxes.
func (r *roots) dir(digest string) string { return filepath.Join(r.d.rootsDir(), digest) }

// make puts a root together, where that is not done yet.
func (r *roots) make(ctx context.Context, h *helper, digest string, root control.Root) error {
	key := rootKey{h, digest}
	r.mu.Lock()
	if r.made == nil {
		r.made = make(map[rootKey]*rootMaking)
	}
	m := r.made[key]
	if m == nil {
		m = &rootMaking{done: make(chan struct{})}
		r.made[key] = m
		for k := range r.made {
			if k.helper != h && k.helper.over() {
				delete(r.made, k)
			}
		}
		r.mu.Unlock()
		root.Dir = r.dir(digest)
		if m.err = r.send(context.WithoutCancel(ctx), h, root); m.err != nil {
			m.err = fmt.Errorf("put its root together: %w", m.err)
			r.mu.Lock()
			delete(r.made, key)
			r.mu.Unlock()
		}
		close(m.done)
		return m.err
	}
	r.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxInline is the size of a root above which it is sent in a file: a packet to the
// helper holds no more.
const maxInline = 100 << 10

// send has a helper make a root.
func (r *roots) send(ctx context.Context, h *helper, root control.Root) error {
	b, err := json.Marshal(root)
	if err != nil {
		return err
	}
	req := control.Request{Op: control.OpRoot, Root: &root}
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
		req.Op, req.Root = control.OpRootFile, &control.Root{Dir: root.Dir, File: f.Name()}
	}
	_, _, err = h.call(ctx, req)
	return err
}
