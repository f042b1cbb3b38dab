//go:build linux || darwin

package example

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/life"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// killWait is how long what was killed may take to be gone. Only a process that hangs
// in the kernel takes that long.
const killWait = 10 * time.Second

// instance is one running program. Life brings Done and Err, and the order of things
// that may happen at once: holds, stops, an end without a Stop. watch is the only
// goroutine, and Stop waits for it.
type instance struct {
	*life.Life
	handle driver.Handle
	id     procid.ID // of the leader of the group
	exit   procid.Watcher
	pipe   *lines.Files
	conn   *lines.Conn // messages on the pipe
	stderr *lines.Log
	grace  time.Duration
	log    *slog.Logger

	mu sync.Mutex // held to signal, and to note the exit
}

var _ driver.Instance = (*instance)(nil)

// watch sees the program end, by itself or by Stop, and ends what it started.
func (i *instance) watch() {
	i.stderr.Tend(i.log, i.exit.Wait) // keeps the log short meanwhile
	i.mu.Lock()
	i.Exit()
	i.mu.Unlock()
	// Until the leader is waited for, no other group has its number. So every process
	// that is killed is ours, and the waiting comes last.
	for procid.GroupLives(i.id.PID) {
		syscall.Kill(-i.id.PID, syscall.SIGKILL)
		time.Sleep(time.Millisecond)
	}
	how := reap(i.id.PID)
	i.conn.End()
	i.End(func() error { return i.stderr.Ending(i.log, i.handle.Server, how) })
}

// reap waits for the dead of the group, and says how the leader ended. Others of it are
// our children where the gateway is the init of a container.
func reap(leader int) (how string) {
	how = "has ended"
	for {
		var ws syscall.WaitStatus
		switch pid, err := syscall.Wait4(-leader, &ws, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // there is none any more
			return how
		case pid == leader && ws.Signaled():
			how = fmt.Sprintf("was ended by signal %d (%v)", int(ws.Signal()), ws.Signal())
		case pid == leader:
			how = fmt.Sprintf("exited with status %d", ws.ExitStatus())
		}
	}
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.handle }

// Dial implements driver.Instance. The conn outlives the link, with what was read and
// not asked for.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := i.MayDial(ctx); err != nil {
		return driver.Link{}, err
	}
	s, err := i.conn.Dial()
	return driver.Link{Stream: s}, err
}

// Hold implements driver.Instance. That no message enters is all there is to it, since
// no fork copies what the program keeps. A Keeper must also stop the processes, or what
// it copies is half written: see process/still_unix.go.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	return i.HoldWith(ctx, func() (goOn func(), err error) {
		goOn = i.conn.Hold()
		if err := i.MayHold(); err != nil { // a stop has begun
			return goOn, err
		}
		return goOn, i.conn.Settle(ctx) // a message that is half sent is sent whole
	})
}

// Logs implements driver.Instance. After Stop there are none.
func (i *instance) Logs(max int64) (io.ReadCloser, error) {
	return i.stderr.Logs(i.handle.Server, max)
}

// Stop implements driver.Instance. StopWith lets one at a time in, and none after the
// first that succeeded.
func (i *instance) Stop(ctx context.Context) error {
	return i.StopWith(func() error { return i.stop(ctx) })
}

func (i *instance) stop(ctx context.Context) error {
	i.Ask()         // the end is no accident from now on, so Err is nil
	i.Part()        // it can no longer be held or dialled
	i.conn.HangUp() // running reads and writes fail
	i.pipe.W.Close()
	ended := i.ends(ctx, i.grace/2) // asked: its input has ended
	if !ended {
		i.signal(syscall.SIGTERM) // insisted, for servers that don't mind their input
		ended = i.ends(ctx, i.grace/2)
	}
	if !ended {
		i.signal(syscall.SIGKILL)
		ended = i.ends(context.Background(), killWait) // the end of ctx cuts the asking short and not the ending
	}
	if !ended {
		// The folder stays, and with it what a later Stop or Sweep needs.
		return fmt.Errorf("server %q: process %d was killed and does not end; its folder %s stays", i.handle.Server, i.id.PID, i.handle.Dir)
	}
	i.conn.Close()
	i.exit.Close()
	i.stderr.Close()
	if err := folder.Remove(i.handle.Dir, records.File); err != nil {
		return fmt.Errorf("server %q: remove the instance's folder: %w", i.handle.Server, err)
	}
	return nil
}

// ends waits for the end of all that the instance is.
func (i *instance) ends(ctx context.Context, wait time.Duration) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-i.Done():
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// signal signals the group, unless its leader has ended: then watch kills the rest, and
// soon the number may be another's.
func (i *instance) signal(sig syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.Exited():
	default:
		syscall.Kill(-i.id.PID, sig)
	}
}

// Leave implements driver.Instance. Nothing outlives the gateway, so there is nothing
// to leave to the next one.
func (i *instance) Leave() error { return i.Stop(context.Background()) }
