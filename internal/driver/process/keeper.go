package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// frozen is what a snapshot of this driver says of itself: the directories that
// were declared, and whether each was there.
type frozen struct {
	Dirs map[string]bool `json:"dirs,omitempty"`
}

func thaw(s driver.Snapshot) (frozen, error) {
	var f frozen
	if s.Driver != "process" {
		return f, fmt.Errorf("the snapshot is of the driver %q", s.Driver)
	}
	if len(s.Data) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(s.Data, &f); err != nil {
		return f, fmt.Errorf("read the snapshot: %w", err)
	}
	for name := range f.Dirs {
		if err := checkName(name); err != nil {
			return f, err
		}
	}
	return f, nil
}

func snapshot(server, dir string, f frozen, size int64) (driver.Snapshot, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("write the snapshot: %w", err)
	}
	return driver.Snapshot{Driver: "process", Server: server, Carries: driver.CarryFiles, Dir: dir, Data: data, Size: size}, nil
}

// checkName refuses a directory that would not lie in the state's folder.
func checkName(name string) error {
	if name == "" || name[0] == '.' || !filepath.IsLocal(name) || filepath.Base(name) != name {
		return fmt.Errorf("a state directory can't be called %q", name)
	}
	return nil
}

// Carries implements driver.Keeper. What a program has in memory stays behind.
func (d *Driver) Carries(spec driver.Spec) string {
	if len(spec.Dirs) > 0 || spec.Workspace != nil {
		return driver.CarryFiles
	}
	return driver.CarryNone
}

// Seed implements driver.Keeper. A server that declares nothing has no folder.
func (d *Driver) Seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	if err := d.seed(ctx, spec, src); err != nil {
		return fmt.Errorf("server %q: seed its state: %w", spec.Server, err)
	}
	return nil
}

func (d *Driver) seed(ctx context.Context, spec driver.Spec, src driver.Source) (err error) {
	plan, err := planSeed(spec, src)
	if err != nil || len(plan) == 0 {
		return errors.Join(err, ctx.Err())
	}
	if spec.State == "" {
		return errors.New("there is no folder for it")
	}
	if err := os.Remove(spec.State); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is something in its place: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.State), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(spec.State, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, s := range plan {
				s.giveBack()
			}
			err = errors.Join(err, clone.Remove(spec.State))
		}
	}()
	tell, err := meter(plan, src.Progress)
	if err != nil {
		return err
	}
	for _, s := range plan {
		if err := s.make(ctx, clone.Options{Progress: tell(s)}); err != nil {
			return fmt.Errorf("directory %q: %w", filepath.Base(s.to), err)
		}
	}
	return ctx.Err()
}

// Freeze implements driver.Keeper. An instance that runs is held, yet a process
// that nobody found may go on removing its files.
func (d *Driver) Freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	s, err := d.freeze(ctx, spec, inst != nil, dir)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze its state: %w", spec.Server, err)
	}
	return s, nil
}

func (d *Driver) freeze(ctx context.Context, spec driver.Spec, runs bool, dir string) (_ driver.Snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return driver.Snapshot{}, err
	}
	if len(spec.Dirs) == 0 {
		return snapshot(spec.Server, "", frozen{}, 0)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return driver.Snapshot{}, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return driver.Snapshot{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clone.Remove(dir))
		}
	}()
	f := frozen{Dirs: make(map[string]bool)}
	var size int64
	for _, s := range spec.Dirs {
		if err := checkName(s.Name); err != nil {
			return driver.Snapshot{}, err
		}
		from := filepath.Join(spec.State, s.Name)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			f.Dirs[s.Name] = false // the server has removed it
			continue
		}
		o := clone.Options{Vanishing: runs, Copied: func(bytes, _ int64) { size += bytes }}
		if err := clone.Tree(ctx, filepath.Join(dir, s.Name), from, o); err != nil {
			return driver.Snapshot{}, fmt.Errorf("directory %q: %w", s.Name, err)
		}
		f.Dirs[s.Name] = true
	}
	return snapshot(spec.Server, dir, f, size)
}

// Discard implements driver.Keeper.
func (d *Driver) Discard(_ context.Context, s driver.Snapshot) error {
	if s.Dir == "" {
		return nil
	}
	if err := clone.Remove(s.Dir); err != nil {
		return fmt.Errorf("server %q: discard its snapshot: %w", s.Server, err)
	}
	return nil
}

// Erase implements driver.Keeper.
func (d *Driver) Erase(_ context.Context, spec driver.Spec) error {
	if spec.State == "" {
		return nil
	}
	if err := clone.Remove(spec.State); err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	}
	return nil
}

// Recover implements driver.Keeper. States and snapshots are folders, and those
// that belong to nobody are removed by who named them; what is left for us are
// copies that were never finished.
func (d *Driver) Recover(ctx context.Context, states []string, snapshots []driver.Snapshot) error {
	dirs := states
	for _, s := range snapshots {
		if s.Driver == "process" && s.Dir != "" {
			dirs = append(dirs[:len(dirs):len(dirs)], s.Dir)
		}
	}
	for _, dir := range dirs {
		if err := errors.Join(ctx.Err(), clone.Sweep(dir)); err != nil {
			return fmt.Errorf("recover the states of programs: %w", err)
		}
	}
	return nil
}
