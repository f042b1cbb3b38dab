package process

import (
	"context"
	"fmt"
	"io"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Import implements driver.Keeper. The stream is not trusted: what it makes lies in dir
// and leads nowhere else, and there is a bound on how much.
func (d *Driver) Import(ctx context.Context, server, dir string, r io.Reader) (s driver.Snapshot, err error) {
	err = folder.Fill(dir, func() (err error) {
		s, err = d.importInto(ctx, server, dir, r)
		return err
	})
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: %w", server, err)
	}
	return s, nil
}

func (d *Driver) importInto(ctx context.Context, server, dir string, r io.Reader) (driver.Snapshot, error) {
	var head exportHeader
	in, err := exportForm.Read(ctx, r, d.opts.ImportBytes, d.opts.ImportFiles, &head)
	if err != nil {
		return driver.Snapshot{}, err
	}
	i, err := dirs.Import(in, exportState, head.Dirs, dir)
	if err != nil {
		return driver.Snapshot{}, err
	}
	defer i.Close()
	if err := in.Each(i.Entry); err != nil {
		return driver.Snapshot{}, err
	}
	if err := i.Finish(); err != nil {
		return driver.Snapshot{}, err
	}
	return snapshot(server, dir, head.frozen, in.Size)
}
