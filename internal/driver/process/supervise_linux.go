package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// supervises is whether this program can watch over a command.
const supervises = true

// execArg is what this program is called when it is started to watch over a command:
//
//	tine-exec UID:GID PROGRAM ARGV...
//
// The command's orphans become its children, so that it can kill all of them. It does
// when the command has ended, and when the gateway lets go of the descriptor lifeline,
// as it does when it dies. How the command ended it writes to the descriptor report.
const execArg = "tine-exec"

const (
	lifeline = 3
	report   = 4
)

// ending is what is reported of a command.
type ending struct {
	driver.Exit
	Errno syscall.Errno `json:",omitempty"` // why it did not start
}

// watchedCommand is a command that another process of this program watches over.
type watchedCommand struct {
	p      *os.Process
	name   string
	life   *os.File // closed to have the command end
	report *os.File
}

// startWatched starts a command through the process that watches over it.
func (d *Driver) startWatched(c *commandSpec, files []*os.File) (running, error) {
	lifeRead, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeRead.Close()
	told, tell, err := os.Pipe()
	if err != nil {
		life.Close()
		return nil, err
	}
	defer tell.Close()
	as := ""
	if c.user != nil {
		as = fmt.Sprintf("%d:%d", c.user.Uid, c.user.Gid)
	}
	attr := &syscall.ProcAttr{Dir: c.cwd, Sys: &syscall.SysProcAttr{Setsid: true}}
	path, argv := d.opts.Self, append([]string{execArg, as, c.path}, c.argv...)
	if c.mount != nil {
		path, argv = c.mount.through(path, argv, attr)
	}
	p, err := os.StartProcess(path, argv, &os.ProcAttr{
		Dir: attr.Dir, Env: c.env.List(), Files: append(append([]*os.File{}, files...), lifeRead, tell), Sys: attr.Sys,
	})
	if err != nil {
		life.Close()
		told.Close()
		return nil, fmt.Errorf("watch over the command: %w", err)
	}
	return &watchedCommand{p: p, name: c.argv[0], life: life, report: told}, nil
}

func (w *watchedCommand) end() { w.life.Close() }

// wait waits for the report, which comes when nothing of the command is left.
func (w *watchedCommand) wait() (driver.Exit, error) {
	text, err := io.ReadAll(w.report)
	w.report.Close()
	w.life.Close()
	_, _ = w.p.Wait() // the census may have waited for it already
	var e ending
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	switch {
	case err != nil:
		return driver.Exit{}, errors.New("the process that watched over the command was killed, and the command with it")
	case e.Errno != 0:
		return driver.Exit{}, startFailure(w.name, e.Errno)
	}
	return e.Exit, nil
}

// supervise is the life of the process that watches over a command. It does not return.
func supervise(args []string) {
	runtime.LockOSThread() // the command is to die with this thread, if with any
	unix.CloseOnExec(lifeline)
	unix.CloseOnExec(report)
	e := watchOver(args)
	text, _ := json.Marshal(e)
	_, _ = os.NewFile(report, "report").Write(text)
	os.Exit(0)
}

func watchOver(args []string) ending {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return ending{Errno: errnoOf(err)}
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	if as := args[0]; as != "" {
		c := &syscall.Credential{}
		if _, err := fmt.Sscanf(as, "%d:%d", &c.Uid, &c.Gid); err != nil {
			return ending{Errno: syscall.EINVAL}
		}
		attr.Sys.Credential = c
	}
	pid, err := syscall.ForkExec(args[1], args[2:], attr)
	if err != nil {
		return ending{Errno: errnoOf(err)}
	}
	// Its output must end with it, and so must its input.
	for fd := range 3 {
		syscall.Close(fd)
	}
	leader, err := unix.PidfdOpen(pid, 0) // its number may be another's when it is killed
	if err != nil {
		leader = -1
	}
	go func() {
		_, _ = os.NewFile(lifeline, "lifeline").Read(make([]byte, 1)) // nothing is ever written
		if leader < 0 || unix.PidfdSendSignal(leader, unix.SIGKILL, nil, 0) == unix.ENOSYS {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	e := ending{}
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return ending{Errno: errnoOf(err)}
		}
		if got == pid {
			e.Exit = exitOf(ws)
			break
		}
	}
	syscall.Kill(-pid, syscall.SIGKILL) // at once, before its members can start others
	killChildren()
	return e
}

// killChildren kills all children, and those that they leave behind, until none is left.
// One that hangs in the kernel is waited for.
func killChildren() {
	self := os.Getpid()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for _, pid := range procid.All() {
			if parentOf(pid) == self {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		for {
			got, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.ECHILD {
				return
			}
			if err != syscall.EINTR && got <= 0 {
				break
			}
		}
		time.Sleep(pause)
	}
}

// parentOf is the parent of a process; 0 where that is not known.
func parentOf(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return syscall.EIO
}

// signalName is what a signal is called, without SIG.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); len(name) > 3 {
		return name[3:]
	}
	return strconv.Itoa(int(sig))
}
