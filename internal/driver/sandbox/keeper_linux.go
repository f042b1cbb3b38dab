//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

var _ driver.Keeper = (*Driver)(nil)

// Carries implements driver.Keeper.
func (d *Driver) Carries(spec driver.Spec) (carries, why string) {
	switch {
	case options(spec) == nil || options(spec).Forks():
		return driver.CarryMemory, ""
	case len(spec.Dirs) > 0 || spec.Workspace != nil:
		return driver.CarryFiles, onHost(spec)
	}
	return driver.CarryNone, onHost(spec) + fmt.Sprintf("; or name its directories with servers.%s.state: [NAME] and ${state.NAME} in its args or env", spec.Server)
}

// onHost says why a server on the network of the host has no memory carried.
func onHost(spec driver.Spec) string {
	return fmt.Sprintf("server %q is on the network of the host, and such a one can't be copied while it runs; set servers.%s.sandbox.network to none or to the domains it needs", spec.Server, spec.Server)
}

// copies reports whether a fork of a server carries its memory.
func (d *Driver) copies(spec driver.Spec) bool {
	carries, _ := d.Carries(spec)
	return carries == driver.CarryMemory
}

// Seed implements driver.Keeper. A server that can keep neither memory nor
// directories has no folder.
func (d *Driver) Seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	if err := d.seed(ctx, spec, src); err != nil {
		return fmt.Errorf("server %q: seed its state: %w", spec.Server, err)
	}
	return nil
}

func (d *Driver) seed(ctx context.Context, spec driver.Spec, src driver.Source) (err error) {
	var from stateRecord
	folders := dirs.From{Take: src.Take}
	if src.From != nil {
		if from, err = thaw(*src.From); err != nil {
			return err
		}
		folders.Dirs, folders.Folder = from.Dirs, dirsOf(src.From.Dir)
	}
	if spec.Carry == driver.CarryFiles {
		from.Image = nil
	}
	plan, err := dirs.Plan(spec.Server, spec.Dirs, dirsOf(spec.State), folders)
	if err != nil {
		return err
	}
	state := stateRecord{Image: from.Image}
	if from.Image != nil {
		if state.Hello, state.Forked = from.Hello, true; !greeting(from.Hello) {
			return unfit{errors.New("the snapshot has the memory of the server, and what the server said in its handshake is not known; make it again")}
		}
		if err := d.goesOn(ctx, spec, from); err != nil {
			return fmt.Errorf("the snapshot does not fit here: %w", err)
		}
		if err := from.Image.check(imageOf(src.From.Dir)); err != nil {
			return unfit{fmt.Errorf("the snapshot can't be used: %w; make it again", err)}
		}
	}
	if plan.Empty() && !d.copies(spec) && len(spec.Dirs) == 0 {
		return ctx.Err()
	}
	return folder.FillState(spec.State, func() error { return d.fill(ctx, spec, src, state, plan) })
}

// fill puts into the folder of a state what it begins with.
func (d *Driver) fill(ctx context.Context, spec driver.Spec, src driver.Source, state stateRecord, plan *dirs.Seeding) (err error) {
	giveBack := func() {}
	defer func() {
		if err != nil {
			plan.GiveBack()
			giveBack()
		}
	}()
	if state.Image != nil {
		if src.Take {
			giveBack, err = takeImage(ctx, imageOf(spec.State), imageOf(src.From.Dir))
		} else {
			err = linkImage(ctx, imageOf(spec.State), imageOf(src.From.Dir))
		}
		if err != nil {
			return fmt.Errorf("its memory: %w", err)
		}
		d.kept.note(state.Image)
	}
	if len(spec.Dirs) > 0 {
		if err := os.Mkdir(dirsOf(spec.State), 0o700); err != nil {
			return err
		}
	}
	if err := plan.Make(ctx, src.Progress); err != nil {
		return err
	}
	if len(spec.Dirs) > 0 {
		if err := dirs.Note(spec.State, dirsOf(spec.State), spec.Dirs); err != nil {
			return err
		}
	}
	return state.write(spec.State, false)
}

// thaw reads a snapshot. One without a folder is of a server that had nothing.
func thaw(s driver.Snapshot) (stateRecord, error) {
	if s.Driver != driverName {
		return stateRecord{}, unfit{fmt.Errorf("the snapshot is of the driver %q", s.Driver)}
	}
	if s.Dir == "" {
		return stateRecord{}, nil
	}
	r, err := readState(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return stateRecord{}, errors.New("the snapshot is gone")
	}
	if err != nil {
		return stateRecord{}, fmt.Errorf("the snapshot can't be used: %w", err)
	}
	// The caller that froze it knows better.
	if greeting(s.Hello) {
		r.Hello = s.Hello
	}
	return r, nil
}

// Discard implements driver.Keeper.
func (d *Driver) Discard(_ context.Context, s driver.Snapshot) error { return folder.Discard(s) }

// Erase implements driver.Keeper.
func (d *Driver) Erase(_ context.Context, spec driver.Spec) error { return folder.Erase(spec) }
