package process

import (
	"context"
	"fmt"
	"io"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/parcel"
)

// An export is a parcel with the directories below state/.
const (
	exportState   = "state"
	exportFormat  = "tine process state"
	exportVersion = 1
)

var exportForm = parcel.Form{Name: "tine-process", Format: exportFormat, Version: exportVersion, What: "a program's state"}

type exportHeader struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	frozen
}

// Export implements driver.Keeper.
func (d *Driver) Export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	if err := export(ctx, s, w); err != nil {
		return fmt.Errorf("server %q: export its snapshot: %w", s.Server, err)
	}
	return nil
}

// CheckExport implements driver.Keeper.
func (d *Driver) CheckExport(ctx context.Context, s driver.Snapshot) error {
	f, err := thaw(s)
	if err == nil {
		err = dirs.CheckExport(ctx, f.Dirs, s.Dir)
	}
	if err != nil {
		return fmt.Errorf("server %q: %w", s.Server, err)
	}
	return nil
}

func export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	f, err := thaw(s)
	if err != nil {
		return err
	}
	out, err := exportForm.Write(ctx, w, exportHeader{exportFormat, exportVersion, f})
	if err != nil {
		return err
	}
	if err := dirs.Export(out, exportState, f.Dirs, s.Dir); err != nil {
		return err
	}
	return out.Close()
}
