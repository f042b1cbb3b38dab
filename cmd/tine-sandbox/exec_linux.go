//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	ours "github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// commands are the commands that run in sandboxes.
type commands struct {
	mu  sync.Mutex
	all map[string]*asked
}

// asked is a command that was asked for.
type asked struct {
	begun chan struct{} // closed when it runs, or does not
	c     *command      // nil where it does not
}

// command is one of them. Its first process has no parent inside, and leads a group. What
// leaves the group is found while the chain of parents is whole, so it is looked for from
// time to time.
type command struct {
	b   *box
	pid int32

	mu   sync.Mutex
	seen map[int32]bool // what it started, besides its group
}

// exec runs a command to its end. It does not wait for others.
func (h *helper) exec(req ours.Request, files []*os.File) (ours.Reply, error) {
	if req.Exec == nil || len(req.Exec.Argv) == 0 || len(files) < 3 {
		return ours.Reply{}, errors.New("the command or its standard files are missing")
	}
	defer h.commands.drop(req.Exec.ID)
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return ours.Reply{}, err
	}
	b, err := h.load(req, conf)
	if err != nil {
		return ours.Reply{}, err
	}
	c, rep, err := b.begin(req.Exec, files)
	if err != nil {
		return rep, err
	}
	ours.Close(files) // or the end of its output would not be seen
	h.commands.put(req.Exec.ID, c)
	over := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() { c.look(over) })
	ws, err := b.c.WaitPID(c.pid)
	close(over)
	looking.Wait()
	if err != nil {
		return ours.Reply{}, err
	}
	if err := c.kill(); err != nil {
		return ours.Reply{}, err
	}
	if ws.Signaled() {
		return ours.Reply{Signaled: int(ws.Signal())}, nil
	}
	return ours.Reply{Code: ws.ExitStatus()}, nil
}

// begin starts a command in the sandbox, with the rights of its program.
func (b *box) begin(e *ours.Exec, files []*os.File) (*command, ours.Reply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, ours.Reply{}, errors.New("it is not there any more")
	}
	if err := b.look(); err != nil {
		return nil, ours.Reply{}, err
	}
	if b.paused {
		return nil, ours.Reply{}, errors.New("it is held, and runs no command")
	}
	pid, err := b.c.Execute(b.conf, &control.ExecArgs{
		Argv: e.Argv, Envv: e.Env, WorkingDirectory: e.Cwd,
		KUID: auth.KUID(e.UID), KGID: auth.KGID(e.GID),
		NoNewPrivileges: true, Capabilities: &auth.TaskCapabilities{}, // without them root would have all
		FilePayload: control.NewFilePayload(map[int]*os.File{0: files[0], 1: files[1], 2: files[2]}, nil),
	})
	if err != nil {
		text := err.Error() // which is all that comes of it from the sandbox
		return nil, ours.Reply{
			NotDir:   strings.Contains(text, "initial working directory"),
			NotFound: strings.Contains(text, "error finding executable") || strings.Contains(text, "no such file or directory"),
		}, err
	}
	return &command{b: b, pid: pid, seen: make(map[int32]bool)}, ours.Reply{}, nil
}

// These are how often it is looked what a command has started.
const (
	firstLook = 50 * time.Millisecond
	laterLook = 2 * time.Second
)

func (c *command) look(over <-chan struct{}) {
	for wait := firstLook; ; wait = min(2*wait, laterLook) {
		select {
		case <-over:
			return
		case <-time.After(wait):
		}
		_, _ = c.descendants()
	}
}

// descendants are the processes that belong to the command and live, as far as they can
// be told.
func (c *command) descendants() ([]int32, error) {
	list, err := c.b.c.Processes()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := map[int32]bool{c.pid: true}
	for again := true; again; {
		again = false
		for _, p := range list {
			pid := int32(p.PID)
			if !mine[pid] && (mine[int32(p.PPID)] || int32(p.PGID) == c.pid || c.seen[pid]) {
				mine[pid], again = true, true
			}
		}
	}
	var live []int32
	clear(c.seen) // numbers of what is gone may be another's
	for _, p := range list {
		if pid := int32(p.PID); mine[pid] {
			live = append(live, pid)
			c.seen[pid] = true
		}
	}
	return live, nil
}

