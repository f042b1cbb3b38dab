package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Carries implements driver.Keeper. What a container has in memory stays behind.
func (d *Driver) Carries(spec driver.Spec) (carries, why string) {
	if options(spec) != nil && len(options(spec).State) > 0 || spec.Workspace != nil {
		return driver.CarryFiles, ""
	}
	return driver.CarryNone, fmt.Sprintf("what the container of server %[1]q remembers is not known; name its paths, or root, in servers.%[1]s.docker.state", spec.Server)
}

// stateOf reads the state that an instance works on; nil where it has none.
func (d *Driver) stateOf(spec driver.Spec) (*holding, error) {
	if len(options(spec).State) == 0 {
		return nil, nil
	}
	if spec.State == "" {
		return nil, errors.New("it declares a state, and there is no folder for it")
	}
	h, err := readHolding(spec.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, vanished(spec, "its state "+spec.State)
	}
	if err != nil {
		return nil, err
	}
	return &h, nil
}

// took notes that a container was made on a state: the engine has filled its
// volumes, and where the container is the state, that it is this one.
func (d *Driver) took(dir string, h *holding, rec record) error {
	next := *h
	next.Volumes = slices.Clone(h.Volumes)
	changed := false
	for n := range next.Volumes {
		changed = changed || next.Volumes[n].Fresh
		next.Volumes[n].Fresh = false
	}
	if next.Root {
		next.Container, changed = rec.Container, true
	}
	if !changed {
		return nil
	}
	return next.write(dir)
}

// Seed implements driver.Keeper. A server that declares nothing has no folder.
func (d *Driver) Seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	if options(spec) == nil || len(options(spec).State) == 0 {
		return ctx.Err()
	}
	if err := folder.FillState(spec.State, func() error { return d.seed(ctx, spec, src) }); err != nil {
		return fmt.Errorf("server %q: seed its state: %w", spec.Server, err)
	}
	return nil
}

func (d *Driver) seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if src.From == nil {
		return d.plant(ctx, spec, src.Progress)
	}
	from, err := d.frozen(*src.From, spec)
	if err != nil {
		return err
	}
	if err := d.snapshotHolds(ctx, spec.Server, from); err != nil {
		return err
	}
	if src.Take && !from.Files && src.From.Dir != "" && len(missing(spec, from)) == 0 {
		// The owner of the record owns what it names.
		err := os.Rename(filepath.Join(src.From.Dir, recordName), filepath.Join(spec.State, recordName))
		if err == nil {
			return folder.Sync(spec.State)
		}
	}
	return d.regrow(ctx, spec, *src.From, from, src.Progress)
}

