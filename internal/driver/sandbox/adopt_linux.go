//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (driver.Instance, error) {
	inst, err := d.adopt(ctx, h, log)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", h.Server, err)
	}
	return inst, nil
}

func (d *Driver) adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (*instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rec, err := records.Of(h)
	if err != nil {
		return nil, err
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	if !rec.ID.Lives() {
		return nil, d.endLeftover(ctx, h.Dir, rec, "the sandbox has ended")
	}
	help, err := d.helpers.get(rec.Runsc)
	if errors.Is(err, errBinary) {
		return nil, d.endLeftover(ctx, h.Dir, rec, "the binary that made the sandbox is gone, and no other can speak with it")
	}
	if err != nil {
		return nil, err
	}
	// It was parked, or held, or both.
	if err := rec.ID.Signal(unix.SIGCONT); errors.Is(err, os.ErrProcessDone) {
		return nil, d.endLeftover(ctx, h.Dir, rec, "the sandbox has ended")
	}
	req := control.Request{Op: control.OpResume, Sandbox: rec.Sandbox, Flags: rec.Flags}
	if _, _, err := d.helpers.call(ctx, rec.Runsc, req); errors.Is(err, errNone) {
		return nil, d.endLeftover(ctx, h.Dir, rec, "the sandbox is unknown to gVisor")
	} else if err != nil {
		return nil, fmt.Errorf("let the sandbox go on: %w", err)
	}
	pipe, err := fifo.Open(h.Dir)
	if err != nil {
		if !fifo.Unusable(err) {
			return nil, fmt.Errorf("open the pipes of the sandbox: %w", err)
		}
		return nil, d.endLeftover(ctx, h.Dir, rec, fmt.Sprintf("the pipes of the sandbox are gone (%v)", err))
	}
	stderr, err := lines.OpenLog(h.Dir, d.opts.LogLimit)
	if err != nil {
		pipe.Close()
		return nil, err
	}
	// The gateway before us may have died in the middle of a line, of either
	// direction.
	i := d.newInstance(h, rec, help, pipe, true, false, stderr, log)
	i.fresh = rec.State != ""
	i.reopen(ctx)
	err = i.watchBoth()
	if err == nil {
		if err = i.listens(ctx); err != nil {
			i.abandon()
		}
	}
	if err != nil {
		i.shut()
		i.conn.Close()
		stderr.Close()
		if !rec.ID.Lives() {
			return nil, d.endLeftover(ctx, h.Dir, rec, "the sandbox has ended")
		}
		return nil, err
	}
	i.endLeftCommands()
	i.adoptedRoot()
	return i, nil
}

// endLeftover ends what is left of an instance that can't be adopted and returns why, as
// ErrGone when all is gone.
func (d *Driver) endLeftover(ctx context.Context, dir string, rec record, why string) error {
	if err := d.clear(ctx, dir, rec); err != nil {
		return fmt.Errorf("%s, and what it left can't be ended: %w", why, err)
	}
	switch {
	case rec.loses():
		return fmt.Errorf("%s, and what it had in memory is lost with it: %w, %w", why, driver.ErrGone, driver.ErrLost)
	case rec.Memory:
		return fmt.Errorf("%s: %w, %w", why, driver.ErrGone, driver.ErrKept)
	}
	return fmt.Errorf("%s: %w", why, driver.ErrGone)
}

func (d *Driver) clear(ctx context.Context, dir string, rec record) error {
	if rec.Sandbox != "" {
		after, cancel := afterwards(ctx)
		defer cancel()
		if err := d.destroy(after, rec); err != nil {
			return err
		}
	}
	if err := folder.Remove(dir, recordName); err != nil {
		return fmt.Errorf("remove the folder of an instance: %w", err)
	}
	return nil
}

// Sweep implements driver.Sweeper.
func (d *Driver) Sweep(ctx context.Context, root string, known map[string]bool) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the folders of instances: %w", err)
	}
	if err := d.pool.sweep(ctx); err != nil {
		return nil, fmt.Errorf("sweep what was made ahead of time: %w", err)
	}
	var gone []string
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() {
			continue
		}
		rec, err := records.Read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if known[dir] {
			d.kept.needs(rec.Runsc)
			continue
		}
		if err := d.clear(ctx, dir, rec); err != nil {
			return gone, fmt.Errorf("sweep the folders of instances: %w", err)
		}
		gone = append(gone, dir)
	}
	if _, err := os.Stat(d.opts.Dir); err == nil {
		d.sweepStores()
	}
	return gone, nil
}
