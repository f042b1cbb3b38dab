//go:build linux || darwin

package process

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// adopts is whether children outlive the gateway.
const adopts = true

// census finds what has left the group of a child.
type census = family.Census

// child is a process that leads its own session and group, ours or one that an
// earlier gateway started.
type child struct {
	id     procid.ID
	family family.Family
	watch  procid.Watcher
	census *census

	mu     sync.Mutex
	reaped bool // its pid may be another's by now

	still still
}

// launch starts a child on new FIFOs in dir and completes its record.
func (d *Driver) launch(dir string, spec launchSpec, rec *record) (*child, lines.Pipe, error) {
	if err := fifo.Make(dir); err != nil {
		return nil, nil, err
	}
	in, out, err := fifo.Program(dir)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	defer out.Close()
	// Ours before the child runs, so that nothing it writes is lost however
	// short it lives.
	conn, err := fifo.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	attr := &syscall.ProcAttr{
		Dir:   spec.cwd,
		Env:   spec.env.List(),
		Files: []uintptr{in.Fd(), out.Fd(), spec.stderr.Fd()},
		// A session of its own has no terminal, and is a process group of its own.
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	path, argv := spec.path, append([]string{spec.path}, spec.args...)
	if spec.mount != nil {
		path, argv = spec.mount.through(path, argv, attr)
	}
	id, watch, err := procid.Start(path, argv, attr)
	if err == nil {
		rec.ID = id
		if err = rec.write(dir); err != nil {
			syscall.Kill(-id.PID, syscall.SIGKILL)
			syscall.Wait4(id.PID, nil, 0, nil)
			watch.Close()
			err = fmt.Errorf("note the new process %d: %w", id.PID, err)
		}
	}
	if err != nil {
		conn.Close()
		if id.PID != 0 {
			d.census.End(family.Family{Token: rec.Token, Dir: family.RealPath(dir)})
		}
		return nil, nil, err
	}
	return d.newChild(dir, *rec, watch), conn, nil
}

// newChild is the process of a record, whose watcher it owns.
func (d *Driver) newChild(dir string, rec record, watch procid.Watcher) *child {
	return &child{
		id:     rec.ID,
		family: family.Family{Token: rec.Token, Dir: family.RealPath(dir)},
		watch:  watch,
		census: &d.census,
	}
}

// wait waits for the exit of the child, at most for d. It reports false when
// close was called.
func (c *child) wait(d time.Duration) (exited, ok bool) { return c.watch.Wait(d) }

// close lets go of the child without ending it.
func (c *child) close() { c.watch.Close() }

// terminate asks the group to end. A stopped group would not handle the signal.
func (c *child) terminate() {
	c.signal(syscall.SIGCONT)
	c.signal(syscall.SIGTERM)
}

func (c *child) kill() { c.signal(syscall.SIGKILL) }

// signal signals the group. After the reaping, end takes care of it.
func (c *child) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		syscall.Kill(-c.id.PID, sig)
	}
}

// end ends what the child started, once it has exited itself, and says how it
// did. What is in its group is asked until the time that until returns, which
// may change meanwhile.
func (c *child) end(until func() time.Time) (how string, err error) {
	c.mu.Lock()
	if !time.Now().Before(until()) {
		// Before the reaping: as long as the dead leader is there its number is
		// not given to another group.
		syscall.Kill(-c.id.PID, syscall.SIGKILL)
	}
	how = reap(c.id.PID)
	c.reaped = true
	c.mu.Unlock()
	return how, errors.Join(family.EndGroup(c.id.PID, until), c.census.End(c.family))
}

// reap waits for an exited child of ours and says how it ended.
func reap(pid int) string {
	var ws syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || got != pid:
			return "has ended (how is not known, because an earlier gateway started it)"
		case ws.Signaled() && ws.Signal() == syscall.SIGKILL:
			return "was killed by signal 9 (killed), as the kernel does when memory runs out"
		case ws.Signaled():
			return fmt.Sprintf("was ended by signal %d (%v)", int(ws.Signal()), ws.Signal())
		}
		return fmt.Sprintf("exited with status %d", ws.ExitStatus())
	}
}
