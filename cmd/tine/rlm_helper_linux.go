package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/config/srt"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/publicnet"
)

// Operations of a helperRequest.
const (
	helpStart  = "start"  // starts tine-sandbox: Path, Arg, Apart, and the files stderr and those from 3 on
	helpClaude = "claude" // starts the program claude: Args, Env, Dir, and the files stdin, stdout, stderr
	helpDial   = "dial"   // connects to Address, and returns the connection
	helpKill   = "kill"   // ends what was started: PID
	helpMemory = "memory" // says how much memory a sandbox takes: PID, Gofer
	helpBye    = "bye"    // tine rlm ends in order
)

type helperRequest struct {
	ID      uint64   `json:"id"`
	Op      string   `json:"op"`
	Path    string   `json:"path,omitempty"`
	Arg     string   `json:"arg,omitempty"`
	Apart   bool     `json:"apart,omitempty"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Address string   `json:"address,omitempty"`
	PID     int      `json:"pid,omitempty"`
	Gofer   int      `json:"gofer,omitempty"`
}

// A helperReply answers a request, or says that what was started has ended.
type helperReply struct {
	ID    uint64 `json:"id,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Ended bool   `json:"ended,omitempty"`
	Error string `json:"error,omitempty"`
	Errno int    `json:"errno,omitempty"`
	// Refused says that the helper may not do it, and would not the next time.
	Refused bool `json:"refused,omitempty"`
}

// ignoreSignals has the helper live on when its client and that client's pipes are gone.
func ignoreSignals() { signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE) }

// helpOver does what tine rlm asks for until that ends, and reports whether it ended in
// order.
func helpOver(socket *os.File, task helperTask, programs string) (inOrder bool, err error) {
	conn, err := control.Open(socket)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	h := &helpService{conn: conn, task: task, programs: programs, running: make(map[int]func()), usages: make(map[int]*sandbox.Usage)}
	flags := rlmFlags{Project: task.From, SRT: task.SRT}
	if h.srt, err = flags.srt(); err != nil {
		return false, err
	}
	for {
		var req helperRequest
		files, err := conn.Read(&req)
		switch {
		case err != nil:
			h.end()
			return false, nil // it was killed
		case req.Op == helpBye:
			h.end()
			rep := helperReply{ID: req.ID}
			if err := removeBrief(task.Dir); err != nil {
				rep.Error = err.Error()
			}
			_ = conn.Write(rep) // tine rlm may not wait for it
			return true, nil
		}
		go func() {
			defer control.Close(files)
			rep, out := h.do(req, files)
			rep.ID = req.ID
			_ = conn.Write(rep, out...) // where it fails tine rlm has ended
			control.Close(out)
		}()
	}
}

// helpService is the side of the helper.
type helpService struct {
	conn     *control.Conn
	task     helperTask
	programs string
	srt      *srt.Settings // nil for none

	mu      sync.Mutex
	running map[int]func() // what ends it, by the id of the process

	looking sync.Mutex
	usages  map[int]*sandbox.Usage // of sandboxes, by the id of the process
}

// end ends the programs claude that run; tine-sandbox ends by itself.
func (h *helpService) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kill := range h.running {
		if kill != nil {
			kill()
		}
	}
}

func (h *helpService) do(req helperRequest, files []*os.File) (rep helperReply, out []*os.File) {
	var err error
	switch req.Op {
	case helpStart:
		rep.PID, err = h.start(req, files)
	case helpClaude:
		rep.PID, err = h.claude(req, files)
	case helpDial:
		out, err = h.dial(req.Address)
	case helpKill:
		err = h.kill(req.PID)
	case helpMemory:
		rep.Bytes, err = h.memory(req.PID, req.Gofer)
	default:
		err = fmt.Errorf("the helper does not know %q", req.Op)
	}
	if err != nil {
		rep.Error = err.Error()
		var no syscall.Errno
		if errors.As(err, &no) {
			rep.Errno = int(no)
		}
		rep.Refused = errors.As(err, new(*model.Refused))
	}
	return rep, out
}

