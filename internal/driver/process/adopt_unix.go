//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (driver.Instance, error) {
	inst, err := d.adopt(ctx, h, log)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", h.Server, err)
	}
	return inst, nil
}

func (d *Driver) adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (*instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rec, err := records.Of(h)
	if err != nil {
		return nil, err
	}
	watch, err := procid.Watch(rec.ID)
	switch {
	case errors.Is(err, os.ErrProcessDone):
		return nil, d.endLeftover(h.Dir, rec, "the process has ended")
	case err != nil:
		return nil, err
	}
	conn, err := fifo.Open(h.Dir)
	if err != nil {
		watch.Close()
		if !fifo.Unusable(err) {
			return nil, fmt.Errorf("open the pipes of process %d: %w", rec.PID, err)
		}
		return nil, d.endLeftover(h.Dir, rec, fmt.Sprintf("the pipes of process %d are gone (%v)", rec.PID, err))
	}
	stderr, err := lines.OpenLog(h.Dir, d.opts.LogLimit)
	if err != nil {
		watch.Close()
		conn.Close()
		return nil, err
	}
	child := d.newChild(h.Dir, rec, watch)
	child.wake()
	if err := d.endCommands(rec); err != nil {
		watch.Close()
		conn.Close()
		stderr.Close()
		return nil, err
	}
	// The gateway before us may have died in the middle of a line, of either
	// direction.
	return d.newInstance(h, rec, child, conn, true, stderr, log), nil
}

// endLeftover ends what is left of an instance that can't be adopted and returns why,
// as ErrGone when all is gone.
func (d *Driver) endLeftover(dir string, rec record, why string) error {
	if err := d.clear([]string{dir}, []record{rec}); err != nil {
		return fmt.Errorf("%s, and what it left can't be ended: %w", why, err)
	}
	return fmt.Errorf("%s: %w", why, driver.ErrGone)
}

// clear kills everything that belongs to the records, which are of the folders,
// and removes the folders.
func (d *Driver) clear(dirs []string, recs []record) error {
	var families []family.Family
	for n, rec := range recs {
		families = append(families, family.Family{Token: rec.Token, Dir: family.RealPath(dirs[n])})
	}
	var dying []family.Member
	if slices.ContainsFunc(recs, func(r record) bool { return r.Lives() }) {
		// Before they are killed: a dying process can't be told from others.
		dying = d.census.Members(families...)
	}
	// The leaders by their records, with their groups, for what no scan can see.
	for _, rec := range recs {
		if rec.Lives() {
			syscall.Kill(-rec.PID, syscall.SIGKILL)
			dying = append(dying, family.Member{ID: rec.ID})
		}
	}
	if err := d.census.End(families...); err != nil {
		return err
	}
	giveUp := time.Now().Add(family.KillWait)
	for _, p := range dying {
		for p.Lives() {
			if time.Now().After(giveUp) {
				return fmt.Errorf("process %d was killed and does not end", p.PID)
			}
			time.Sleep(time.Millisecond)
		}
	}
	for _, dir := range dirs {
		if err := folder.Remove(dir, recordName); err != nil {
			return fmt.Errorf("remove the folder of an instance: %w", err)
		}
	}
	return nil
}
