package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tine-mcp/tine/internal/wire"
)

// A making is a request for something, which goes on after its caller has left:
// what an orchestrator makes too late must be known to be removed.
type making struct {
	late time.Duration // how long an answer may take at all

	mu   sync.Mutex
	left bool          // no caller waits any more
	over bool          // the result is there
	slow chan struct{} // closed when one attempt takes longer than it may
	once sync.Once
	done chan struct{}
	got  *entry
	err  error
}

func newMaking(late time.Duration) *making {
	return &making{late: late, slow: make(chan struct{}), done: make(chan struct{})}
}

// attempt bounds one sending: the caller waits for the timeout, and the answer is
// heard for longer.
func (m *making) attempt(ctx context.Context, timeout time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, max(m.late, timeout), &slow{max(m.late, timeout)})
	tooLong := time.AfterFunc(timeout, func() { m.once.Do(func() { close(m.slow) }) })
	return ctx, func() {
		tooLong.Stop()
		cancel()
	}
}

// wanted is an error that ends the attempts where no caller waits for them.
func (m *making) wanted(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.left {
		return backoff.Permanent(err)
	}
	return err
}

// finish hands the result over, and reports whether a caller took it.
func (m *making) finish(got *entry, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over, m.got, m.err = true, got, err
	close(m.done)
	return !m.left
}

// leave reports whether there is no result yet; no caller waits for it then.
func (m *making) leave() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = !m.over
	return m.left
}

// obtain has the orchestrator make what an entry asks for, and returns the entry
// with the answer. It is in the ledger then, and the caller's.
func (d *Driver) obtain(ctx context.Context, e *entry) (*entry, error) {
	fail := func(err error) (*entry, error) {
		return nil, fmt.Errorf("server %q: the orchestrator made no %s: %w", e.Access.Server, e.Kind, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	o, release, err := d.open(&e.Access)
	if err != nil {
		return nil, err
	}
	m := newMaking(d.late)
	if !d.spawn(func() {
		defer release()
		d.run(o, e, m)
	}) {
		release()
		return fail(errClosed)
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		if m.leave() {
			return fail(context.Cause(ctx))
		}
	case <-m.slow:
		if m.leave() {
			return fail(d.ailing(ctx, e, fmt.Errorf("%w; raise servers.%s.remote.timeout where that is not enough", &slow{e.Access.Remote.Timeout}, e.Access.Server)))
		}
	}
	if m.err != nil {
		return fail(mended(e, d.ailing(ctx, e, m.err)))
	}
	return m.got, nil
}

// mended adds to an error what to do about it, where that is known.
func mended(e *entry, err error) error {
	at := "servers." + e.Access.Server + "."
	var f *fault
	isFault := errors.As(err, &f)
	mend := ""
	switch {
	case isFault && f.locked():
		mend = "mend " + at + "headers or auth"
	case isFault && f.unsent:
		mend = "check that it runs, and " + at + "remote.url"
	case errors.As(err, new(*elsewhere)):
		mend = "set " + at + "remote.url to where it is"
	case e.Of != "":
	case errors.As(err, new(*wire.Error)):
		mend = "check " + at + "remote.url and remote.create_tool"
	case isFault && (f.status == http.StatusNotFound || f.status == http.StatusMethodNotAllowed):
		mend = "check " + at + "remote.url and remote.create"
	case isFault && f.status >= 400 && f.status < 500 && !f.passing(), errors.As(err, new(*toolError)):
		mend = "check " + at + "remote.resource, and the template"
	}
	if mend == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, mend)
}

// run makes the request, from the intent to the answer.
func (d *Driver) run(o orchestrator, e *entry, m *making) {
	if err := d.ledger.put(e); err != nil {
		m.finish(nil, err)
		return
	}
	got, doubt, err := o.make(d.life, e, m)
	full := e.with(got)
	switch {
	case err == nil:
		if len(full.More) > 0 {
			err = d.part(full)
		}
		if err == nil {
			err = d.ledger.put(full)
		}
		if err != nil {
			d.dispose(full) // what is not written down would be forgotten
		}
	case !got.none() || doubt:
		d.dispose(full)
	default:
		if dropErr := d.ledger.drop(e.Key); dropErr != nil {
			d.log.Warn("remote: a request that was refused is not struck out", "server", e.Access.Server, "err", dropErr)
		}
	}
	if !m.finish(full, err) && err == nil {
		d.dispose(full)
	}
}

// with is the entry with an answer.
func (e *entry) with(got made) *entry {
	full := *e
	full.ID, full.Instance, full.Endpoint, full.Token, full.More = got.id, got.instance, got.endpoint, got.token, got.more
	return &full
}

// part gives what was made besides an entry of its own, without an owner.
func (d *Driver) part(e *entry) error {
	rest := *e
	rest.Key, rest.ID, rest.More = newKey(), "", e.More
	rest.Endpoint, rest.Token, rest.Dir, rest.State = "", "", "", ""
	if err := d.ledger.put(&rest); err != nil {
		return err
	}
	e.More = nil
	d.log.Warn("remote: the orchestrator made more than it was asked for; the rest is removed", "server", e.Access.Server, "instances", len(rest.More))
	d.dispose(&rest)
	return nil
}

// ailing adds to an error what the orchestrator says of its health, where it
// says something bad.
func (d *Driver) ailing(ctx context.Context, e *entry, err error) error {
	var f *fault
	if errors.As(err, &f) && f.status != 0 && f.status < 500 {
		return err
	}
	a := e.Access // the request may still be running
	o, release, openErr := d.open(&a)
	if openErr != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	if sick := o.health(ctx); sick != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; of its health: %v", err, sick)
	}
	return err
}

// healthWait is how long an error waits to say more.
const healthWait = 2 * time.Second