// paths are where the volumes of a state are. Where the root is the state, what
// the image has declared as volumes is not in the root and is a piece too.
func (d *Driver) paths(ctx context.Context, e *engine, spec driver.Spec) ([]string, error) {
	if !options(spec).Root() {
		return options(spec).State, nil
	}
	res, err := e.cli.ImageInspect(ctx, options(spec).Image)
	if err != nil {
		return nil, e.explain("look at the image", err)
	}
	var all []string
	if res.Config != nil {
		for p := range res.Config.Volumes {
			if !slices.ContainsFunc(options(spec).Binds, func(b Bind) bool { return path.Clean(b.Target) == path.Clean(p) }) {
				all = append(all, p)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// Freeze implements driver.Keeper.
func (d *Driver) Freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	s, err := d.freeze(ctx, spec, dir)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze its state: %w", spec.Server, err)
	}
	return s, nil
}

func (d *Driver) freeze(ctx context.Context, spec driver.Spec, dir string) (driver.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return driver.Snapshot{}, err
	}
	if options(spec) == nil || len(options(spec).State) == 0 {
		return snapshot(spec.Server, "", 0), nil
	}
	state, err := d.stateOf(spec)
	if err != nil {
		return driver.Snapshot{}, err
	}
	e, err := d.engine(state.Host)
	if err != nil {
		return driver.Snapshot{}, err
	}
	if _, err := e.ready(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	if err := e.holds(ctx, spec, *state); err != nil {
		return driver.Snapshot{}, err
	}
	var size int64
	err = folder.Fill(dir, func() (err error) {
		size, err = d.copyHolding(ctx, e, spec, *state, dir, nil)
		return err
	})
	return snapshot(spec.Server, dir, size), err
}

func snapshot(server, dir string, size int64) driver.Snapshot {
	return driver.Snapshot{Driver: driverName, Server: server, Carries: driver.CarryFiles, Dir: dir, Size: size}
}

// frozen reads a snapshot that a spec is to be seeded from.
func (d *Driver) frozen(s driver.Snapshot, spec driver.Spec) (holding, error) {
	if s.Driver != driverName {
		return holding{}, fmt.Errorf("the snapshot is of the driver %q: %w", s.Driver, driver.ErrUnfit)
	}
	if s.Dir == "" {
		return holding{Kind: recordState, Host: resolveHost(options(spec).Host), Root: options(spec).Root(), Base: options(spec).Image}, nil
	}
	h, err := readHolding(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return holding{}, errors.New("the snapshot is gone")
	}
	if err != nil {
		return holding{}, err
	}
	if h.Root != options(spec).Root() {
		return holding{}, fmt.Errorf("the snapshot is of another kind of state; servers.%s.docker.state was %s and is not any more", spec.Server, kindText(h.Root))
	}
	if h.Root {
		return h, nil
	}
	for _, p := range h.Volumes {
		if !slices.Contains(options(spec).State, p.Path) {
			return holding{}, fmt.Errorf("the snapshot has the path %q, which would be lost; add it to servers.%s.docker.state", p.Path, spec.Server)
		}
	}
	return h, nil
}

func kindText(root bool) string {
	if root {
		return RootState
	}
	return "a list of paths"
}

// Discard implements driver.Keeper.
func (d *Driver) Discard(ctx context.Context, s driver.Snapshot) error {
	if s.Dir == "" {
		return nil
	}
	if err := d.drop(ctx, s.Dir); err != nil {
		return fmt.Errorf("server %q: discard its snapshot: %w", s.Server, err)
	}
	return nil
}

// Erase implements driver.Keeper.
func (d *Driver) Erase(ctx context.Context, spec driver.Spec) error {
	if spec.State == "" {
		return nil
	}
	if err := d.drop(ctx, spec.State); err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	}
	return nil
}

// drop removes what the record in a folder names, and then the folder. Where the
// engine is away it goes on in the background.
func (d *Driver) drop(ctx context.Context, dir string) error {
	h, err := readHolding(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // never whole, or taken
	case err != nil:
		// A record that can't be read names nothing; the labels do, and the next
		// gateway finds what has them.
		d.opts.Log.Warn("a record of a container's state can't be read", "folder", dir, "error", err)
	default:
		if err := d.release(ctx, h); err != nil {
			if away(err) {
				d.later(dir, func(ctx context.Context) error {
					if err := d.release(ctx, h); err != nil {
						return err
					}
					return clone.Remove(dir)
				})
			}
			return err
		}
	}
	d.disclaim(keyOf(dir))
	return clone.Remove(dir)
}

// release removes what a record names.
func (d *Driver) release(ctx context.Context, h holding) error {
	if h.Host == "" {
		return nil
	}
	e, err := d.engine(h.Host)
	if err != nil {
		return err
	}
	if h.Container != "" {
		if err := e.removeContainer(ctx, h.Container); err != nil {
			return e.explain("remove the container", err)
		}
	}
	for _, p := range h.Volumes {
		if p.Volume == "" {
			continue
		}
		if err := e.removeVolume(ctx, p.Volume); err != nil {
			return e.explain("remove a volume", err)
		}
		d.disclaim(p.Volume)
	}
	if h.Image != "" {
		if err := e.removeTag(ctx, h.Image); err != nil {
			return e.explain("remove an image", err)
		}
		d.disclaim(h.Image)
	}
	return nil
}
