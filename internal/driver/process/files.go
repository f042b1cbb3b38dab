package process

import (
	"context"
	"io"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

var (
	_ driver.Filer      = (*instance)(nil)
	_ driver.StateFiles = (*Driver)(nil)
)

// StateDir implements [driver.StateFiles].
func (d *Driver) StateDir(state, name string) string { return filepath.Join(state, name) }

// PutFiles implements [driver.Filer]: the files of a program without walls are the
// directories of its state.
func (i *instance) PutFiles(ctx context.Context, spec driver.Spec, at string, r io.Reader, l workspace.Limits) (workspace.Copied, error) {
	return i.folders(spec).Put(ctx, at, r, l)
}

// GetFiles implements [driver.Filer].
func (i *instance) GetFiles(ctx context.Context, spec driver.Spec, at string, w io.Writer, l workspace.Limits) (workspace.Copied, error) {
	return i.folders(spec).Get(ctx, at, w, l)
}

func (i *instance) folders(spec driver.Spec) driver.Folders {
	return driver.Folders{Server: spec.Server, Dirs: spec.Dirs, At: func(name string) string { return i.d.StateDir(spec.State, name) }}
}
