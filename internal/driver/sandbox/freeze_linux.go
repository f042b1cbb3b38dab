//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Freeze implements driver.Keeper.
func (d *Driver) Freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	s, err := d.freeze(ctx, spec, inst, dir)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze its state: %w", spec.Server, err)
	}
	return s, nil
}

func (d *Driver) freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return driver.Snapshot{}, err
	}
	if inst == nil {
		if _, err := d.stateOf(spec); err != nil {
			return driver.Snapshot{}, d.damaged(spec, err)
		}
	}
	s := driver.Snapshot{Driver: driverName, Server: spec.Server, Carries: driver.CarryFiles}
	f := &freezing{d: d, spec: spec, dir: dir, runs: inst != nil}
	if spec.Carry != driver.CarryFiles && d.copies(spec) {
		s.Carries = driver.CarryMemory
		if err := f.look(inst); err != nil {
			return driver.Snapshot{}, err
		}
		if inst == nil {
			s.Hello = f.rec.Hello // the caller knows it of a running server
		}
	}
	if f.mem == nil && f.rec.Image == nil && len(spec.Dirs) == 0 {
		return s, nil
	}
	s.Dir = dir
	err := folder.Fill(dir, func() (err error) {
		s.Size, err = f.run(ctx)
		return err
	})
	return s, err
}

// freezing is a snapshot on its way.
type freezing struct {
	d    *Driver
	spec driver.Spec
	dir  string
	runs bool
	mem  memory      // that is to be taken down
	rec  stateRecord // of the snapshot; its image lies in the state where nothing runs
}

// look finds the memory.
func (f *freezing) look(inst driver.Instance) (err error) {
	if inst == nil {
		f.rec, err = f.d.stateOf(f.spec)
		f.rec.Forked = false
		return err
	}
	select {
	case <-inst.Done():
		return fmt.Errorf("it has ended, and what it had in memory with it: %w", errors.Join(inst.Err(), driver.ErrLost))
	default:
	}
	mem, ok := inst.(memory)
	if !ok {
		return errors.New("what runs is not a sandbox")
	}
	f.mem = mem
	f.rec.Hello, _ = mem.Greeted()
	return nil
}

// run takes down the memory and the directories at once, while nothing runs.
func (f *freezing) run(ctx context.Context) (int64, error) {
	var size int64
	g, within := errgroup.WithContext(ctx)
	switch {
	case f.mem != nil:
		if err := os.Mkdir(imageOf(f.dir), 0o700); err != nil {
			return 0, err
		}
		g.Go(func() error {
			info, err := f.mem.checkpoint(within, imageOf(f.dir))
			if err != nil {
				return err
			}
			f.rec.Image = &info
			f.d.kept.suited(rootOf{f.spec.Server, info.Base}, true)
			return info.check(imageOf(f.dir))
		})
	case f.rec.Image != nil:
		g.Go(func() error {
			if err := f.rec.Image.check(imageOf(f.spec.State)); err != nil {
				return err
			}
			// A copy must not become good data by getting a list of its own.
			if err := f.d.intact(f.spec, f.rec.Image); err != nil {
				return err
			}
			return linkImage(within, imageOf(f.dir), imageOf(f.spec.State))
		})
	}
	if len(f.spec.Dirs) > 0 {
		if err := os.Mkdir(dirsOf(f.dir), 0o700); err != nil {
			return 0, errors.Join(err, g.Wait())
		}
		g.Go(func() (err error) {
			f.rec.Dirs, size, err = dirs.Freeze(within, f.spec.Dirs, dirsOf(f.dir), dirsOf(f.spec.State), f.runs)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if f.rec.Image != nil {
		size += f.rec.Image.Size
		f.d.kept.note(f.rec.Image)
	}
	return size, f.rec.write(f.dir, false)
}
