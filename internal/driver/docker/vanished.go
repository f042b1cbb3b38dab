package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// An engine makes a missing volume when a container names it, so that a state whose
// volume was removed would silently be an empty one.

// holds looks that the engine has what a state consists of.
func (e *engine) holds(ctx context.Context, spec driver.Spec, h holding) error {
	what, err := e.lacks(ctx, h)
	if err != nil || what == "" {
		return err
	}
	return vanished(spec, what+" of its state")
}

// snapshotHolds is holds for a snapshot, which no session has yet.
func (d *Driver) snapshotHolds(ctx context.Context, server string, h holding) error {
	if h.Files || h.Host == "" || len(h.Volumes) == 0 && h.Image == "" {
		return nil
	}
	e, err := d.engine(h.Host)
	if err != nil {
		return err
	}
	what, err := e.lacks(ctx, h)
	if err != nil || what == "" {
		return err
	}
	return driver.Vanished(driver.Whose{Server: server}, what+" of its snapshot")
}

// lacks names a volume or an image that was made and that the engine has no more;
// empty where it has all. What nothing was on yet does not count, nor does an image
// that a container was made of, which is the state then.
func (e *engine) lacks(ctx context.Context, h holding) (string, error) {
	for _, p := range h.Volumes {
		if p.Fresh {
			continue
		}
		_, err := e.cli.VolumeInspect(ctx, p.Volume, client.VolumeInspectOptions{})
		switch {
		case gone(err):
			return fmt.Sprintf("the volume %s (%s)", p.Volume, p.Path), nil
		case err != nil:
			return "", e.explain("look at a volume", err)
		}
	}
	if h.Image == "" || h.Container != "" {
		return "", nil
	}
	_, err := e.cli.ImageInspect(ctx, h.Image)
	switch {
	case gone(err):
		return "the image " + h.Image, nil
	case err != nil:
		return "", e.explain("look at an image", err)
	}
	return "", nil
}

// vanished tells the session that something of a state is gone.
func vanished(spec driver.Spec, what string) error {
	err := driver.Vanished(spec.Whose(), what)
	if spec.OnDamage != nil {
		spec.OnDamage(err)
	}
	return err
}
