//go:build linux || darwin

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopts is whether children outlive the gateway.
const adopts = true

const (
	inName  = "in"
	outName = "out"
)

// child is a process that leads its own session and group, ours or one that an
// earlier gateway started.
type child struct {
	pid    int
	family family
	watch  watcher
	census *census

	mu     sync.Mutex
	reaped bool // its pid may be another's by now

	still still
}

// launch starts a child on new FIFOs in dir and completes its record.
func (d *Driver) launch(dir string, spec launchSpec, rec *record) (_ *child, _ *pipe, err error) {
	in, out := filepath.Join(dir, inName), filepath.Join(dir, outName)
	for _, path := range []string{in, out} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return nil, nil, fmt.Errorf("make a named pipe (the state folder must be on a file system that has them): %w", &os.PathError{Op: "mkfifo", Path: path, Err: err})
		}
	}
	// The child's ends. Opened apart from ours, because whether an end blocks is
	// a property of the opening, and the child must block and we must not.
	childIn, err := openFIFO(in, unix.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(childIn)
	childOut, err := openFIFO(out, unix.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(childOut)
	// Ours before the child runs, so that nothing it writes is lost however
	// short it lives.
	conn, err := openPipe(dir)
	if err != nil {
		return nil, nil, err
	}

	pid, fd, err := forkExec(spec.path, append([]string{spec.path}, spec.args...), &syscall.ProcAttr{
		Dir:   spec.cwd,
		Env:   spec.env.list(),
		Files: []uintptr{uintptr(childIn), uintptr(childOut), spec.stderr.Fd()},
		// A session of its own has no terminal, and is a process group of its own.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	id, err := identify(pid) // it can't be gone: nobody has waited for it
	if err == nil {
		rec.PID, rec.Start, rec.Boot = pid, id.start, bootID()
		err = rec.write(dir)
	}
	if err != nil {
		syscall.Kill(-pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
		closeFD(fd)
		conn.Close()
		d.census.end(family{token: rec.Token, dir: realPath(dir)})
		return nil, nil, fmt.Errorf("note the new process %d: %w", pid, err)
	}
	return d.newChild(dir, *rec, fd), conn, nil
}

// newChild watches the process of a record. It owns fd, which refers to that
// process or is -1.
func (d *Driver) newChild(dir string, rec record, fd int) *child {
	return &child{
		pid:    rec.PID,
		family: family{token: rec.Token, dir: realPath(dir)},
		watch:  newWatcher(rec.PID, rec.Start, fd),
		census: &d.census,
	}
}

// openPipe opens our ends of the FIFOs in dir. There must be somebody at the
// other end.
func openPipe(dir string) (*pipe, error) {
	r, err := openFIFO(filepath.Join(dir, outName), unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w, err := openFIFO(filepath.Join(dir, inName), unix.O_WRONLY|unix.O_NONBLOCK)
	if err != nil {
		unix.Close(r)
		return nil, err
	}
	rf, wf := os.NewFile(uintptr(r), outName), os.NewFile(uintptr(w), inName)
	c, err := newPipe(rf, wf)
	if err != nil {
		rf.Close()
		wf.Close()
		return nil, err
	}
	return c, nil
}

func openFIFO(path string, mode int) (int, error) {
	for {
		fd, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			unix.Close(fd)
			return -1, &os.PathError{Op: "open", Path: path, Err: errNotFIFO}
		}
		return fd, nil
	}
}

var errNotFIFO = errors.New("not a FIFO")

// wait waits for the exit of the child, at most for d. It reports false when
// close was called.
func (c *child) wait(d time.Duration) (exited, ok bool) { return c.watch.wait(d) }

// close lets go of the child without ending it.
func (c *child) close() { c.watch.close() }

// terminate asks the group to end. One that is stopped would not hear it.
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
		syscall.Kill(-c.pid, sig)
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
		syscall.Kill(-c.pid, syscall.SIGKILL)
	}
	how = reap(c.pid)
	c.reaped = true
	c.mu.Unlock()
	return how, errors.Join(endGroup(c.pid, until), c.census.end(c.family))
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

// reapGroup waits for the dead of a group that are our children: where the
// gateway is the init of a container, orphans become its own.
func reapGroup(pgid int) {
	for {
		pid, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil)
		if err != nil && err != syscall.EINTR || err == nil && pid == 0 {
			return
		}
	}
}

// endGroup ends the group of a leader that is gone.
func endGroup(pgid int, until func() time.Time) error {
	pause := time.Millisecond
	var killed time.Time
	for {
		if !groupLives(pgid) {
			reapGroup(pgid)
			return nil
		}
		now := time.Now()
		if !now.Before(until()) {
			syscall.Kill(-pgid, syscall.SIGKILL)
			if killed.IsZero() {
				killed = now
			} else if now.Sub(killed) > killWait/2 {
				return fmt.Errorf("process group %d was killed and does not end", pgid)
			}
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}
