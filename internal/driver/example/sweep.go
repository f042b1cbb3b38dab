//go:build linux || darwin

package example

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// record is in the folder of each instance, for Sweep, and in its handle, for Adopt.
// The server's name is there from the beginning, the process once it runs.
type record struct {
	Server string `json:"server"`
	procid.ID
}

// The name of the file tells the folders of one driver from those of the others.
var records = folder.Records[record]{File: "example.json", What: "process", Is: func(r record) bool { return r.Server != "" }}

// Adopt implements driver.Driver. Info says that nothing can be adopted; that nothing is
// left over, as ErrGone promises, is seen to all the same.
func (d *Driver) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	rec, err := records.Of(h)
	if err == nil {
		err = remove(h.Dir, rec)
	}
	if err == nil {
		err = fmt.Errorf("its process ends with the gateway: %w", driver.ErrGone)
	}
	return nil, fmt.Errorf("server %q: %w", h.Server, err)
}

// Sweep implements driver.Sweeper. Without it the folders of a gateway that was killed
// would stay for ever, and so would programs that ignore the end of their input.
func (d *Driver) Sweep(_ context.Context, root string, known map[string]bool) (gone []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the folders of instances: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		rec, err := records.Read(dir)
		if !e.IsDir() || known[dir] || errors.Is(err, fs.ErrNotExist) {
			continue // in use, or another driver's
		}
		// A record that can't be read is one of a power cut, which no process survived.
		if err := remove(dir, rec); err != nil {
			return gone, err
		}
		gone = append(gone, dir)
	}
	return gone, nil
}

// remove ends what runs in a folder without an owner, and removes the folder.
// What outlived the leader of its group is not found: its number may be another's. The
// process driver finds it by a token in its environment (process/census_unix.go).
func remove(dir string, rec record) error {
	for giveUp := time.Now().Add(killWait); rec.Lives(); time.Sleep(time.Millisecond) {
		syscall.Kill(-rec.PID, syscall.SIGKILL)
		if time.Now().After(giveUp) {
			return fmt.Errorf("process %d was killed and does not end; its folder %s stays", rec.PID, dir)
		}
	}
	if err := folder.Remove(dir, records.File); err != nil {
		return fmt.Errorf("remove the folder of an instance: %w", err)
	}
	return nil
}
