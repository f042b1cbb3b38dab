package builtin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
)

// templates are imported once each, into a sealed layer, on which any number of states
// begin. A template that has changed on the disk is imported again. They last as long
// as the driver.
type templates struct {
	layers *layer.Store
	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	known  map[templateKey]*template
	closed bool
}

type templateKey struct{ builtin, path, settings string }

// template is one import, running or done.
type template struct {
	print     string
	cancel    context.CancelFunc
	done      chan struct{} // closed when ref and err are set
	listeners listeners

	// Guarded by the mutex of templates.
	ref     layer.Ref
	err     error
	users   int  // callers that wait for it, or take a reference
	dropped bool // it is not known any more, and its last user gives the layer back
}

func newTemplates(layers *layer.Store) *templates {
	ts := &templates{layers: layers, known: map[templateKey]*template{}}
	ts.life, ts.end = context.WithCancel(context.Background())
	return ts
}

// get returns a layer with what load makes of the template, and a reference to it that
// is the caller's. Other callers may come to wait for the same, so load does not end
// with the first caller, but with the last.
func (ts *templates) get(ctx context.Context, key templateKey, print string, progress func(done, total int64),
	load func(context.Context, *template) (layer.Ref, error)) (layer.Ref, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return layer.Ref{}, errors.New("the gateway is stopping")
	}
	t := ts.known[key]
	if t != nil && t.print != print {
		ts.drop(key, t)
		t = nil
	}
	var leave func()
	if t == nil {
		work, cancel := context.WithCancel(ts.life)
		t = &template{print: print, cancel: cancel, done: make(chan struct{})}
		ts.known[key] = t
		leave = t.listeners.join(progress) // before there is anything to hear
		ts.work.Go(func() {
			defer cancel()
			ref, err := load(work, t)
			ts.mu.Lock()
			defer ts.mu.Unlock()
			t.ref, t.err = ref, err
			close(t.done)
			if err != nil {
				ts.drop(key, t) // the next one tries again
			} else if t.dropped && t.users == 0 {
				ts.giveBack(t)
			}
		})
	}
	t.users++
	ts.mu.Unlock()
	if leave == nil {
		leave = t.listeners.join(progress)
	}
	var err error
	select {
	case <-t.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	leave()
	ts.mu.Lock()
	t.users--
	if err == nil {
		err = t.err
	}
	ref := t.ref
	if err == nil {
		err = ts.layers.Retain(ref)
	}
	select {
	case <-t.done:
		if t.dropped && t.users == 0 {
			ts.giveBack(t)
		}
	default:
		if t.users == 0 {
			ts.drop(key, t) // no caller waits for it any more
		}
	}
	return ref, err
}

// drop forgets a template, and ends its import where no caller waits for it. ts.mu is
// held.
func (ts *templates) drop(key templateKey, t *template) {
	if ts.known[key] == t {
		delete(ts.known, key)
	}
	t.dropped = true
	if t.users > 0 {
		return
	}
	select {
	case <-t.done:
		ts.giveBack(t)
	default:
		t.cancel()
	}
}

// giveBack ends the template's own hold on its layer. ts.mu is held.
func (ts *templates) giveBack(t *template) {
	if t.ref != (layer.Ref{}) {
		// It fails where a file can't be removed, which the next start tries again.
		_ = ts.layers.Release(t.ref)
		t.ref = layer.Ref{}
	}
}

func (ts *templates) close() {
	ts.mu.Lock()
	ts.closed = true
	for key, t := range ts.known {
		ts.drop(key, t)
	}
	ts.mu.Unlock()
	ts.end()
	ts.work.Wait()
}

// listeners hear of progress, and nothing more once they have left.
type listeners struct {
	mu   sync.Mutex
	next int
	all  map[int]func(done, total int64)
}

func (l *listeners) join(f func(done, total int64)) (leave func()) {
	if f == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[int]func(done, total int64){}
	}
	id := l.next
	l.next++
	l.all[id] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, id)
	}
}

func (l *listeners) report(done, total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.all {
		f(done, total)
	}
}

// template returns a layer with what is in the spec's template, and a reference
// to it that is the caller's.
func (d *Driver) template(ctx context.Context, spec driver.Spec, kind Kind, progress func(done, total int64)) (layer.Ref, error) {
	print, err := fingerprint(ctx, spec.Template)
	if err != nil {
		return layer.Ref{}, fmt.Errorf("template: %w", err)
	}
	settings, err := json.Marshal(spec.Settings)
	if err != nil {
		return layer.Ref{}, fmt.Errorf("template: read the settings: %w", err)
	}
	key := templateKey{spec.Builtin, spec.Template, string(settings)}
	return d.templates.get(ctx, key, print, progress, func(ctx context.Context, t *template) (layer.Ref, error) {
		return d.load(ctx, spec, kind, t)
	})
}

// load imports a template into a state of its own and seals it.
func (d *Driver) load(ctx context.Context, spec driver.Spec, kind Kind, t *template) (ref layer.Ref, err error) {
	env := d.env(spec)
	env.State = filepath.Join(d.dir, "template-"+rand.Text())
	if err := d.layers.Create(env.State, layer.Ref{}); err != nil {
		return ref, err
	}
	defer func() {
		rm := errors.Join(d.layers.Remove(env.State), os.RemoveAll(env.State))
		if err == nil && rm != nil {
			env.Log.Warn("what a template was imported into is not removed; the next start does", "server", spec.Server, "err", rm)
		}
	}()
	if err := kind.Import(ctx, env, spec.Template, t.listeners.report); err != nil {
		return ref, err
	}
	now, err := fingerprint(ctx, spec.Template)
	if err != nil {
		return ref, fmt.Errorf("template: %w", err)
	}
	if now != t.print {
		return ref, fmt.Errorf("template %s changed while it was read; try again", spec.Template)
	}
	return d.layers.Seal(env.State)
}

// fingerprint tells whether a file, or what is in a directory, is what it was.
func fingerprint(ctx context.Context, path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %s %d %d\n", p, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
