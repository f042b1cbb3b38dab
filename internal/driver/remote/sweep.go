package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// sweepWait is how long a start waits for orchestrators to remove what an earlier
// gateway left. The rest is done in the background.
const sweepWait = 5 * time.Second

// Sweep implements driver.Sweeper. The folders that it returns are those of the
// instances that are being removed.
func (d *Driver) Sweep(ctx context.Context, root string, known map[string]bool) ([]string, error) {
	keep := make(map[string]bool, len(known))
	for dir := range known {
		keep[clean(dir)] = true
	}
	root = clean(root)
	var gone []string
	err := d.remove(ctx, func(e *entry) bool {
		if e.State != "" || e.Dir == "" || keep[clean(e.Dir)] || filepath.Dir(clean(e.Dir)) != root {
			return false
		}
		gone = append(gone, e.Dir)
		return true
	})
	return gone, err
}

// clean makes two ways to write a path the same.
func clean(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(real, filepath.Base(path))
	}
	return filepath.Clean(path)
}

// Recover implements driver.Keeper.
func (d *Driver) Recover(ctx context.Context, states []string, snapshots []driver.Snapshot, sure bool) error {
	keep := make(map[string]bool)
	for _, dir := range states {
		key, err := readState(dir)
		if err != nil {
			return fmt.Errorf("remote servers: recover: %w", err)
		}
		keep[key] = true
	}
	for _, s := range snapshots {
		var f frozen
		if s.Driver != Name {
			continue
		}
		if err := json.Unmarshal(s.Data, &f); err != nil {
			return fmt.Errorf("server %q: read its snapshot: %w", s.Server, err)
		}
		keep[f.Key] = true
	}
	return d.remove(ctx, func(e *entry) bool {
		return sure && e.Dir == "" && !keep[e.Key]
	})
}

// remove removes what has no owner: what is chosen, and what an earlier gateway had begun
// to remove.
func (d *Driver) remove(ctx context.Context, chosen func(*entry) bool) error {
	all, bad, err := d.ledger.all()
	if err != nil {
		return err
	}
	for _, err := range bad {
		d.log.Error("remote: something may be left at an orchestrator", "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sweepWait)
	defer cancel()
	left := all[:0]
	for _, e := range all {
		if chosen(e) || !e.Left.IsZero() {
			left = append(left, e)
		}
	}
	// Those of lost answers first: the others wait for them.
	var removals []*removal
	for _, lost := range []bool{true, false} {
		for _, e := range left {
			if (e.ID == "") == lost {
				removals = append(removals, d.dispose(e))
			}
		}
	}
	for _, r := range removals {
		select {
		case <-r.tried:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
