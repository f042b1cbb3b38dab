package sandbox

import (
	"context"
	"io"
	"path"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
)

var _ driver.Porter = (*instance)(nil)

// Put implements [driver.Porter].
func (i *instance) Put(ctx context.Context, dir, name string, r io.Reader) (string, error) {
	return path.Join(insideState, dir, name), dirs.Put(ctx, dirsOf(i.rec.State, dir), name, r)
}
