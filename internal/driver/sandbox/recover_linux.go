//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// kept is what may refer to binaries of earlier builds.
type kept struct {
	mu      sync.Mutex
	folders []string        // states and snapshots that were there at the start
	hashes  map[string]bool // of what was adopted, and of the memories that were made or taken over since
	roots   map[rootOf]bool // that were found to be as memories have them
	intact  map[string]bool // ids of memories that were written or verified since the start
}

// verified reports whether the files of a memory are known to be as they were
// written, or notes that they are.
func (k *kept) verified(id string, now bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now && k.intact == nil {
		k.intact = make(map[string]bool)
	}
	if now {
		k.intact[id] = true
	}
	return k.intact[id]
}

// rootOf is the root that a memory of a server needs.
type rootOf struct{ server, digest string }

// suited remembers that a server has a root that a memory needs, or reports
// whether that is known. It may have changed since, which a start sees.
func (k *kept) suited(of rootOf, found bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found && k.roots == nil {
		k.roots = make(map[rootOf]bool)
	}
	if found {
		k.roots[of] = true
	}
	return k.roots[of]
}

// note remembers which binary a memory needs.
func (k *kept) note(i *imageInfo) {
	if i == nil {
		return
	}
	k.needs(i.Runsc)
}

// needs remembers that a binary is needed.
func (k *kept) needs(hash string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hashes == nil {
		k.hashes = make(map[string]bool)
	}
	k.hashes[hash] = true
}

// referenced are the binaries that states and snapshots need.
func (d *Driver) referenced() map[string]bool {
	d.kept.mu.Lock()
	defer d.kept.mu.Unlock()
	all := make(map[string]bool)
	for hash := range d.kept.hashes {
		all[hash] = true
	}
	for _, dir := range d.kept.folders {
		r, err := readState(dir)
		switch {
		case err == nil && r.Image != nil:
			all[r.Image.Runsc] = true
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			d.opts.Log.Warn("which binary a state needs is not known", "folder", dir, "error", err)
		}
	}
	return all
}

// Recover implements driver.Keeper. States and snapshots are folders, and the session
// layer removes those without an owner; what is left for us are copies and memories that
// were never finished, or are used up.
func (d *Driver) Recover(ctx context.Context, states []string, snapshots []driver.Snapshot, sure bool) error {
	all := append([]string(nil), states...)
	for _, s := range snapshots {
		if s.Driver == driverName && s.Dir != "" {
			all = append(all, s.Dir)
		}
	}
	for _, dir := range all {
		if err := errors.Join(ctx.Err(), tidy(dir)); err != nil {
			return fmt.Errorf("recover the states of sandboxes: %w", err)
		}
	}
	d.kept.mu.Lock()
	d.kept.folders = all
	d.kept.mu.Unlock()
	// The sweep before has found which ones the instances need.
	if _, err := os.Stat(d.opts.Dir); err == nil && sure {
		d.helpers.prune(d.referenced())
	}
	return nil
}

// tidy removes what a killed process left half made in a folder.
func tidy(dir string) error {
	r, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(clone.Sweep(dir), clone.Sweep(dirsOf(dir))); err != nil {
		return err
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil {
		return readErr
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), folder.Part) || err == nil && r.Image == nil && e.Name() == imageName {
			if err := clone.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
