package packages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/clone"
)

// Sweep removes what fetches that were cut have left, what is not whole, and
// what a refresh has replaced and keep does not want: keep is asked with the
// folders, as Found.Dir has them, and nil keeps all that are whole. What this
// store gave out stays. Only the owner of the store's folder may call it.
func (s *Store) Sweep(keep func(dir string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("sweep the store of packages: %w", err)
	}
	newest := map[string]int{}
	whole := map[string]bool{}
	for _, e := range entries {
		if key, n, ok := splitFolder(e.Name()); ok {
			if _, err := readRecord(filepath.Join(s.dir, e.Name())); err == nil {
				whole[e.Name()] = true
				newest[key] = max(newest[key], n)
			}
		}
	}
	var failed []error
	for _, e := range entries {
		dir := filepath.Join(s.dir, e.Name())
		key, n, isFolder := splitFolder(e.Name())
		s.mu.Lock()
		busy := s.parts[dir] || s.handed[dir] || s.flights[key] != nil
		s.mu.Unlock()
		switch {
		case busy:
			continue
		case strings.HasSuffix(e.Name(), partEnd):
		case !isFolder, keep == nil && whole[e.Name()], whole[e.Name()] && n == newest[key], keep != nil && keep(dir):
			continue
		}
		if err := clone.Remove(dir); err != nil {
			failed = append(failed, fmt.Errorf("sweep the store of packages: %w", err))
		}
	}
	return errors.Join(failed...)
}
