package dirs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// Freeze copies the declared directories from one folder to another, both of which
// exist, and returns the number of bytes. Where something runs on them, a process that
// is not held may go on removing its files. What is made before it fails stays: the
// caller removes the folder.
func Freeze(ctx context.Context, declared []driver.StateDir, to, from string, runs bool) (Set, int64, error) {
	set := make(Set)
	var size int64
	for _, dir := range declared {
		if err := CheckName(dir.Name); err != nil {
			return nil, 0, err
		}
		src := filepath.Join(from, dir.Name)
		if _, err := os.Lstat(src); errors.Is(err, fs.ErrNotExist) {
			set[dir.Name] = false // the server has removed it
			continue
		}
		o := clone.Options{Vanishing: runs, Copied: func(bytes, _ int64) { size += bytes }}
		if err := clone.Tree(ctx, filepath.Join(to, dir.Name), src, o); err != nil {
			return nil, 0, fmt.Errorf("directory %q: %w", dir.Name, err)
		}
		set[dir.Name] = true
	}
	return set, size, nil
}
