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

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

const (
	killed = unix.SIGKILL
	// killWait is how long what was killed may take to be gone.
	killWait = 30 * time.Second
)

var _ driver.Rester = (*instance)(nil)

// Stop implements driver.Instance.
func (i *instance) Stop(ctx context.Context) error {
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.removed {
		return nil
	}
	if i.left {
		return fmt.Errorf("server %q: the instance was left to the next gateway", i.h.Server)
	}
	i.willStop()
	i.ask(ctx)
	return i.finish()
}

// willStop notes that the end of the sandbox is no accident.
func (i *instance) willStop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.exited: // by itself, which Err will say
	default:
		i.stopping = true
	}
}

// ask asks the program to end, until it has, or the grace or ctx is over.
func (i *instance) ask(ctx context.Context) {
	select {
	case <-i.done:
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
	case <-i.done:
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
	case <-i.done:
	case <-ctx.Done():
		return fmt.Errorf("server %q: its sandbox was killed and does not end; its folder %s stays", i.h.Server, i.h.Dir)
	}
	i.hangUp()
	if err := folder.Remove(i.h.Dir, recordName); err != nil {
		return fmt.Errorf("server %q: remove the instance's folder: %w", i.h.Server, err)
	}
	i.removed = true
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
	i.parting.Do(func() { close(i.leaving) })
	i.hangUp()
}

// Rest implements driver.Rester.
func (i *instance) Rest(ctx context.Context, hello json.RawMessage) error {
	i.closing.Lock()
	defer i.closing.Unlock()
	switch {
	case i.removed:
		return nil
	case i.left:
		return fmt.Errorf("server %q: the instance was left to the next gateway", i.h.Server)
	case i.rec.State == "":
		return fmt.Errorf("server %q: there is no folder for what it remembers", i.h.Server)
	}
	release, err := i.Hold(ctx)
	if err != nil {
		return err
	}
	select {
	case <-i.exited:
		release()
		return fmt.Errorf("server %q has ended", i.h.Server)
	default:
	}
	if err := i.d.rested(ctx, i, i.rec.State, hello); err != nil {
		release()
		return fmt.Errorf("server %q can't rest: %w", i.h.Server, err)
	}
	i.willStop()
	i.parting.Do(func() { close(i.leaving) })
	i.conn.HangUp()
	err = i.finish() // while nothing in it runs: what it would do now is lost
	if err != nil {
		// It may still run, and there must not be two that go on from there.
		err = errors.Join(err, i.d.took(i.rec.State))
	}
	release()
	return err
}

// Leave implements driver.Instance.
func (i *instance) Leave() error {
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.removed || i.left {
		return nil
	}
	i.left = true
	i.part()
	i.hangUp()
	return nil
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