// start starts a program of the folder of programs, which tine rlm can't write to.
func (h *helpService) start(req helperRequest, files []*os.File) (int, error) {
	if filepath.Dir(req.Path) != h.programs || req.Arg != control.Arg && req.Arg != control.ListenArg || len(files) < 2 {
		return 0, fmt.Errorf("the helper does not start %s", req.Path)
	}
	cmd := sandbox.Child(sandbox.Command{Path: req.Path, Arg: req.Arg, Files: files[1:], Stderr: files[0], Apart: req.Apart})
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return h.await(cmd.Process.Pid, nil, cmd.Wait), nil
}

func (h *helpService) claude(req helperRequest, files []*os.File) (int, error) {
	if h.task.CLI == "" || len(files) != 3 {
		return 0, errors.New("the helper does not run the program claude; name it with --model claude-code")
	}
	cmd := exec.Command(h.task.CLI, req.Args...)
	cmd.Env, cmd.Dir = req.Env, req.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid
	return h.await(pid, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }, cmd.Wait), nil
}

// await tells tine rlm when a process has ended.
func (h *helpService) await(pid int, kill func(), wait func() error) int {
	h.mu.Lock()
	h.running[pid] = kill
	h.mu.Unlock()
	go func() {
		rep := helperReply{PID: pid, Ended: true}
		if err := wait(); err != nil {
			rep.Error = err.Error()
		}
		h.mu.Lock()
		delete(h.running, pid)
		h.mu.Unlock()
		_ = h.conn.Write(rep)
	}()
	return pid
}

