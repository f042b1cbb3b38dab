package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/moby/client"
)

// Sweep implements driver.Sweeper. A folder is of this driver when it holds a
// record of a container. Containers of this gateway whose folder lies in root and
// is not there any more are found by their labels.
//
// An engine that does not answer is tried again in the background: a gateway
// starts without it.
func (d *Driver) Sweep(ctx context.Context, root string, known map[string]bool) ([]string, error) {
	keep := make(map[string]bool, len(known)) // keys of folders
	busy := make(map[string]bool)             // containers that are a state that stays
	for dir := range known {
		keep[keyOf(dir)] = true
		if rec, err := records.Read(dir); err == nil && rec.Stays {
			busy[rec.Container] = true
		}
	}
	removed, err := d.sweepFolders(ctx, root, keep)
	if err != nil {
		return removed, err
	}
	hosts, err := d.hosts()
	if err != nil {
		return removed, err
	}
	for _, host := range hosts {
		if err := d.sweepEngine(ctx, host, keep, busy); err != nil {
			if !away(err) {
				return removed, fmt.Errorf("sweep the containers: %w", err)
			}
			d.opts.Log.Warn("containers of an earlier gateway can't be looked for now", "error", err)
			d.later("containers at "+host, func(ctx context.Context) error { return d.sweepEngine(ctx, host, keep, busy) })
		}
	}
	return removed, nil
}

// sweepFolders ends what records in folders name.
func (d *Driver) sweepFolders(ctx context.Context, root string, keep map[string]bool) (removed []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the folders of instances: %w", err)
	}
	for _, entry := range entries {
		dir := filepath.Join(root, entry.Name())
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if !entry.IsDir() || keep[keyOf(dir)] {
			continue
		}
		rec, err := records.Read(dir)
		if err != nil {
			continue // not ours, or torn by a power cut: labels find the container
		}
		switch err := d.endLeftover(ctx, dir, rec); {
		case err == nil:
			removed = append(removed, dir)
		case away(err):
			d.retry(dir, rec)
		default:
			return removed, fmt.Errorf("sweep the folders of instances: %w", err)
		}
	}
	return removed, nil
}

// sweepEngine ends containers of unknown instances.
func (d *Driver) sweepEngine(ctx context.Context, host string, keep, busy map[string]bool) error {
	e, err := d.engine(host)
	if err != nil {
		return err
	}
	list, err := e.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.ours()})
	if err != nil {
		return e.explain("list the containers", err)
	}
	for _, c := range list.Items {
		key := c.Labels[labelInstance]
		if d.mine(key) {
			continue
		}
		switch c.Labels[labelRole] {
		case roleInstance:
			if !keep[key] {
				err = e.removeContainer(ctx, c.ID)
			}
		case roleHelper:
			err = e.removeContainer(ctx, c.ID)
		case roleState: // which stays, and does not run
			if !busy[c.ID] {
				err = e.kill(ctx, c.ID)
			}
		}
		if err != nil {
			return e.explain("remove a container", err)
		}
	}
	for _, reach := range []string{"address", "port"} {
		e.tidyNetwork(ctx, d.networkName(reach))
	}
	return nil
}
