package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// Recover implements driver.Keeper. What the records of states and snapshots
// name stays, and whatever else is of this gateway goes. An engine that does not
// answer is tried again in the background: a gateway starts without it.
func (d *Driver) Recover(ctx context.Context, states []string, snapshots []driver.Snapshot, sure bool) error {
	kept := keptThings{names: make(map[string]bool), hosts: make(map[string]bool)}
	for _, dir := range states {
		if err := kept.add(dir); err != nil {
			return fmt.Errorf("recover the states of containers: %w", err)
		}
	}
	for _, s := range snapshots {
		if s.Driver == driverName && s.Dir != "" {
			if err := kept.add(s.Dir); err != nil {
				return fmt.Errorf("recover the snapshots of containers: %w", err)
			}
		}
	}
	hosts, err := d.hosts()
	if err != nil {
		return err
	}
	if !sure {
		return nil
	}
	for _, host := range hosts {
		do := func(ctx context.Context) error { return d.recoverEngine(ctx, host, kept) }
		if err := do(ctx); err != nil {
			if !away(err) {
				return fmt.Errorf("recover the states of containers: %w", err)
			}
			d.opts.Log.Warn("what an earlier gateway left in a container engine can't be looked for now", "error", err)
			d.later("states at "+host, do)
		}
	}
	return nil
}

// keptThings are what has an owner.
type keptThings struct {
	names map[string]bool // of volumes, images and containers
	hosts map[string]bool
}

// add reads the record of a folder. A record that can't be read stops everything: what
// it names must not be taken for unowned.
func (k keptThings) add(dir string) error {
	h, err := readHolding(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	k.hosts[h.Host] = true
	for _, p := range h.Volumes {
		k.names[p.Volume] = true
	}
	k.names[h.Image] = true
	k.names[h.Container] = true
	return nil
}

func (d *Driver) recoverEngine(ctx context.Context, host string, kept keptThings) error {
	e, err := d.engine(host)
	if err != nil {
		return err
	}
	left, err := e.removeContainers(ctx, kept)
	if err != nil {
		return e.explain("remove unowned containers", err)
	}
	n, err := e.removeVolumes(ctx, kept)
	if err != nil {
		return e.explain("remove unowned volumes", err)
	}
	left += n
	if n, err = e.removeImages(ctx, kept); err != nil {
		return e.explain("remove unowned images", err)
	}
	left += n
	for _, reach := range []string{"address", "port"} {
		e.tidyNetwork(ctx, d.networkName(reach))
	}
	d.mu.Lock()
	idle := len(d.live) == 0
	d.mu.Unlock()
	if left == 0 && idle && !kept.hosts[host] {
		d.forgetHost(host)
		e.mu.Lock()
		e.known = nil // so that the next use takes note of it
		e.mu.Unlock()
	}
	return nil
}

// removeContainers removes containers that are an unowned state, and returns how many of
// this gateway there are besides.
func (e *engine) removeContainers(ctx context.Context, kept keptThings) (left int, err error) {
	list, err := e.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: e.d.ours()})
	if err != nil {
		return 0, err
	}
	for _, c := range list.Items {
		role := c.Labels[labelRole]
		if role == roleInstance || e.d.mine(c.Labels[labelInstance]) || kept.names[c.ID] {
			left++
			continue
		}
		if err := e.removeContainer(ctx, c.ID); err != nil {
			return left, err
		}
	}
	return left, nil
}

func (e *engine) removeVolumes(ctx context.Context, kept keptThings) (left int, err error) {
	list, err := e.cli.VolumeList(ctx, client.VolumeListOptions{Filters: e.d.ours()})
	if err != nil {
		return 0, err
	}
	for _, v := range list.Items {
		if kept.names[v.Name] || e.d.mine(v.Name) {
			left++
			continue
		}
		if err := e.removeVolume(ctx, v.Name); err != nil {
			return left, err
		}
	}
	return left, nil
}

func (e *engine) removeImages(ctx context.Context, kept keptThings) (left int, err error) {
	list, err := e.cli.ImageList(ctx, client.ImageListOptions{Filters: e.d.ours()})
	if err != nil {
		return 0, err
	}
	prefix := e.d.repository() + ":"
	for _, image := range list.Items {
		used := false
		for _, tag := range image.RepoTags {
			if !strings.HasPrefix(tag, prefix) || kept.names[tag] || e.d.mine(tag) {
				used = true
				continue
			}
			if err := e.removeTag(ctx, tag); err != nil {
				return left, err
			}
		}
		if used {
			left++
		} else if !slices.ContainsFunc(image.RepoTags, func(tag string) bool { return strings.HasPrefix(tag, prefix) }) {
			// One that lost its name and not more; others may be made from it.
			if err := e.removeTag(ctx, image.ID); err != nil {
				e.d.opts.Log.Debug("an image without a name stays", "image", image.ID, "error", err)
			}
		}
	}
	return left, nil
}