// kill kills the command and all that belongs to it, and returns when that is dead. What
// is found is stopped first, so that it starts nothing meanwhile.
func (c *command) kill() error {
	stopped, dead := make(map[int32]bool), make(map[int32]bool)
	for {
		live, err := c.descendants()
		if err != nil {
			if !isOf(c.b.pid, c.b.c.ID) {
				return nil // it has ended, and all in it
			}
			return fmt.Errorf("look for what is left of the command: %w", err)
		}
		// Those that were not waited for stay in the list: the program is their parent.
		live = slices.DeleteFunc(live, func(pid int32) bool { return dead[pid] })
		if len(live) == 0 {
			return nil
		}
		fresh := false
		for _, pid := range live {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = c.b.c.SignalProcess(unix.SIGSTOP, pid)
			}
		}
		if fresh {
			continue
		}
		for _, pid := range live {
			_ = c.b.c.SignalProcess(unix.SIGKILL, pid)
		}
		for _, pid := range live {
			if !c.b.dies(pid) {
				return fmt.Errorf("process %d of the command was killed and does not end", pid)
			}
			dead[pid] = true
		}
	}
}

// dies waits until a process in the sandbox is dead.
func (b *box) dies(pid int32) bool {
	done := make(chan struct{})
	go func() { // ends with the process, or the sandbox
		defer close(done)
		_, _ = b.c.WaitPID(pid)
	}()
	select {
	case <-done:
		return true
	case <-time.After(endWait):
		return false
	}
}

// endCommand kills a command by its name, or those that an earlier helper left.
func (h *helper) endCommand(req ours.Request) error {
	if req.Exec != nil && req.Exec.ID != "" {
		if c := h.commands.get(req.Exec.ID); c != nil {
			return c.kill()
		}
		return nil // it has ended
	}
	conf, err := h.confs.of(req.Flags)
	if err != nil {
		return err
	}
	b, err := h.load(req, conf)
	if err != nil {
		return err
	}
	list, err := b.c.Processes()
	if err != nil {
		return err
	}
	// Processes without a parent are the program itself and the commands.
	for _, p := range list {
		if p.PPID == 0 && p.PID != 1 && !h.commands.has(b, int32(p.PID)) {
			c := &command{b: b, pid: int32(p.PID), seen: make(map[int32]bool)}
			err = errors.Join(err, c.kill())
		}
	}
	return err
}

// endCommands kills all commands: their caller is gone.
func (h *helper) endCommands() {
	var all sync.WaitGroup
	for _, c := range h.commands.list() {
		all.Go(func() {
			if err := c.kill(); err != nil {
				fmt.Fprintln(os.Stderr, "end a command:", err)
			}
		})
	}
	all.Wait()
}

// expect notes a command before any other request about it is read.
func (c *commands) expect(e *ours.Exec) {
	if e == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string]*asked)
	}
	c.all[e.ID] = &asked{begun: make(chan struct{})}
}

// put notes that a command runs.
func (c *commands) put(id string, one *command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.all[id]; a != nil {
		a.c = one
		close(a.begun)
	}
}

// drop forgets a command, which has ended or did not begin.
func (c *commands) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.all[id]; a != nil && a.c == nil {
		close(a.begun)
	}
	delete(c.all, id)
}

// get waits until a command runs; nil where it does not, or has ended.
func (c *commands) get(id string) *command {
	c.mu.Lock()
	a := c.all[id]
	c.mu.Unlock()
	if a == nil {
		return nil
	}
	<-a.begun
	return a.c
}

func (c *commands) list() []*command {
	c.mu.Lock()
	var names []string
	for id := range c.all {
		names = append(names, id)
	}
	c.mu.Unlock()
	var all []*command
	for _, id := range names {
		if one := c.get(id); one != nil {
			all = append(all, one)
		}
	}
	return all
}

// has reports whether a process of a sandbox is a command that has a caller.
func (c *commands) has(b *box, pid int32) bool {
	for _, one := range c.list() {
		if one.b == b && one.pid == pid {
			return true
		}
	}
	return false
}