func (h *helpService) kill(pid int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	kill, ok := h.running[pid]
	switch {
	case !ok:
		return nil
	case kill != nil:
		kill()
		return nil
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// memory looks for tine rlm, which can't see other processes any more.
func (h *helpService) memory(pid, gofer int) (int64, error) {
	h.looking.Lock()
	defer h.looking.Unlock()
	if h.usages[pid] == nil {
		h.usages[pid] = new(sandbox.Usage)
	}
	used, err := h.usages[pid].Look(pid, gofer)
	if err != nil {
		delete(h.usages, pid)
	}
	return used, err
}

const (
	dialTime = 30 * time.Second
	byeWait  = 10 * time.Second // which is for the removal of a folder
)

func (h *helpService) dial(address string) ([]*os.File, error) {
	if !slices.Contains(h.task.Hosts, address) {
		return nil, &model.Refused{Reason: address + " is none of the hosts of the language models that were named at the start"}
	}
	dialer := net.Dialer{Timeout: dialTime}
	if h.srt != nil {
		if err := mayReach(h.srt, h.task.SRT, address); err != nil {
			return nil, &model.Refused{Reason: err.Error()}
		}
		dialer.Control = func(_, at string, _ syscall.RawConn) error { return h.mayConnect(at) }
	}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// mayConnect refuses an address that a name has led to.
func (h *helpService) mayConnect(at string) error {
	a, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	addr, port := a.Addr().Unmap(), a.Port()
	if h.srt.DeniesAddress(addr, port) || !publicnet.IsPublic(addr) && !h.srt.AllowsAddress(addr, port) {
		return &model.Refused{Reason: fmt.Sprintf("%s is not allowed by %s", at, h.task.SRT)}
	}
	return nil
}

// rlmHelper is the side of tine rlm. nil is for a gateway without one: it does all
// itself.
type rlmHelper struct {
	room *room

	mu       sync.Mutex
	conn     *control.Conn
	leaving  bool  // it ends in order
	ended    error // why there is none any more
	confined bool
	// unconfined is why the process could not be confined. Every later call fails with it.
	unconfined error
	last       uint64
	calls      map[uint64]chan helperAnswer
	exits      map[int]chan error
	over       chan struct{} // closed when the helper has ended
}

type helperAnswer struct {
	helperReply
	files []*os.File
	err   error
}

func newRLMHelper(m *room) *rlmHelper {
	return &rlmHelper{room: m, calls: make(map[uint64]chan helperAnswer), exits: make(map[int]chan error), over: make(chan struct{})}
}

// begin starts the helper, once.
func (h *rlmHelper) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil || h.ended != nil {
		return h.ended
	}
	task, err := h.room.task()
	if err != nil {
		return err
	}
	conn, theirs, err := control.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd := exec.Command(self, helperCommand, task)
	cmd.Args[0] = "tine"
	cmd.Stdin, cmd.Stderr, cmd.Dir = theirs, os.Stderr, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return fmt.Errorf("start the helper of tine rlm: %w", err)
	}
	h.conn = conn
	go h.listen(cmd)
	return nil
}

// listen hands on what the helper says until it ends.
func (h *rlmHelper) listen(cmd *exec.Cmd) {
	for {
		var rep helperReply
		files, err := h.conn.Read(&rep)
		if err != nil {
			break
		}
		h.mu.Lock()
		switch call := h.calls[rep.ID]; {
		case rep.Ended:
			exit := h.exit(rep.PID)
			if rep.Error != "" {
				exit <- errors.New(rep.Error)
			}
			close(exit)
		case call != nil:
			delete(h.calls, rep.ID)
			call <- helperAnswer{helperReply: rep, files: files}
		default:
			control.Close(files)
		}
		h.mu.Unlock()
	}
	_ = cmd.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.leaving {
		// Without it nothing works, and it can't be made again: a kernel that can't be kept
		// now would be given up. The next tine rlm finds it as this one leaves it.
		fmt.Fprintf(h.room.rooms.c.stderr, "tine: %v\n", errNoHelper)
		os.Exit(exitFailed)
	}
	h.ended = errNoHelper
	close(h.over)
	for _, call := range h.calls {
		call <- helperAnswer{err: errNoHelper}
	}
	clear(h.calls)
	for _, exit := range h.exits {
		select {
		case exit <- errNoHelper:
		default: // it has ended
		}
	}
}

// exit is where the end of a process is told, which may be before its start was.
func (h *rlmHelper) exit(pid int) chan error {
	if h.exits[pid] == nil {
		h.exits[pid] = make(chan error, 2)
	}
	return h.exits[pid]
}

// call asks the helper for something.
func (h *rlmHelper) call(ctx context.Context, req helperRequest, files ...*os.File) (helperReply, []*os.File, error) {
	if err := h.begin(); err != nil {
		return helperReply{}, nil, err
	}
	c := make(chan helperAnswer, 1)
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return helperReply{}, nil, h.ended
	}
	h.last++
	req.ID = h.last
	h.calls[req.ID] = c
	h.mu.Unlock()
	if err := h.conn.Write(req, files...); err != nil {
		h.mu.Lock()
		delete(h.calls, req.ID)
		h.mu.Unlock()
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			<-h.over // or this process ends
			err = errNoHelper
		}
		return helperReply{}, nil, fmt.Errorf("ask the helper of tine rlm: %w", err)
	}
	select {
	case a := <-c:
		switch {
		case a.err != nil:
			return a.helperReply, nil, a.err
		case a.Refused:
			return a.helperReply, nil, &model.Refused{Reason: a.Error}
		case a.Errno != 0:
			return a.helperReply, nil, &helperError{strings.TrimPrefix(a.Error, "dial tcp "), syscall.Errno(a.Errno)}
		case a.Error != "":
			return a.helperReply, nil, errors.New(a.Error)
		}
		return a.helperReply, a.files, nil
	case <-ctx.Done():
		h.mu.Lock()
		_, waiting := h.calls[req.ID]
		delete(h.calls, req.ID)
		h.mu.Unlock()
		if !waiting { // it came in this moment
			control.Close((<-c).files)
		}
		return helperReply{}, nil, ctx.Err()
	}
}

// A helperError is an error of the system that the helper met.
type helperError struct {
	text string
	no   syscall.Errno
}

func (e *helperError) Error() string { return e.text }
func (e *helperError) Unwrap() error { return e.no }

