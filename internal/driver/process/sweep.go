package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Sweep implements driver.Sweeper. A folder is of this driver when it holds a
// record, or nothing at all: a gateway that was killed before it wrote one had
// started nothing.
func (d *Driver) Sweep(ctx context.Context, root string, known map[string]bool) ([]string, error) {
	if err := d.sweepFetches(); err != nil {
		return nil, fmt.Errorf("end the fetches of an earlier gateway: %w", err)
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the folders of instances: %w", err)
	}
	keep := make(map[string]bool, len(known))
	for dir := range known {
		keep[family.RealPath(dir)] = true
	}
	var gone, dirs []string
	var recs []record
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		dir := filepath.Join(root, e.Name())
		if !e.IsDir() || keep[family.RealPath(dir)] {
			continue
		}
		rec, err := records.Read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			if folder.RemoveEmpty(dir) {
				gone = append(gone, dir)
			}
			continue
		}
		// A record that can't be read was torn by a power cut. Nothing has survived
		// that; what has the pipes open would be found all the same.
		dirs, recs = append(dirs, dir), append(recs, rec)
	}
	if len(dirs) == 0 {
		return gone, nil
	}
	if err := d.clear(dirs, recs); err != nil {
		return gone, fmt.Errorf("sweep the folders of instances: %w", err)
	}
	return append(gone, dirs...), nil
}
