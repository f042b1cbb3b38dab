package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// frozen is what a snapshot of this driver says of itself: the directories that
// were declared, and whether each was there.
type frozen struct {
	Dirs dirs.Set `json:"dirs,omitempty"`
}

func thaw(s driver.Snapshot) (frozen, error) {
	var f frozen
	if s.Driver != "process" {
		return f, fmt.Errorf("the snapshot is of the driver %q: %w", s.Driver, driver.ErrUnfit)
	}
	if len(s.Data) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(s.Data, &f); err != nil {
		return f, fmt.Errorf("read the snapshot: %w", err)
	}
	return f, f.Dirs.Check()
}

func snapshot(server, dir string, f frozen, size int64) (driver.Snapshot, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("write the snapshot: %w", err)
	}
	return driver.Snapshot{Driver: "process", Server: server, Carries: driver.CarryFiles, Dir: dir, Data: data, Size: size}, nil
}

// Carries implements driver.Keeper. What a program has in memory stays behind.
func (d *Driver) Carries(spec driver.Spec) (carries, why string) {
	if len(spec.Dirs) > 0 || spec.Workspace != nil {
		return driver.CarryFiles, ""
	}
	return driver.CarryNone, fmt.Sprintf("what server %[1]q remembers is not known; set servers.%[1]s.sandbox to true, and a fork carries all of it (on Linux), or name its directories with servers.%[1]s.state: [NAME] and ${state.NAME} in its args or env", spec.Server)
}

// Seed implements driver.Keeper. A server that declares nothing has no folder.
func (d *Driver) Seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	if err := d.seed(ctx, spec, src); err != nil {
		return fmt.Errorf("server %q: seed its state: %w", spec.Server, err)
	}
	return nil
}

func (d *Driver) seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	from := dirs.From{Take: src.Take}
	if src.From != nil {
		f, err := thaw(*src.From)
		if err != nil {
			return err
		}
		from.Dirs, from.Folder = f.Dirs, src.From.Dir
	}
	plan, err := dirs.Plan(spec.Server, spec.Dirs, spec.State, from)
	if err != nil || len(spec.Dirs) == 0 {
		return errors.Join(err, ctx.Err())
	}
	return folder.FillState(spec.State, func() error {
		err := plan.Make(ctx, src.Progress)
		if err == nil {
			err = dirs.Note(spec.State, spec.State, spec.Dirs)
		}
		if err != nil {
			plan.GiveBack()
		}
		return err
	})
}

// Freeze implements driver.Keeper. An instance that runs is held, yet a process that was
// not found may go on removing its files.
func (d *Driver) Freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	s, err := d.freeze(ctx, spec, inst != nil, dir)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze its state: %w", spec.Server, err)
	}
	return s, nil
}

func (d *Driver) freeze(ctx context.Context, spec driver.Spec, runs bool, dir string) (s driver.Snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return s, err
	}
	if len(spec.Dirs) == 0 {
		return snapshot(spec.Server, "", frozen{}, 0)
	}
	if !runs {
		if err := intact(spec); err != nil {
			return s, err
		}
	}
	err = folder.Fill(dir, func() error {
		set, size, err := dirs.Freeze(ctx, spec.Dirs, dir, spec.State, runs)
		if err == nil {
			s, err = snapshot(spec.Server, dir, frozen{set}, size)
		}
		return err
	})
	return s, err
}

// intact looks that a state on which nothing runs has what it was left with, and tells
// the session where it has not.
func intact(spec driver.Spec) error {
	what, err := dirs.Vanished(spec.State, spec.State, spec.Dirs)
	if err != nil || what == "" {
		return err
	}
	err = driver.Vanished(spec.Whose(), what)
	if spec.OnDamage != nil {
		spec.OnDamage(err)
	}
	return err
}

// Discard implements driver.Keeper.
func (d *Driver) Discard(_ context.Context, s driver.Snapshot) error { return folder.Discard(s) }

// Erase implements driver.Keeper.
func (d *Driver) Erase(_ context.Context, spec driver.Spec) error { return folder.Erase(spec) }

// Recover implements driver.Keeper. States and snapshots are folders, and the session
// layer removes those without an owner; what is left for us are copies that were never
// finished.
func (d *Driver) Recover(ctx context.Context, states []string, snapshots []driver.Snapshot, _ bool) error {
	all := states
	for _, s := range snapshots {
		if s.Driver == "process" && s.Dir != "" {
			all = append(all[:len(all):len(all)], s.Dir)
		}
	}
	for _, dir := range all {
		if err := errors.Join(ctx.Err(), clone.Sweep(dir)); err != nil {
			return fmt.Errorf("recover the states of programs: %w", err)
		}
	}
	return nil
}
