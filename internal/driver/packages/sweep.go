package packages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/clone"
)

// Sweep removes what fetches that were cut have left. Only the owner of the
// store's folder may call it.
func (s *Store) Sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("sweep the store of packages: %w", err)
	}
	var failed []error
	for _, e := range entries {
		dir := filepath.Join(s.dir, e.Name())
		s.mu.Lock()
		goesOn := s.parts[dir]
		s.mu.Unlock()
		if goesOn || !strings.HasSuffix(e.Name(), partEnd) {
			continue
		}
		if err := clone.Remove(dir); err != nil {
			failed = append(failed, fmt.Errorf("sweep the store of packages: %w", err))
		}
	}
	return errors.Join(failed...)
}
