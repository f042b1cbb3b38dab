package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	inst, err := d.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", spec.Server, err)
	}
	return inst, nil
}

func (d *Driver) start(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if options(spec) == nil || options(spec).Image == "" {
		return nil, errors.New("no image is given; set docker.image")
	}
	if spec.Dir == "" {
		return nil, errors.New("no folder for the instance is given")
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the instance's folder: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, recordName)); err == nil {
		return nil, fmt.Errorf("folder %s belongs to another instance", dir)
	}
	state, err := d.stateOf(spec)
	if err != nil {
		return nil, err
	}
	host := options(spec).Host
	if state != nil {
		host = state.Host // the engine that has it
	}
	e, err := d.engine(host)
	if err != nil {
		return nil, err
	}
	f, err := e.ready(ctx)
	if err != nil {
		return nil, err
	}
	if state != nil {
		if err := e.holds(ctx, spec, *state); err != nil {
			return nil, err
		}
	}
	r, err := e.plan(spec, f)
	if err != nil {
		return nil, err
	}
	rec := record{
		Kind: recordInstance, Host: e.host, Name: newName("server", spec.Server), Keeps: len(options(spec).State) > 0,
		Stays: state != nil && state.Root, GraceMS: d.grace(spec).Milliseconds(), Engine: e.run(),
		Mortal: f.podman && !r.http,
		Image:  options(spec).Image, Started: time.Now().UTC().Truncate(time.Millisecond),
		HTTP: r.http, Port: options(spec).Port, Path: r.path, Reach: r.reach, Network: r.network, Ours: r.ours,
	}
	if state != nil && state.Container != "" {
		rec.Container, rec.Name = state.Container, state.Container
	}
	if err := folder.Make(dir); err != nil {
		return nil, err
	}
	h := driver.Handle{Driver: driverName, Server: spec.Server, Session: spec.Session, Dir: dir}
	i := d.newInstance(e, h, rec, nil, spec.Log)
	defer func() {
		if err == nil {
			return
		}
		after, cancel := afterwards(ctx)
		defer cancel()
		i.disconnect()
		if i.stderr != nil {
			i.stderr.Close()
		}
		if undo := i.undo(after); undo != nil {
			err = errors.Join(err, undo)
		}
	}()
	d.claim(i.claims(spec.State)...)
	// Before the container exists, so that a gateway killed right after finds it.
	if err := rec.write(dir); err != nil {
		return nil, err
	}
	if i.stderr, err = lines.OpenLog(dir, d.opts.LogLimit); err != nil {
		return nil, err
	}
	if r.ours {
		if err := e.enterNetwork(ctx, r.network, r.reach); err != nil {
			return nil, err
		}
		i.entered = true
	}
	if err := i.create(ctx, spec, r, state); err != nil {
		return nil, err
	}
	if err := i.connectNew(ctx); err != nil {
		return nil, i.better(ctx, err)
	}
	if err := i.run(ctx); err != nil {
		return nil, err
	}
	i.h.Data = i.rec.data()
	return i, nil
}

func (d *Driver) grace(spec driver.Spec) time.Duration {
	if spec.StopGrace > 0 {
		return spec.StopGrace
	}
	return d.opts.StopGrace
}

// create makes the container, or finds the one that is the state.
func (i *instance) create(ctx context.Context, spec driver.Spec, r *recipe, state *holding) error {
	if i.rec.Container != "" {
		if _, err := i.e.state(ctx, i.rec.Container); err == nil {
			return i.rec.write(i.h.Dir)
		} else if !gone(err) {
			return i.e.explain("find the container", err)
		}
		return fmt.Errorf("its container %.12s, which was its state, is gone; it was removed outside of Tine: %w", i.rec.Container, driver.ErrLost)
	}
	image := options(spec).Image
	if state != nil && state.Image != "" {
		image = state.Image
	} else if err := i.e.ensureImage(ctx, spec, i.log); err != nil {
		return err
	}
	o := r.options(image, state)
	role, key := roleInstance, keyOf(i.h.Dir)
	if i.rec.Stays {
		role, key = roleState, keyOf(spec.State)
	}
	o.Config.Labels = i.d.labels(spec, role, key)
	o.Name = i.rec.Name
	res, err := i.e.cli.ContainerCreate(ctx, o)
	if err != nil {
		return i.e.explain(fmt.Sprintf("make a container of the image %q", options(spec).Image), err)
	}
	for _, w := range res.Warnings {
		i.log.Debug("the container engine warns", "server", spec.Server, "warning", w)
	}
	i.rec.Container = res.ID
	if err := i.rec.write(i.h.Dir); err != nil {
		return err
	}
	if state != nil {
		return i.d.took(spec.State, state, i.rec)
	}
	return nil
}

// run starts the container and, where it is reached over the network, waits until
// it listens.
func (i *instance) run(ctx context.Context) error {
	if _, err := i.e.cli.ContainerStart(ctx, i.rec.ref(), client.ContainerStartOptions{}); err != nil {
		return i.stderr.Told(i.log, i.e.explain("start the container", err))
	}
	i.begin()
	if !i.rec.HTTP {
		return nil
	}
	w, err := i.e.reach(ctx, i.rec)
	if err == nil {
		i.mu.Lock()
		i.web = w
		i.mu.Unlock()
		err = i.listens(ctx, w)
	} else if s, stateErr := i.e.state(ctx, i.rec.ref()); stateErr == nil && s != nil && !alive(s) {
		// An ended container has no address; its end is the error to report.
		select {
		case <-i.Done():
			err = fmt.Errorf("it ended before it listened: %w", i.Err())
		case <-ctx.Done():
		}
	}
	if err != nil {
		i.cancel()
		<-i.watched
		return err
	}
	return nil
}

// connectNew connects to a container that was just made. Podman prepares it first, and
// says that it is busy while it still clears up after a container before it.
func (i *instance) connectNew(ctx context.Context) error {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		err := i.connect(ctx, false)
		if err == nil || wait > time.Second || !strings.Contains(err.Error(), "received 409") {
			return err
		}
		i.log.Debug("a container can't be attached to; trying again", "server", i.h.Server, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// better is a better error than that of an attachment, which does not say why
// there is none: Podman prepares the container for it, as others do when it is
// started.
func (i *instance) better(ctx context.Context, err error) error {
	if away(err) || ctx.Err() != nil {
		return err
	}
	if _, why := i.e.cli.ContainerStart(ctx, i.rec.ref(), client.ContainerStartOptions{}); why != nil {
		return i.e.explain("start the container", why)
	}
	return err
}

// undo removes what a start that failed has made.
func (i *instance) undo(ctx context.Context) error {
	var err error
	if i.rec.Stays && i.rec.Container != "" {
		err = i.e.kill(ctx, i.rec.ref())
	} else {
		err = i.e.removeContainer(ctx, i.rec.ref())
	}
	if err != nil {
		if away(err) {
			i.d.retry(i.h.Dir, i.rec)
		}
		return i.e.explain("remove the container", err)
	}
	if i.entered {
		i.e.leaveNetwork(ctx, i.rec.Network)
	}
	return folder.Remove(i.h.Dir, recordName)
}

// claims are the keys of what an instance makes.
func (i *instance) claims(state string) []string {
	all := []string{keyOf(i.h.Dir)}
	if i.rec.Stays {
		all = append(all, keyOf(state))
	}
	return all
}

func logOf(spec driver.Spec, d *Driver) *slog.Logger {
	if spec.Log != nil {
		return spec.Log
	}
	return d.opts.Log
}
