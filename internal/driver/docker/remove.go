package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

// removeContainer ends and removes a container, with its unnamed volumes. A missing
// container is fine.
func (e *engine) removeContainer(ctx context.Context, id string) error {
	return untilSettled(ctx, func() error {
		_, err := e.cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || gone(err) {
			return nil
		}
		if strings.Contains(err.Error(), "paused") {
			if err := e.unpause(ctx, id); err != nil {
				return err
			}
		}
		return err
	})
}

// untilSettled does something with a container until that succeeds, or fails for
// another reason than that the container is about to be in another state.
func untilSettled(ctx context.Context, do func() error) error {
	wait := 5 * time.Millisecond
	for {
		err := do()
		if err == nil || !unsettled(err) {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		wait = min(2*wait, time.Second)
	}
}

// unsettled reports whether an engine refuses because another request works on the
// container already, or because that is about to end.
func unsettled(err error) bool {
	return errdefs.IsConflict(err) || slices.ContainsFunc([]string{"already in progress", "could not be stopped", "state improper", "paused"},
		func(s string) bool { return strings.Contains(err.Error(), s) })
}

// kill ends a container that stays.
func (e *engine) kill(ctx context.Context, id string) error {
	return untilSettled(ctx, func() error { return e.tryKill(ctx, id) })
}

func (e *engine) tryKill(ctx context.Context, id string) error {
	s, err := e.state(ctx, id)
	switch {
	case gone(err):
		return nil
	case err != nil:
		return err
	case s == nil || !alive(s):
		return nil
	}
	if s.Paused {
		if err := e.unpause(ctx, id); err != nil {
			return err
		}
	}
	if _, err := e.cli.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil && !gone(err) {
		if s, stateErr := e.state(ctx, id); stateErr != nil || s != nil && alive(s) {
			return err
		}
	}
	if err := e.waitExit(ctx, id); err != nil && !gone(err) {
		return err
	}
	return nil
}

// removeVolume removes a volume. A missing volume is fine.
func (e *engine) removeVolume(ctx context.Context, name string) error {
	wait := 10 * time.Millisecond
	for {
		_, err := e.cli.VolumeRemove(ctx, name, client.VolumeRemoveOptions{Force: true})
		if err == nil || gone(err) {
			return nil
		}
		// The container that had it may still be going.
		if !errdefs.IsConflict(err) && !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "being used") || wait > 2*time.Second {
			return fmt.Errorf("remove the volume %s: %w", name, err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("remove the volume %s: %w (%w)", name, ctx.Err(), err)
		}
		wait *= 2
	}
}

// removeTag takes a name of an image away, and the image with its last one.
func (e *engine) removeTag(ctx context.Context, tag string) error {
	_, err := e.cli.ImageRemove(ctx, tag, client.ImageRemoveOptions{PruneChildren: true})
	if err != nil && errdefs.IsConflict(err) {
		// A container that is being removed may still be there for a moment; and
		// an image that others were made from only loses its name.
		_, err = e.cli.ImageRemove(ctx, tag, client.ImageRemoveOptions{PruneChildren: true, Force: true})
	}
	if imageGone(err) {
		// Engines say so too where another tag of the image, or of an image with the
		// same parent, goes at the same time.
		if _, there := e.cli.ImageInspect(ctx, tag); there == nil {
			_, err = e.cli.ImageRemove(ctx, tag, client.ImageRemoveOptions{PruneChildren: true})
		}
	}
	if err != nil && !imageGone(err) {
		return fmt.Errorf("remove the image %s: %w", tag, err)
	}
	return nil
}

// imageGone reports whether the engine says that an image is not there. Docker 20.10 has
// an internal error for one that another client removes at the same time.
func imageGone(err error) bool {
	return gone(err) || err != nil && strings.Contains(err.Error(), "unrecognized image ID")
}

// retry removes the container of an instance in the background. The folder stays
// until then, so that the next gateway finds it too.
func (d *Driver) retry(dir string, rec record) {
	d.later(dir, func(ctx context.Context) error { return d.endLeftover(ctx, dir, rec) })
}

// later does something in the background again and again until it is done or the
// driver is closed: what could not be removed because the engine is away.
func (d *Driver) later(name string, do func(context.Context) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.retried[name] {
		return
	}
	d.retried[name] = true
	d.work.Go(func() {
		defer d.forget(name)
		for wait := time.Second; ; wait = min(2*wait, time.Minute) {
			t := time.NewTimer(wait)
			select {
			case <-d.ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
			if !d.wanted(name) {
				return
			}
			ctx, cancel := context.WithTimeout(d.ctx, apiWait)
			err := do(ctx)
			cancel()
			if err == nil {
				d.opts.Log.Info("removed what was left when the container engine was away", "of", name)
				return
			}
		}
	})
}

// forget ends the trying; wanted reports whether it goes on.
func (d *Driver) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.retried, name)
}

func (d *Driver) wanted(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retried[name]
}

// claim notes that something is this driver's, by its labels or names, so that a late
// sweep leaves it alone.
func (d *Driver) claim(names ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		d.live[n] = true
	}
}

func (d *Driver) disclaim(names ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		delete(d.live, n)
	}
}

// mine reports whether something was claimed.
func (d *Driver) mine(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[name]
}

// endLeftover ends and removes what is left of an instance without an owner.
func (d *Driver) endLeftover(ctx context.Context, dir string, rec record) error {
	e, err := d.engine(rec.Host)
	if err != nil {
		return err
	}
	if rec.Stays {
		err = e.kill(ctx, rec.ref())
	} else {
		err = e.removeContainer(ctx, rec.ref())
	}
	if err != nil {
		return e.explain("remove the container", err)
	}
	if rec.Ours {
		e.tidyNetwork(ctx, rec.Network)
	}
	return folder.Remove(dir, recordName)
}
