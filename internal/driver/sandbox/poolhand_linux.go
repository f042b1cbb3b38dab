//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// hand returns a sandbox that was made ahead of time, with the directories of its new
// instance; nil where there is none.
func (d *Driver) hand(ctx context.Context, p *plan, spec driver.Spec, runsc string, st stateRecord) (*making, error) {
	ours, err := d.helpers.ours()
	if err != nil {
		return nil, err
	}
	m := d.pool.take(ctx, p, spec, runsc, ours, st)
	if m == nil {
		return nil, ctx.Err()
	}
	err = d.roots.refresh(ctx, m.root.root, p)
	if err == nil && !m.restored {
		err = m.show(ctx, p)
	}
	if err != nil {
		d.opts.Log.Warn("a sandbox that was made ahead of time can't be used; another one is made", "server", spec.Server, "error", err)
		d.pool.drop(m)
		return nil, ctx.Err()
	}
	return m, nil
}

// show lets a slot see the directories of a plan. It is the plan's then.
func (m *making) show(ctx context.Context, p *plan) error {
	if !p.bare() {
		req, root := m.request(control.OpShow), p.mountRoot(m.d, m.rec.Sandbox)
		req.Root = &root
		// Only the helper that made it can. A caller that leaves meanwhile waits, as for
		// one that is created.
		shown, cancel := afterwards(ctx)
		defer cancel()
		if _, _, err := m.help.call(shown, req); err != nil {
			return fmt.Errorf("show it its directories: %w", err)
		}
	}
	m.open, m.plan = false, p
	return nil
}

// rehome gives what was made ahead of time to an instance.
func (m *making) rehome(spec driver.Spec, dir string, rec record) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is something in the instance's folder: %w", err)
	}
	if err := os.Rename(m.dir, dir); err != nil {
		return err
	}
	m.dir, m.spec = dir, spec
	rec.Sandbox, rec.ID, rec.Gofer = m.rec.Sandbox, m.rec.ID, m.rec.Gofer
	m.rec = rec
	if err := m.rec.write(dir); err != nil {
		return err
	}
	log, err := lines.OpenLog(dir, m.d.opts.LogLimit)
	if err != nil {
		return err
	}
	m.stderr.Close()
	m.stderr = log
	return nil
}
