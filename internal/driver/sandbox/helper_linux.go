//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// errHelper reports that the helper went away before it answered.
var errHelper = errors.New("the helper of sandboxes has ended")

// errNone reports that there is no such sandbox.
var errNone = errors.New("there is no such sandbox")

// helper is a process with gVisor in it, of one binary.
type helper struct {
	hash   string
	gvisor string // its version
	conn   *control.Conn
	run    Running
	stderr *tail
	done   chan struct{} // it has ended

	mu    sync.Mutex
	last  uint64
	calls map[uint64]chan answer
}

type answer struct {
	control.Reply
	files []*os.File
	err   error
}

// startHelper runs a binary as the helper, which holds a lock. For an ordinary user it
// is root in a user namespace of its own.
func startHelper(path, locked string, start func(Command) (Running, error), rootful, beside bool) (*helper, error) {
	conn, theirs, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	lock, err := alone(locked, beside)
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer lock.Close()
	stderr := new(tail)
	run, err := start(Command{Path: path, Arg: control.Arg, Files: []*os.File{theirs, lock}, Stderr: stderr, Apart: true})
	theirs.Close() // or the end of the helper would not be seen
	if err != nil {
		conn.Close()
		return nil, whyNoHelper(err, rootful)
	}
	h := &helper{hash: strings.TrimPrefix(filepath.Base(path), "runsc-"), conn: conn, run: run, stderr: stderr, done: make(chan struct{}), calls: make(map[uint64]chan answer)}
	go h.listen()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rep, _, err := h.call(ctx, control.Request{Op: control.OpHello})
	if err != nil {
		h.end()
		return nil, whyNoHelper(err, rootful)
	}
	if rep.Protocol > control.Protocol {
		h.end()
		return nil, fmt.Errorf("the helper of sandboxes, %s, speaks protocol %d, and this tine protocol %d; install a tine and a tine-sandbox that fit each other", path, rep.Protocol, control.Protocol)
	}
	h.gvisor = rep.Version
	return h, nil
}

// Start starts tine-sandbox as a child of this process.
func Start(c Command) (Running, error) {
	cmd := Child(c)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return child{cmd}, nil
}

// Child is tine-sandbox as a child of this process, which is not started yet.
func Child(c Command) *exec.Cmd {
	cmd := exec.Command(c.Path, c.Arg)
	cmd.Args[0] = filepath.Base(c.Path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", c.Stderr, c.Files
	// A signal for the gateway from a terminal is not for the helper.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Apart {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
	}
	return cmd
}

type child struct{ cmd *exec.Cmd }

func (c child) Wait() error { return c.cmd.Wait() }
func (c child) Kill()       { _ = c.cmd.Process.Kill() }

const askDoctor = "; run tine doctor to see what is missing"

// finishWait is how long a helper may take with requests of a gateway that is gone.
const finishWait = 30 * time.Second

// alone waits until no process that an earlier helper of a binary left works on its
// sandboxes: of two at once each would be wrong about what the other does. What it
// returns is for the next one to hold. With beside, it does not wait.
func alone(path string, beside bool) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil || beside {
		return f, err
	}
	for late := time.Now().Add(finishWait); ; time.Sleep(5 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if (err != syscall.EWOULDBLOCK && err != syscall.EINTR) || time.Now().After(late) {
			f.Close()
			return nil, fmt.Errorf("wait for the helper of an earlier gateway to finish: lock %s: %w", path, err)
		}
	}
}

// whyNoHelper says what to do where no helper runs.
func whyNoHelper(err error, rootful bool) error {
	mend := askDoctor
	switch {
	case errors.Is(err, syscall.EPERM) && rootful:
		mend = "; making namespaces is forbidden here, as it is in a container without CAP_SYS_ADMIN; run Tine outside of it, or set driver: process"
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EACCES):
		mend = "; an ordinary user may not make user namespaces here; see sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns, or run Tine as root"
	}
	return fmt.Errorf("start the helper of sandboxes: %w%s", err, mend)
}

// listen hands answers to the calls that wait for them, until the helper ends.
func (h *helper) listen() {
	for {
		var rep control.Reply
		files, err := h.conn.Read(&rep)
		if err != nil {
			break
		}
		h.mu.Lock()
		c := h.calls[rep.ID]
		delete(h.calls, rep.ID)
		h.mu.Unlock()
		if c == nil {
			control.Close(files)
			continue
		}
		c <- answer{Reply: rep, files: files}
	}
	h.conn.Close()
	_ = h.run.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		c <- answer{err: h.gone()}
	}
	h.calls = nil
	close(h.done)
}

func (h *helper) gone() error {
	if text := strings.TrimSpace(h.stderr.String()); text != "" {
		return fmt.Errorf("%w: %s", errHelper, text)
	}
	return errHelper
}

// call asks the helper for something. When ctx ends first, what was asked for may
// happen all the same, and files that come of it are closed.
func (h *helper) call(ctx context.Context, req control.Request, files ...*os.File) (control.Reply, []*os.File, error) {
	if err := ctx.Err(); err != nil {
		return control.Reply{}, nil, err
	}
	c := make(chan answer, 1)
	h.mu.Lock()
	if h.calls == nil {
		h.mu.Unlock()
		return control.Reply{}, nil, h.gone()
	}
	h.last++
	req.ID = h.last
	h.calls[req.ID] = c
	h.mu.Unlock()
	if err := h.conn.Write(req, files...); err != nil {
		h.mu.Lock()
		_, waiting := h.calls[req.ID]
		delete(h.calls, req.ID)
		h.mu.Unlock()
		if waiting {
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
				err = fmt.Errorf("%w: %w", errHelper, err)
			}
			return control.Reply{}, nil, fmt.Errorf("ask the helper of sandboxes: %w", err)
		}
	}
	select {
	case a := <-c:
		return a.result()
	case <-ctx.Done():
		h.mu.Lock()
		_, waiting := h.calls[req.ID]
		delete(h.calls, req.ID)
		h.mu.Unlock()
		if !waiting { // it came in this moment
			a := <-c
			control.Close(a.files)
		}
		return control.Reply{}, nil, ctx.Err()
	}
}

func (a answer) result() (control.Reply, []*os.File, error) {
	switch {
	case a.err != nil:
		return a.Reply, nil, a.err
	case a.Gone:
		control.Close(a.files)
		return a.Reply, nil, fmt.Errorf("%w: %s", errNone, a.Error)
	case a.Error != "":
		control.Close(a.files)
		return a.Reply, nil, errors.New(a.Error)
	}
	return a.Reply, a.files, nil
}

// end lets the helper go.
func (h *helper) end() {
	h.conn.Close() // which it hears
	select {
	case <-h.done:
	case <-time.After(finishWait):
		h.run.Kill()
		<-h.done
	}
}

// over reports whether the helper has ended.
func (h *helper) over() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if over := len(t.end) - tailSize; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}