// starter starts tine-sandbox; nil as any gateway does.
func (h *rlmHelper) starter() func(sandbox.Command) (sandbox.Running, error) {
	if h == nil {
		return nil
	}
	return func(c sandbox.Command) (sandbox.Running, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		rep, _, err := h.call(context.Background(), helperRequest{Op: helpStart, Path: c.Path, Arg: c.Arg, Apart: c.Apart}, append([]*os.File{w}, c.Files...)...)
		w.Close()
		if err != nil {
			r.Close()
			return nil, err
		}
		return h.running(rep.PID, func() {
			_, _ = io.Copy(c.Stderr, r)
			r.Close()
		}), nil
	}
}

// memory is how much memory a sandbox takes; nil where this process sees it.
func (h *rlmHelper) memory() func(pid, gofer int) (int64, error) {
	if h == nil {
		return nil
	}
	return func(pid, gofer int) (int64, error) {
		rep, _, err := h.call(context.Background(), helperRequest{Op: helpMemory, PID: pid, Gofer: gofer})
		return rep.Bytes, err
	}
}

// helped is a process that the helper has started.
type helped struct {
	h    *rlmHelper
	pid  int
	read chan struct{} // its output was read
	exit chan error
}

func (h *rlmHelper) running(pid int, read func()) *helped {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &helped{h: h, pid: pid, read: make(chan struct{}), exit: h.exit(pid)}
	go func() {
		defer close(p.read)
		read()
	}()
	return p
}

// Wait implements sandbox.Running.
func (p *helped) Wait() error {
	err := <-p.exit
	<-p.read
	p.h.mu.Lock()
	delete(p.h.exits, p.pid)
	p.h.mu.Unlock()
	return err
}

// Kill implements sandbox.Running.
func (p *helped) Kill() {
	_, _, _ = p.h.call(context.Background(), helperRequest{Op: helpKill, PID: p.pid})
}

// bye ends the helper in order, which removes a room that is not kept. It reports
// whether there is a helper.
func (h *rlmHelper) bye() (bool, error) {
	if h == nil {
		return false, nil
	}
	h.mu.Lock()
	conn := h.conn
	h.leaving = true
	h.mu.Unlock()
	if conn == nil {
		return false, nil
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), byeWait)
	defer cancel()
	_, _, err := h.call(ctx, helperRequest{Op: helpBye})
	return true, err
}

// openModel opens a language model, to which the helper connects.
func (h *rlmHelper) openModel(name string, o model.Options) (model.Model, error) {
	if h != nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = h.dial
		o.Client = &http.Client{Transport: transport}
		o.Start = h.startClaude
	}
	return model.Open(name, o)
}

func (h *rlmHelper) dial(ctx context.Context, network, address string) (net.Conn, error) {
	_, files, err := h.call(ctx, helperRequest{Op: helpDial, Address: address})
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	defer control.Close(files)
	if len(files) != 1 {
		return nil, errors.New("the helper of tine rlm gave no connection")
	}
	return net.FileConn(files[0])
}

// startClaude has the helper run the program claude.
func (h *rlmHelper) startClaude(cmd *exec.Cmd) (*model.Process, error) {
	var theirs, ours []*os.File
	for _, in := range []bool{true, false, false} {
		r, w, err := os.Pipe()
		if err != nil {
			control.Close(append(theirs, ours...))
			return nil, err
		}
		if in {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	rep, _, err := h.call(context.Background(), helperRequest{Op: helpClaude, Args: cmd.Args[1:], Env: cmd.Env, Dir: cmd.Dir}, theirs...)
	control.Close(theirs)
	if err != nil {
		control.Close(ours)
		return nil, err
	}
	go func() {
		_, _ = io.Copy(ours[0], cmd.Stdin) // it may end before it has read all
		ours[0].Close()
	}()
	p := h.running(rep.PID, func() {
		_, _ = io.Copy(cmd.Stderr, ours[2])
		ours[2].Close()
	})
	return &model.Process{Stdout: ours[1], Wait: p.Wait, Kill: p.Kill}, nil
}
