//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/sandbox"

	ours "github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// box is one sandbox.
type box struct {
	mu         sync.Mutex // what changes it comes one after the other
	c          *container.Container
	conf       *config.Config
	pid, gofer int
	known      bool // whether it is paused
	paused     bool
	gone       bool // it was removed
}

// confs are the settings of gVisor, by their flags.
type confs struct {
	mu  sync.Mutex
	all map[string]*config.Config
}

func (c *confs) of(flags []string) (*config.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.Join(flags, "\x00")
	if conf := c.all[key]; conf != nil {
		return conf, nil
	}
	fs := flag.NewFlagSet(runsc, flag.ContinueOnError)
	config.RegisterFlags(fs)
	if err := fs.Parse(flags); err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	if c.all == nil {
		c.all = make(map[string]*config.Config)
	}
	c.all[key] = conf
	return conf, nil
}

// create makes a sandbox by another process of this binary, since gVisor gives a
// sandbox the standard files and the cgroup of the process that makes it.
func (h *helper) create(req ours.Request, files []*os.File) (ours.Reply, error) {
	if len(files) < 3 {
		return ours.Reply{}, errors.New("its standard files are missing")
	}
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return ours.Reply{}, err
	}
	args := append([]string{runsc}, conf.ToFlags()...)
	args = append(args, "create", "--bundle", req.Bundle, req.Sandbox)
	logRead, logWrite, err := os.Pipe()
	if err != nil {
		return ours.Reply{}, err
	}
	defer logRead.Close()
	attr := &syscall.ProcAttr{
		Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOGC=" + strconv.Itoa(restoreGC)},
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd(), logWrite.Fd(), ours.Lock},
	}
	args = append([]string{args[0], "--log=/proc/self/fd/3", "--log-format=json"}, args[1:]...)
	status, err := h.kids.run("/proc/self/exe", args, attr)
	logWrite.Close()
	if err != nil {
		return ours.Reply{}, err
	}
	if status != 0 {
		var log bytes.Buffer
		_ = logRead.SetReadDeadline(noWait())
		_, _ = log.ReadFrom(logRead)
		return ours.Reply{}, fmt.Errorf("gVisor did not make the sandbox: %s", lastError(log.Bytes(), status))
	}
	b, err := h.load(req, conf)
	if err != nil {
		return ours.Reply{}, err
	}
	h.kids.expect(b.pid)
	return b.reply(), nil
}

func (b *box) reply() ours.Reply {
	b.mu.Lock()
	defer b.mu.Unlock()
	return ours.Reply{PID: b.pid, Gofer: b.gofer, Status: string(b.c.Status)}
}

// load finds a sandbox that this or an earlier helper made.
func (h *helper) load(req ours.Request, conf *config.Config) (*box, error) {
	h.mu.Lock()
	b := h.boxes[req.Sandbox]
	h.mu.Unlock()
	if b != nil {
		return b, nil
	}
	// gVisor makes a lock of what is not there, and leaves it.
	name := fmt.Sprintf("%s_sandbox:%s.state", req.Sandbox, req.Sandbox)
	data, err := os.ReadFile(filepath.Join(conf.RootDir, name))
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		// The helper that made it was killed while it wrote, so no caller ever got it.
		return nil, fmt.Errorf("%s is cut off: %w", name, os.ErrNotExist)
	}
	id := container.FullID{SandboxID: req.Sandbox, ContainerID: req.Sandbox}
	c, err := container.Load(conf.RootDir, id, container.LoadOpts{Exact: true, SkipCheck: true})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.boxes[req.Sandbox]; b != nil {
		return b, nil
	}
	b = &box{c: c, conf: conf, pid: c.SandboxPid(), gofer: c.GoferPid.Load()}
	h.boxes[req.Sandbox] = b
	return b, nil
}

// on does something with a sandbox, while nothing else is done with it.
func (h *helper) on(req ours.Request, do func(*box) error) error {
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return err
	}
	b, err := h.load(req, conf)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return do(b)
}

