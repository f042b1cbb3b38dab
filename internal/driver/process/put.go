package process

import (
	"context"
	"io"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
)

var _ driver.Porter = (*instance)(nil)

// Put implements [driver.Porter].
func (i *instance) Put(ctx context.Context, dir, name string, r io.Reader) (string, error) {
	at := filepath.Join(i.rec.State, dir)
	return filepath.Join(at, name), dirs.Put(ctx, at, name, r)
}
