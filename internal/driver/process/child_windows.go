package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"golang.org/x/sys/windows"
)

// adopts is whether children outlive the gateway. Here they are in a job that
// the system ends with it.
const adopts = false

// census is for systems where children outlive the gateway.
type census = struct{}

// child is a process in a job of its own.
type child struct {
	id     procid.ID
	job    windows.Handle
	stdin  *os.File
	exited chan struct{}
	state  *os.ProcessState // once it has exited

	once sync.Once
}

// freeze does nothing: that no frame enters is all there is to a hold here.
func (c *child) freeze(func() error) error { return nil }

func (c *child) thaw() {}

// settles is whether a hold waits for a frame that is being sent: a program that is not
// stopped reads on.
const settles = true

func (d *Driver) launch(dir string, spec launchSpec, rec *record) (_ *child, _ lines.Pipe, err error) {
	job, err := newJob()
	if err != nil {
		return nil, nil, fmt.Errorf("make a job: %w", err)
	}
	defer func() {
		if err != nil {
			windows.CloseHandle(job)
		}
	}()
	name := `\\.\pipe\tine-` + rec.Token
	w, childIn, err := namedPipe(name+"-in", windows.PIPE_ACCESS_OUTBOUND, windows.GENERIC_READ)
	if err != nil {
		return nil, nil, err
	}
	defer childIn.Close()
	r, childOut, err := namedPipe(name+"-out", windows.PIPE_ACCESS_INBOUND, windows.GENERIC_WRITE)
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	defer childOut.Close()
	conn := &lines.Files{R: r, W: w, Vague: true, Closed: func(err error) bool { return errors.Is(err, windows.ERROR_BROKEN_PIPE) }}
	p, err := os.StartProcess(spec.path, append([]string{spec.path}, spec.args...), &os.ProcAttr{
		Dir:   spec.cwd,
		Env:   spec.env.List(),
		Files: []*os.File{childIn, childOut, spec.stderr},
		// Suspended until it is in the job, so that nothing it starts is outside.
		Sys: &syscall.SysProcAttr{
			HideWindow:    true,
			CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW,
		},
	})
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	if err := enter(job, uint32(p.Pid)); err != nil {
		p.Kill()
		p.Wait()
		conn.Close()
		return nil, nil, fmt.Errorf("put the process into its job: %w", err)
	}
	rec.PID = p.Pid
	c := &child{id: rec.ID, job: job, stdin: w, exited: make(chan struct{})}
	go func() { // ends with the process, which Stop and Leave end
		defer close(c.exited)
		c.state, _ = p.Wait()
	}()
	return c, conn, nil
}

// namedPipe returns our end, which takes deadlines, and the child's, which is plain.
func namedPipe(name string, ours, theirs uint32) (*os.File, *os.File, error) {
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, nil, err
	}
	h, err := windows.CreateNamedPipe(path, ours|windows.FILE_FLAG_OVERLAPPED|windows.FILE_FLAG_FIRST_PIPE_INSTANCE,
		windows.PIPE_TYPE_BYTE|windows.PIPE_REJECT_REMOTE_CLIENTS, 1, lines.BufferSize, lines.BufferSize, 0, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	end, err := windows.CreateFile(path, theirs, 0, nil, windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		windows.CloseHandle(h)
		return nil, nil, fmt.Errorf("open a pipe: %w", err)
	}
	return os.NewFile(uintptr(h), name), os.NewFile(uintptr(end), name), nil
}

// newJob makes a job whose processes end when its last handle is closed, and
// ours is closed however we end.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

// enter puts a suspended process into the job and lets it run.
func enter(job windows.Handle, pid uint32) error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	if err := windows.AssignProcessToJobObject(job, h); err != nil {
		return err
	}
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snap)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snap, &entry); err == nil; err = windows.Thread32Next(snap, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		t, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(t)
		windows.CloseHandle(t)
		return err
	}
	return errors.New("the process has no thread")
}

func (c *child) wait(d time.Duration) (exited, ok bool) {
	select {
	case <-c.exited:
		return true, true
	case <-time.After(d):
		return false, true
	}
}

// terminate ends the child's input, which is how MCP asks a server to stop.
func (c *child) terminate() { c.stdin.Close() }

func (c *child) kill() { windows.TerminateJobObject(c.job, 1) }

// close is called when the child has ended.
func (c *child) close() { c.once.Do(func() { windows.CloseHandle(c.job) }) }

// end ends what the child started, once it has exited itself.
func (c *child) end(func() time.Time) (how string, err error) {
	c.kill()
	if c.state == nil {
		return "has ended", nil
	}
	return fmt.Sprintf("exited with status %d", c.state.ExitCode()), nil
}

// Adopt implements driver.Driver. Nothing outlives the gateway here.
func (d *Driver) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	if filepath.IsAbs(h.Dir) {
		if err := folder.Remove(h.Dir, recordName); err != nil {
			return nil, fmt.Errorf("server %q: remove the instance's folder: %w", h.Server, err)
		}
	}
	return nil, fmt.Errorf("server %q: processes end with the gateway on Windows: %w", h.Server, driver.ErrGone)
}

func (d *Driver) clear(dirs []string, _ []record) error {
	for _, dir := range dirs {
		if err := folder.Remove(dir, recordName); err != nil {
			return fmt.Errorf("remove the folder of an instance: %w", err)
		}
	}
	return nil
}