func (b *box) restore(image string) error {
	const direct, background = false, true
	return b.c.Restore(b.conf, image, direct, background, nil)
}

func (b *box) checkpoint(image string) error {
	return b.c.Checkpoint(b.conf, image, sandbox.CheckpointOpts{Compression: "none", Resume: true})
}

// forward connects a socket to a port inside. It does not wait for others.
func (h *helper) forward(req ours.Request, files []*os.File) error {
	if len(files) == 0 {
		return errors.New("the socket is missing")
	}
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return err
	}
	b, err := h.load(req, conf)
	if err != nil {
		return err
	}
	return b.c.PortForward(&boot.PortForwardOpts{
		Port: uint16(req.Port), ContainerID: b.c.ID,
		FilePayload: urpc.FilePayload{Files: files[:1]},
	})
}

func (h *helper) find(req ours.Request) (ours.Reply, error) {
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return ours.Reply{}, err
	}
	b, err := h.load(req, conf)
	if err != nil {
		return ours.Reply{}, err
	}
	return b.reply(), nil
}

// wait says how a sandbox ended. Only the helper that made it knows.
func (h *helper) wait(req ours.Request) (ours.Reply, error) {
	h.mu.Lock()
	b := h.boxes[req.Sandbox]
	h.mu.Unlock()
	if b == nil {
		return ours.Reply{}, nil
	}
	ws, ok := <-h.kids.ending(b.pid)
	switch {
	case !ok:
		return ours.Reply{}, nil
	case ws.Signaled():
		return ours.Reply{Status: fmt.Sprintf("was ended by signal %d (%v)", int(ws.Signal()), ws.Signal())}, nil
	case ws.ExitStatus() > 128 && ws.ExitStatus() < 128+65:
		sig := unix.Signal(ws.ExitStatus() - 128)
		return ours.Reply{Status: fmt.Sprintf("was ended by signal %d (%v)", int(sig), sig)}, nil
	}
	return ours.Reply{Status: fmt.Sprintf("exited with status %d", ws.ExitStatus())}, nil
}

// destroy ends a sandbox and removes all that gVisor keeps of it.
func (h *helper) destroy(req ours.Request) error {
	h.making.wait(req.Sandbox)
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return err
	}
	b, err := h.load(req, conf)
	if err == nil {
		// Before remove takes the lock, whose holder may wait for a sandbox that hangs.
		// gVisor would poll ten times a second for their end.
		end(b.pid, req.Sandbox)
		end(b.gofer, req.Sandbox)
		err = b.remove()
	}
	if errors.Is(err, os.ErrNotExist) {
		err = removeLeft(conf, req.Sandbox)
	}
	if err == nil {
		h.mu.Lock()
		delete(h.boxes, req.Sandbox)
		h.mu.Unlock()
	}
	return err
}

// endWait is how long what was killed may take to be gone.
const endWait = 10 * time.Second

// remove removes what gVisor keeps of a sandbox whose processes are gone. gVisor would
// kill by number, which may be another process's by now, so it does not get the number.
func (b *box) remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c.Sandbox != nil {
		b.c.Sandbox.Pid.Store(0)
	}
	b.c.GoferPid.Store(0)
	b.gone = true
	return errors.Join(b.c.Destroy(), b.unmark())
}

// end kills a process of a sandbox and waits until it is dead.
func end(pid int, sandbox string) {
	if pid <= 1 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if !isOf(pid, sandbox) {
		return // it is dead, and the number may be another's
	}
	if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return
	}
	late := time.Now().Add(endWait)
	for time.Now().Before(late) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && err != unix.EINTR {
			return // its parent may wait for it at any time
		}
	}
}

// isOf reports whether a process is one of a sandbox, or makes it. A dead process is
// neither.
func isOf(pid int, sandbox string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.HasPrefix(line, []byte(runsc)) && bytes.HasSuffix(line, []byte("\x00"+sandbox+"\x00"))
}
