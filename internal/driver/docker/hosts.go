package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

// hostsName is the folder in Options.Dir with a file for each engine that was
// used: where to look for what is left.
const hostsName = "engines"

// noteHost takes down that an engine is used, before anything is made there.
func (d *Driver) noteHost(host string) error {
	if d.opts.Dir == "" {
		return nil
	}
	dir := filepath.Join(d.opts.Dir, hostsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("note the container engine: %w", err)
	}
	name := filepath.Join(dir, digest(host))
	if b, err := os.ReadFile(name); err == nil && string(b) == host {
		return nil
	}
	if err := folder.WriteSynced(name, []byte(host)); err != nil {
		return fmt.Errorf("note the container engine: %w", err)
	}
	return nil
}

// hosts are the engines that were ever used.
func (d *Driver) hosts() ([]string, error) {
	var all []string
	d.mu.Lock()
	for host := range d.engines {
		all = append(all, host)
	}
	d.mu.Unlock()
	if d.opts.Dir != "" {
		dir := filepath.Join(d.opts.Dir, hostsName)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("find the container engines that were used: %w", err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err == nil && !strings.HasSuffix(e.Name(), folder.Part) {
				all = append(all, string(b))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// forgetHost is for an engine that has nothing of ours.
func (d *Driver) forgetHost(host string) {
	if d.opts.Dir != "" {
		os.Remove(filepath.Join(d.opts.Dir, hostsName, digest(host)))
	}
}
