//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

const (
	killed = unix.SIGKILL
	// killWait is how long what was killed may take to be gone.
	killWait = 30 * time.Second
)

// Stop implements driver.Instance.
func (i *instance) Stop(ctx context.Context) error {
	return i.StopWith(func() error {
		i.Ask()
		i.ask(ctx)
		return i.finish()
	})
}

// ask asks the program to end, until it has, or the grace or ctx is over.
func (i *instance) ask(ctx context.Context) {
	select {
	case <-i.Done():
		return
	default:
	}
	i.part()
	i.conn.HangUp()
	within, cancel := context.WithTimeout(ctx, i.rec.grace())
	defer cancel()
	req := i.request(control.OpSignal)
	req.Signal = int(unix.SIGTERM)
	if _, _, err := i.order(within, req); err != nil {
		return
	}
	select {
	case <-i.Done():
	case <-within.Done():
	}
}

// finish kills what is left, and removes it.
func (i *instance) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	if err := i.d.destroy(ctx, i.rec); err != nil {
		i.d.unended.Store(i.h.Dir, i.rec)
		return fmt.Errorf("server %q: %w; its folder %s stays", i.h.Server, err, i.h.Dir)
	}
	select {
	case <-i.Done():
	case <-ctx.Done():
		return fmt.Errorf("server %q: its sandbox was killed and does not end; its folder %s stays", i.h.Server, i.h.Dir)
	}
	i.hangUp()
	if err := folder.Remove(i.h.Dir, recordName); err != nil {
		return fmt.Errorf("server %q: remove the instance's folder: %w", i.h.Server, err)
	}
	return nil
}

// hangUp lets go of the processes and the pipes.
func (i *instance) hangUp() {
	i.d.live.Delete(i)
	i.park.end()
	i.box.Close()
	if i.gofer != nil {
		i.gofer.Close()
	}
	i.shut()
	i.watched.Wait()
	i.conn.Close()
	if i.web != nil {
		i.web.end()
	}
	i.stderr.Close()
}

// abandon lets go of an instance that never was one.
func (i *instance) abandon() {
	i.Part()
	i.hangUp()
}

// Suspend implements driver.Suspender.
func (i *instance) Suspend(ctx context.Context, hello json.RawMessage) error {
	return i.StopWith(func() error { return i.suspend(ctx, hello) })
}

func (i *instance) suspend(ctx context.Context, hello json.RawMessage) error {
	if i.rec.State == "" {
		return fmt.Errorf("server %q: there is no folder for what it remembers", i.h.Server)
	}
	release, err := i.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	select {
	case <-i.Exited():
		return fmt.Errorf("server %q has ended", i.h.Server)
	default:
	}
	if err := i.d.suspended(ctx, i, i.rec.State, hello); err != nil {
		return fmt.Errorf("server %q can't be suspended: %w", i.h.Server, err)
	}
	i.Ask()
	i.Part()
	i.conn.HangUp()
	// While nothing in it runs: what it would do now is lost.
	if err := i.finish(); err != nil {
		// It may still run, and there must not be two that go on from there.
		return errors.Join(err, i.d.took(i.rec.State))
	}
	return nil
}

// Leave implements driver.Instance.
func (i *instance) Leave() error {
	return i.LeaveWith(func() {
		i.part()
		i.hangUp()
	})
}

// destroy ends a sandbox and removes what gVisor keeps of it.
func (d *Driver) destroy(ctx context.Context, rec record) error {
	req := control.Request{Op: control.OpDestroy, Sandbox: rec.Sandbox, Flags: rec.Flags}
	_, _, err := d.helpers.call(ctx, rec.Runsc, req)
	if errors.Is(err, errBinary) {
		// Another can end it as well.
		var ours string
		if ours, err = d.helpers.ours(); err == nil {
			_, _, err = d.helpers.call(ctx, ours, req)
		}
	}
	if err != nil {
		// At least nothing runs any more.
		_ = rec.ID.Signal(killed)
		_ = rec.Gofer.Signal(killed)
		return fmt.Errorf("end the sandbox: %w", err)
	}
	// Where its directories were shown to it: its helper may have died meanwhile.
	if err := os.Remove(filepath.Join(d.mountsDir(), rec.Sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what the sandbox was shown: %w", err)
	}
	return nil
}
